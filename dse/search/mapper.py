"""The best mapping of one Einsum, with proof: quick runs find a good one, a whole run shows that nothing is better."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dse.search.bounds import Bounds
from dse.search.growth import Growth
from dse.search.mapspace import Mapspace
from dse.search.population import Column
from dse.search.problem import Point, Problem
from dse.search.run import CHUNK_ROWS, FEW_ROWS, Beam, Run
from dse.search.size import size_of
from dse.specs.mapspace import OBJECTIVES

METRICS = ("energy", "latency", "capacity", "dram")
"""What a Pareto front may be over."""

BEAM_ROWS = 64
"""Partial mappings that the first, quick runs keep at each boundary."""


@dataclass(frozen=True)
class Proof:
    """Why nothing better exists: mappings in the space, partial mappings priced, and cut by rule."""

    size: int
    priced: int
    cut: Mapping[str, int]
    complete: bool = True


@dataclass(frozen=True)
class Found:
    """The best mapping, or a Pareto front in ascending order of its first metric; no points where no mapping is valid."""

    points: Sequence[Point]
    proof: Proof


def map_einsum(
    problem: Problem,
    objective: str = "energy",
    front: Sequence[str] = (),
    *,
    chunk: int = CHUNK_ROWS,
    progress: Callable[[float], None] = lambda share: None,
    hurried: bool = False,
) -> Found:
    """The mapping of least `objective` (a key of `OBJECTIVES`), or the Pareto front over the metrics of `front`.

    `progress` is told of the share that is done. Interrupted, or `hurried`, the search gives the best mapping that quick
    runs find, not proven.
    """
    space = Mapspace(problem)
    size = size_of(space)
    growth = Growth(space, with_dram="dram" in (objective, *front))
    outermost = problem.outermost
    metrics: list[Column] = [("energy",), *(("seconds", outermost, key) for key in problem.levels[outermost].seconds)]
    bounds = {metric: Bounds(growth, metric) for metric in (*metrics, *([("dram",)] if growth.with_dram else []))}
    limit: dict[str, float] = {}
    known: list[Point] = []
    if not front and size > FEW_ROWS:
        known = _quick_points(growth, bounds, objective, chunk)
        limit = _limits(known, problem)
    search = Run(growth, bounds, objective, tuple(front), limit, None, chunk, progress)
    try:
        if hurried and size > FEW_ROWS:
            raise KeyboardInterrupt
        last = search.run()
    except KeyboardInterrupt:
        if not known:
            raise
        return Found(known, Proof(size, search.priced, dict(sorted(search.cut.items())), complete=False))
    return Found(
        [] if last is None else search.points(last), Proof(size, search.priced, dict(sorted(search.cut.items())))
    )


def _quick_points(growth: Growth, bounds: Mapping[Column, Bounds], objective: str, chunk: int) -> list[Point]:
    """A good mapping at once, if one is found: runs for the objective, and for energy, that look at few rows; each looks
    at more than the one before, but not at what that one makes needless."""
    known: list[Point] = []
    goals = tuple(dict.fromkeys((objective, "energy")))
    for goal, beam in [
        *((goal, Beam(BEAM_ROWS, apart=False)) for goal in goals),
        (objective, Beam(BEAM_ROWS // 2, apart=True)),
    ]:
        limit = _limits(known, growth.problem) if goal == objective else {}
        quick = Run(growth, bounds, goal, (), limit, beam, chunk)
        best = quick.run()
        known += [] if best is None else quick.points(best)
        known = sorted(known, key=lambda point: [point.costs[metric] for metric in OBJECTIVES[objective]])[:1]
    return known


def _limits(known: Sequence[Point], problem: Problem) -> dict[str, float]:
    """What is to be beaten, in the units of a search."""
    limit = dict(known[0].costs) if known else {}
    if "dram" in limit:
        limit["dram"] /= problem.word_bytes
    return limit
