"""The outer part of an Einsum's mapping alone, where all that is inside the buffer costs no more than it must.

What Einsums share, what they leave in the buffer and what they move from the outermost memory is exact here; the inner
part is one number, the least of any. So a whole mapping costs no less than its outer part, and there are few of those.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

import numpy as np

from dse.search.bounds import Bounds
from dse.search.growth import SETTLED, Growth, Tiles
from dse.search.mapper import map_einsum
from dse.search.mapspace import Mapspace
from dse.search.population import Array, Column, Population
from dse.search.problem import Constraints, KeepChoice, Problem
from dse.search.rest import Rest
from dse.search.run import CHUNK_ROWS, Run


def most_busy(problem: Problem) -> int:
    """The most PEs that the fan-outs of a problem could use, each at its best."""
    return math.prod(int(ways.factors.prod(axis=1).max(initial=1)) for ways in Mapspace(problem).fanouts)


def least_seconds(problem: Problem) -> float:
    """The compute time of an Einsum on all the PEs that it can use."""
    return math.prod(problem.sizes) * problem.operation_s / most_busy(problem)


class OuterGrowth(Growth):
    """Growth of the levels down to the buffer of a `problem`. Raises ValueError where its inner part has no mapping.

    The inside takes each element of an operand once at least, and, unless asked to take them `once` indeed, each element
    of a tile once in each iteration of the shared loops, between which it holds nothing. They are in the least energy of
    the inside at the least price that they may have, and are charged here at the price that they do.
    """

    def __init__(self, problem: Problem, *, inside: float | None = None, once: bool = False) -> None:
        self.once = once
        buffer = _buffer_of(problem)
        levels = (*problem.levels[:buffer], replace(problem.levels[buffer], axes=()))
        demands = _without(problem.constraints, {level.memory for level in problem.levels[buffer:]})
        super().__init__(Mapspace(replace(problem, levels=levels, constraints=demands)), with_dram=True, apart=True)
        self.inside = self.least_inside(problem) if inside is None else inside
        self.seconds = least_seconds(problem)

    def least_inside(self, problem: Problem) -> float:
        """Least energy of what is inside the buffer, in pJ, whatever loops are outside; without one exchange of each
        element with the buffer."""
        buffer = _buffer_of(problem)
        outer = problem.levels[1 : buffer + 1]
        read, write = (min(getattr(level, name) for level in outer) for name in ("read_pj", "write_pj"))
        own = replace(problem.levels[buffer], read_pj=read, write_pj=write, capacity=math.inf, seconds={})
        demands = _without(problem.constraints, {own.memory})
        alone = replace(
            problem,
            levels=(own, *problem.levels[buffer + 1 :]),
            constraints=replace(demands, keep=_but(demands.keep, own.memory), bypass=_but(demands.bypass, own.memory)),
            homes={},
            shared=(),
            batch=(),
            stays={},
        )
        points = map_einsum(alone, "energy").points
        if not points:
            raise ValueError(f"nothing inside {own.memory} holds the tiles of {problem.einsum}")
        exchanged = sum(
            count * (write if operand.is_output else read)
            for operand, count in zip(problem.operands, self.elements, strict=True)
        )
        return float(points[0].costs["energy"] - exchanged)

    def start(self) -> Population:
        """The inside as a whole, which asks for each element once."""
        population = super().start()
        rows, columns = len(population), population.columns
        columns["sum", "energy"], columns["latency",] = np.full(rows, self.inside), np.full(rows, self.seconds)
        for operand, elements in enumerate(self.elements):
            columns["open", operand, SETTLED] = np.full(rows, elements)
        return population

    def close(self, depth: int, part: Population, tiles: Tiles, ending: Container[str]) -> None:
        """As in any growth; the outermost memory serves what passes the buffer in each iteration of the shared loops."""
        if depth == 1 and not self.once:
            for operand in tiles.elements:
                asked = part.columns.get(("open", operand, SETTLED))
                if asked is not None and not self.space.soft[operand]:
                    part.columns["open", operand, SETTLED] = np.maximum(asked, tiles.fills[operand])
        super().close(depth, part, tiles, ending)

    def exchanged(self, keep: KeepChoice, metric: Column) -> float:
        """What one exchange of each element with the inside costs, where the buffer keeps some tensors."""
        cost, buffer = 0.0, _buffer_of(self.problem)
        for operand, elements in zip(self.problem.operands, self.elements, strict=True):
            read, write = self.price(buffer if self.problem.tensors[operand.name] in keep.names else 1, metric)
            cost += elements * (write if operand.is_output else read)
        return cost


def _buffer_of(problem: Problem) -> int:
    if problem.buffer is None:
        raise ValueError(f"{problem.einsum} has no bounded memory on {problem.unit}")
    return problem.buffer


def _without(demands: Constraints, slots: Container[str]) -> Constraints:
    """Demands but for those on loops of some memories, which here stand for more loops than their own."""
    return replace(
        demands,
        factors={key: bounds for key, bounds in demands.factors.items() if key[0] not in slots},
        ranks={slot: ranks for slot, ranks in demands.ranks.items() if slot not in slots},
        order={slot: order for slot, order in demands.order.items() if slot not in slots},
    )


def _but(kept: Mapping[str, frozenset[str]], memory: str) -> dict[str, frozenset[str]]:
    return {name: tensors for name, tensors in kept.items() if name != memory}


def beyond_buffer(
    problem: Problem, inside: float, objective: str, limit: Mapping[str, float], rest: Rest
) -> tuple[dict[Column, list[Array]], dict[Column, list[Array]]]:
    """What the buffer's tiles cost further out, with what others come to, and the latter alone: the least of each column
    by number of the set kept and by code of extents; infinite where the limit rules tiles out."""
    growth = OuterGrowth(problem, inside=inside, once=True)
    known = rest.tables(growth.space)
    run = Run(growth, bounds_of(growth), objective, (), limit, None, CHUNK_ROWS, rest=rest, beside=known, by_tile=True)
    count = len(run.keep_choices)
    both, beside = (
        {column: np.full((count, len(run.space.grid)), np.inf) for column in rest.columns} for _ in range(2)
    )
    for population in run.finished():
        columns = population.columns
        codes, numbers = np.divmod(columns["tile",], count)
        for column in rest.columns:
            name = column if column == ("latency",) else ("sum", *column)
            own = columns.get(name, np.zeros(len(population)))
            if column != ("latency",):
                start = inside if column == ("energy",) else 0.0
                own = own - np.array([start + growth.exchanged(keep, column) for keep in run.keep_choices])[numbers]
            np.minimum.at(both[column], (numbers, codes), own + columns["rest", column])
            np.minimum.at(beside[column], (numbers, codes), columns["rest", column])
    return {name: list(table) for name, table in both.items()}, {name: list(table) for name, table in beside.items()}


def bounds_of(growth: Growth, beyond: Mapping[Column, Sequence[Array]] | None = None) -> dict[Column, Bounds]:
    """The bounds of an Einsum that may be fused, by column."""
    keys = growth.problem.levels[1].seconds
    metrics: list[Column] = [("energy",), *(("seconds", 1, key) for key in keys), ("dram",)]
    return {metric: Bounds(growth, metric, (beyond or {}).get(metric)) for metric in metrics}
