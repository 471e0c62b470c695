"""Finished populations -> mappings and their costs, read back through what each stage remembered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dse.search.mapspace import Mapspace
from dse.search.population import Population, rounded
from dse.search.problem import LevelMapping, Nest, Point, Problem


@dataclass(frozen=True)
class Stage:
    """What a boundary remembers of its survivors, to read a mapping back from the last one."""

    depth: int
    spatial: bool
    origin: NDArray[np.int64]
    choice: NDArray[np.int64]
    extents: NDArray[np.int64]


def points_of(
    space: Mapspace, stages: Sequence[Stage], finished: Population, ranked: Sequence[str], *, only_best: bool
) -> list[Point]:
    """The finished mappings in ascending order of the `ranked` metrics, or the first, with their costs."""
    columns, word = finished.columns, space.problem.word_bytes
    costs = {
        "energy": columns["sum", "energy"],
        "latency": columns["latency",],
        "edp": columns["sum", "energy"] * columns["latency",],
        "capacity": columns["held",] * word,
    }
    if ("sum", "dram") in columns:
        costs["dram"] = columns["sum", "dram"] * word
    order = np.lexsort([rounded(costs[metric]) for metric in reversed(ranked)])
    return [
        Point(nest_of(space.problem, stages, row), {metric: float(values[row]) for metric, values in costs.items()})
        for row in (order[:1] if only_best else order).tolist()
    ]


def nest_of(problem: Problem, stages: Sequence[Stage], row: int) -> Nest:
    """The mapping behind a finished row."""
    space, levels = Mapspace(problem), range(len(problem.levels))
    temporal: list[tuple[tuple[str, int], ...]] = [() for _ in levels]
    spatial: list[dict[str, tuple[tuple[str, int], ...]]] = [{} for _ in levels]
    keeps: list[tuple[str, ...]] = [() for _ in levels]
    for stage, before in zip(reversed(stages[1:]), reversed(stages[:-1]), strict=True):
        depth, choice = stage.depth, int(stage.choice[row])
        origin = int(stage.origin[row])
        if stage.spatial:
            for (axis, _), own in zip(
                problem.levels[depth].axes, space.fanouts[depth].axes[choice].tolist(), strict=True
            ):
                spatial[depth][axis] = tuple(
                    (rank, factor) for rank, factor in zip(problem.ranks, own, strict=True) if factor > 1
                )
        else:
            number, order = space.decode(choice)
            factors = (stage.extents[row] // before.extents[origin]).tolist()
            keeps[depth] = problem.keep_choices[depth][number].names
            temporal[depth] = tuple((problem.ranks[rank], factors[rank]) for rank in reversed(order))
        row = origin
    return tuple(
        LevelMapping(level.memory, temporal[depth], spatial[depth], keeps[depth])
        for depth, level in enumerate(problem.levels)
    )
