"""How fast the model prices design points and the study runs. Not a test: run it as a program.

python tests/benchmarks/pricing.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import dse

POINTS = 100_000
ROUNDS = 7


def points_per_second() -> float:
    """Median rate of pricing FuseMax attention over arrays of rows, columns, buffer bytes and lengths, in one call."""
    dice = np.random.default_rng(0)
    size = 2 ** dice.integers(6, 10, POINTS)
    parameters = {
        "rows": size,
        "cols": size,
        "buffer": 8 * 2 ** dice.integers(21, 26, POINTS),
        "seq_len": 2 ** dice.integers(10, 21, POINTS),
        "heads": dice.choice([8, 12, 16], POINTS),
        "head_dim": dice.choice([64, 128], POINTS),
    }
    rates = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        result = dse.evaluate("fusemax", "attention_1pass", **parameters)
        assert np.all(result.feasible)
        assert result.latency_s.shape == result.energy_pj.shape == result.area_um2.shape == (POINTS,)
        rates.append(POINTS / (time.perf_counter() - start))
    return statistics.median(rates)


def seconds(*arguments: str) -> float:
    """Median wall time of a cold `dse` process."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "dse.cli", *arguments], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


if __name__ == "__main__":
    print(f"pricing, one call of {POINTS:,} points: {points_per_second():,.0f} points/s")
    with tempfile.TemporaryDirectory() as folder:
        print(f"dse run fusemax_attention: {seconds('run', 'fusemax_attention', '-o', folder):.2f} s")
        print(
            f"dse run fusemax_attention --no-figures: {seconds('run', 'fusemax_attention', '--no-figures', '-o', folder):.2f} s"
        )
    print(f"dse --help: {seconds('--help'):.2f} s")
    sizes = [text for each in ("batch=1", "heads=8", "seq_len=1K", "head_dim=64") for text in ("--set", each)]
    for name in ("attention_3pass", "attention_1pass"):
        print(f"dse verify {name}, 8 heads of 1K x 1K: {seconds('verify', name, *sizes):.2f} s")
