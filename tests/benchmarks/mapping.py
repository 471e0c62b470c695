"""How fast the mapper prices partial mappings, and how long whole searches take. Not a test: run it as a program.

python tests/benchmarks/mapping.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

import dse
from dse.search.growth import Growth, waiting_streams
from dse.search.mapspace import Mapspace
from dse.search.problem import Problem
from dse.search.run import CHUNK_ROWS, Run

ROUNDS = 5
ATTENTION = {"batch": 1, "heads": 1, "seq_len": 1024, "head_dim": 64, "buffer": "256 KiB", "registers": 256}


def median_seconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Median wall time of a call."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def priced_per_second(problem: Problem) -> float:
    """Partial mappings priced a second on one core: the buffer's loops, in every order, around nests of the level inside."""
    space = Mapspace(problem)
    growth = Growth(space, with_dram=False)
    run = Run(growth, {}, "energy", (), {}, None, CHUNK_ROWS)
    inner = run.stage(run.step(2, [growth.start()]), 2, spatial=False)
    (population,) = run.stage(run.spread(1, inner), 1, spatial=True)
    waiting = waiting_streams(population)
    (keep,) = problem.keep_choices[1]
    rows, extents, kinds = next(run.grown(1, population, 0, keep))
    whole = np.flatnonzero(kinds == 7)
    parent, grown = population.take(rows[whole]), extents[whole]
    orders = space.orders(1, 7, waiting)

    def price() -> None:
        tiles = growth.tiles(1, grown, keep)
        for order in orders:
            growth.close(1, growth.loop(parent, grown, order, waiting), tiles, keep.ending)

    return len(whole) * len(orders) / median_seconds(price)


def cold(*arguments: str) -> float:
    """Median wall time of a cold `dse` process."""
    command = [sys.executable, "-m", "dse.cli", *arguments]
    return median_seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL), 3)


if __name__ == "__main__":
    kept = dse.map_workload("three_level", "matmul")
    print(
        f"priced in the inner loop: {priced_per_second(kept.einsums['Z'].problem):,.0f} partial mappings/s on one core"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/best.mapping.yaml"
        with open(path, "w", encoding="utf-8") as file:
            file.write(kept.to_yaml())
        mapping = dse.load_mapping(path)
        one = median_seconds(lambda: dse.evaluate("three_level", "matmul", mapping=mapping), 50)
    print(f"the closed form, one mapping in one call: {one * 1e3:.2f} ms")
    print(f"dse map three_level matmul, cold: {cold('map', 'three_level', 'matmul'):.2f} s")
    searches: dict[str, Callable[[], object]] = {
        "matmul, every level keeps all": lambda: dse.map_workload("three_level", "matmul"),
        "matmul, levels may be bypassed": lambda: dse.map_workload("three_level", "matmul", mapspace="free"),
        "attention, unfused": lambda: dse.map_workload("three_level", "attention_3pass", **ATTENTION),
        "ResNet-50's conv3_3x3 on Eyeriss": lambda: dse.map_workload("eyeriss", "conv", model="resnet50_conv3_3x3"),
    }
    for name, search in searches.items():
        taken = median_seconds(search, 3)
        print(f"{name}: {taken:.2f} s, {taken / one:,.0f} calls of the closed form")
