"""The least energy or DRAM traffic that a partial nest can come to, whatever stands further out.

Of the loops to come at the next level and further out, one stands innermost. Operands that it moves get no reuse from
any of them, the others at most all the reuse there is; nothing is moved less often than once. What the next level's own
tiles then cost further out has a least value for every set of extents, which a table holds; a nest can end at no less
than the least of all entries that its extents divide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.search.growth import Growth, waiting_streams
from dse.search.population import Array, Column, Population
from dse.search.problem import KeepChoice


class Bounds:
    """Lower bounds for one mapspace and one metric: ("energy",), ("dram",), or (seconds, 0, key) of the outermost memory.

    `beyond` is what the buffer's tiles cost further out at least, by number of the set kept and by code of extents, where
    that is known better, with what others come to.
    """

    def __init__(self, growth: Growth, metric: Column, beyond: Sequence[Array] | None = None) -> None:
        self.beyond = beyond
        self.growth = growth
        self.space = growth.space
        self.problem = growth.problem
        self.metric = metric
        self._tables: dict[int, list[Array]] = {}
        self._smallest: dict[int, Array] = {}

    def least(self, population: Population, next_level: int, *, spread: bool) -> Array:
        """Least total for each row, where the loops of `next_level` (-1: none) are the next to come; `spread` says that
        the fan-out below that level stands already."""
        if next_level < 0:
            settled = self._settled(population)
            return sum((self._pending(population, operand) for operand in range(len(self.problem.operands))), settled)
        served = self.serving(population, next_level, spread=spread)
        if not self.space.tabled:
            return np.asarray(served.min(axis=0))
        self.table(next_level, smallest=True)
        return np.asarray((served + self._smallest[next_level][:, self.space.codes(population.extents)]).min(axis=0))

    @cached_property
    def sets(self) -> list[list[int]]:
        """By level and number, which of the different sets of tensors is kept: choices of one set differ in what ends."""
        found = []
        for choices in self.problem.keep_choices:
            order: dict[frozenset[str], int] = {}
            found.append([order.setdefault(frozenset(keep.names), len(order)) for keep in choices])
        return found

    def serving(self, population: Population, level: int, *, spread: bool) -> Array:
        """Least of what is settled, pending, and to be exchanged with `level`, for each of its `sets` (sets, n).

        What that level's own tiles cost further out is not in it.
        """
        sets = self.sets[level]
        numbers = [sets.index(each) for each in range(max(sets) + 1)]
        costs, moving = self._costs(population, level, numbers, spread=spread), self._moving(population)
        shape = (len(numbers), len(population))
        whole: Array = sum((moved + fixed for moved, fixed, _ in costs), self._settled(population))
        if not moving:
            return np.broadcast_to(whole, shape)
        growth = self.space.rounds(population.extents)
        spared = {}
        for operand in moving:
            moved, fixed, least = costs[operand]
            spared[operand] = least
            if not self.space.soft[operand]:
                reuse = _product(
                    growth, [rank for rank in range(growth.shape[1]) if rank not in self.space.hard[operand]]
                )
                spared[operand] = np.maximum(least, moved / reuse + fixed)
        moves = [moved + fixed for moved, fixed, _ in costs]
        found = self._by_innermost(
            growth > 1, moves, lambda operand, rank: spared.get(operand), self._settled(population), whole
        )
        return np.broadcast_to(found, shape)

    def _by_innermost(
        self, loops: Array, moves: Sequence[Any], spared: Callable[[int, int], Any], settled: Array, none: Array
    ) -> Array:
        """The least over which of the `loops` (n, ranks) stands innermost, `none` where there is none; amounts are (n,)
        or (sets, n).

        A loop moves the operands that its rank alone indexes; of the others, `spared` by operand and rank gives what
        they cost where the loop leaves them in place, or None where they are moved all the same.
        """
        best: Any = np.where(loops.any(axis=1), np.inf, none)
        for rank in range(loops.shape[1]):
            if not loops[:, rank].any():
                continue
            total: Any = settled
            for operand, cost in enumerate(moves):
                less = None if rank in self.space.hard[operand] else spared(operand, rank)
                total = total + (cost if less is None else less)
            best = np.minimum(best, np.where(loops[:, rank], total, np.inf))
        return np.asarray(best)

    def growing(
        self,
        population: Population,
        rows: NDArray[np.int64],
        extents: NDArray[np.int64],
        level: int,
        number: int,
        served: Array,
    ) -> Array:
        """`serving` for rows of a population that the loops of `level` grow to `extents`, where without loops all of it
        comes to `served`.

        Now the loops are known, if not their order. Tiles that slide are loaded no less often than their union has
        elements; and where the innermost loop moves one of their indices past the tile, no other index slides.
        """
        costs, moving = self._costs(population, level, [number], spread=True), self._moving(population)
        bounds = extents / population.extents[rows]
        loops = bounds > 1
        shares = [self._shares(population, rows, operand, bounds) for operand in range(len(costs))]
        taken = [tuple(np.broadcast_to(part, (1, len(population)))[0, rows] for part in cost) for cost in costs]
        settles = [loops[:, sorted(hard)].any(axis=1) for hard in self.space.hard]

        @cache
        def left(operand: int, rank: int) -> Any:
            moved, fixed, least = taken[operand]
            return np.where(settles[operand], np.maximum(least, moved * shares[operand](rank) + fixed), least)

        def spared(operand: int, rank: int) -> Any:
            if operand not in moving:
                return None
            return left(operand, rank if self.space.soft[operand] else 0)

        moves: list[Any] = [moved + fixed for moved, fixed, _ in taken]
        return self._by_innermost(loops, moves, spared, self._settled(population)[rows], served[rows])

    def _shares(
        self, population: Population, rows: NDArray[np.int64], operand: int, bounds: Array
    ) -> Callable[[int], Array]:
        """By innermost loop, the least share of an operand's moves that a level's loops leave."""
        hard, soft = self.space.hard[operand], self.space.soft[operand]
        free = [rank for rank in range(bounds.shape[1]) if rank not in hard | soft]
        reuse = 1 / _product(bounds, free)
        if not soft:
            return lambda rank: reuse
        streams = [stream for stream in waiting_streams(population) if stream[0] == operand]
        if len(streams) != 1:
            return lambda rank: np.zeros(len(rows))
        columns, stream = population.columns, streams[0]
        lengths = [columns["slide", stream, "length", at] for at in range(len(self.space.indices[operand]))]
        fresh = (columns["slide", stream, "elements"] == np.prod(lengths, axis=0))[rows]
        strides = population.extents[rows]
        unions, past = [], {}
        for length, index in zip(lengths, self.space.indices[operand], strict=True):
            if len(index) < 2:
                unions.append(np.ones(len(rows)))
                continue
            whole: Any = length[rows].astype(np.float64)
            union = whole
            for rank, scale in index:
                step = abs(scale) * strides[:, rank]
                union = np.maximum(union, whole + (bounds[:, rank] - 1) * np.minimum(whole, step))
                past[rank] = ((bounds[:, rank] - 1) * step >= whole) & all(by > 0 for _, by in index)
            unions.append(union / whole / bounds[:, [rank for rank, _ in index]].prod(axis=1))
        every = reuse * np.prod(unions, axis=0)

        def share(rank: int) -> Array:
            if rank not in soft:
                return np.where(fresh, every, 0.0)
            own = next(at for at, index in enumerate(self.space.indices[operand]) if rank in dict(index))
            return np.where(fresh, np.where(past[rank], unions[own], every), 0.0)

        return share

    def _moving(self, population: Population) -> set[int]:
        return {operand for operand, _ in waiting_streams(population)}

    def _costs(
        self, population: Population, level: int, numbers: Sequence[int], *, spread: bool
    ) -> list[tuple[Any, Any, Any]]:
        """By operand, what loops to come may make less of its cost, what they do not, and what the two come to at least,
        for the sets kept that have these numbers (numbers, n), or for all the same (n,)."""
        here = bool(self.problem.levels[level].axes) and not spread
        outside = any(outer.axes for outer in self.problem.levels[:level])

        def cost(operand: int, *, kept: bool) -> tuple[Any, Any, Any]:
            moved, fixed, least = self._exchange(population, operand, level, kept=kept, alone=not (here or outside))
            if here or (outside and not kept):
                moved, fixed = least, 0.0
            return self._pending(population, operand) + moved, fixed, least

        costs = []
        for operand, spec in enumerate(self.problem.operands):
            tensor = self.problem.tensors[spec.name]
            kept = [tensor in self.problem.keep_choices[level][number].names for number in numbers]
            if len(set(kept)) == 1:
                costs.append(cost(operand, kept=kept[0]))
                continue
            parts = zip(cost(operand, kept=True), cost(operand, kept=False), strict=True)
            costs.append(tuple(np.where(np.array(kept)[:, None], *both) for both in parts))
        return costs

    def table(self, level: int, *, smallest: bool) -> list[Array]:
        """For each set of tensors kept, by code of extents: what a level's tiles cost further out at least.

        `smallest` gives the least over all extents that the code's divide, infinite where none fits the level.
        """
        if level not in self._tables:
            if self.beyond is not None and level == self.problem.buffer:
                exact = list(self.beyond)
            else:
                exact = [self._outside(level, keep) for keep in self.problem.keep_choices[level]]
            self._tables[level] = exact
            self._tables[~level] = [self._least_of_multiples(values) for values in exact]
            sets = np.array(self.sets[level])
            by_number = np.array(self._tables[~level])
            self._smallest[level] = np.stack([by_number[sets == each].min(axis=0) for each in range(max(sets) + 1)])
        return self._tables[~level if smallest else level]

    def _outside(self, level: int, keep: KeepChoice) -> Array:
        """What fresh tiles of a level cost further out, for every combination of extents."""
        fits = self.space.held(keep.tiled, self.space.grid) <= self.problem.levels[level].capacity
        for own, left, extents in zip(self.space.covers, self.space.left[level], self.space.grid.T, strict=True):
            fits &= left[np.searchsorted(own, extents)]
        if level == 0:
            return np.where((self.space.grid >= self.growth.sizes).all(axis=1), 0.0, np.inf)
        found = np.full(len(self.space.grid), np.inf)
        rows = self.space.grid[fits]
        zero = np.zeros(len(rows))
        columns: dict[Column, Array] = {("sum", *self.metric): zero}
        fresh = Population(rows, columns, zero.astype(np.int64), zero.astype(np.int64))
        repeats = self.growth.points / rows.prod(axis=1, dtype=np.float64)
        spread = any(outer.axes for outer in self.problem.levels[:level])
        for operand, spec in enumerate(self.problem.operands):
            tensor = self.problem.tensors[spec.name]
            if tensor not in keep.names or tensor in keep.ending:
                continue
            fills = self.space.tile(operand, rows) * self.growth.repeats(operand, rows, repeats)
            _, write = self.growth.price(level, self.metric)
            columns["open", operand, 0] = fills
            columns["pending", (operand, 0), *self.metric] = fills * (0.0 if spec.is_output and spread else write)
            if spec.is_output and not spread:
                columns["sum", *self.metric] = columns["sum", *self.metric] - write * self.growth.elements[operand]
        found[fits] = self.least(fresh, level - 1, spread=False)
        return found

    def _least_of_multiples(self, values: Array) -> Array:
        shape = [len(own) for own in self.space.covers]
        table = values.reshape(shape, order="F")
        for rank, own in enumerate(self.space.covers):
            rows = np.moveaxis(table, rank, 0).copy()
            for place, one in enumerate(own.tolist()):
                rows[place] = rows[[other for other, two in enumerate(own.tolist()) if two % one == 0]].min(axis=0)
            table = np.moveaxis(rows, 0, rank)
        return table.reshape(-1, order="F")

    def _settled(self, population: Population) -> Array:
        return population.columns.get(("sum", *self.metric), np.zeros(len(population)))

    def _pending(self, population: Population, operand: int) -> Any:
        return sum(
            (
                column
                for name, column in population.columns.items()
                if name[0] == "pending" and name[1][0] == operand and name[2:] == self.metric
            ),
            np.zeros(len(population)),
        )

    def _exchange(
        self, population: Population, operand: int, level: int, *, kept: bool, alone: bool
    ) -> tuple[Any, Any, Any]:
        """What an operand's child costs at its parent: what loops to come may make less, what they do not, and what the
        two come to at least.

        The parent is `level`, or some level further out where that one does not keep the operand; what the parent's own
        tile costs is not in it. `alone` says that no fan-out is to come, so that an output's first updates, which read
        nothing, are as many as its elements.
        """
        opened = [column for name, column in population.columns.items() if name[:2] == ("open", operand)]
        if not opened:
            return 0.0, 0.0, 0.0
        spec, size = self.problem.operands[operand], self.growth.elements[operand]
        home = self.problem.homes.get(self.problem.tensors[spec.name], 0)
        choices = []
        for depth in [level] if kept else range(home, level):
            read, write = self.growth.price(depth, self.metric)
            each, again = (write, read if alone else 0.0) if spec.is_output else (read, 0.0)
            choices.append((each + again, -again * size, each * size))
        each, fixed, least = (min(choice[part] for choice in choices) for part in range(3))
        return each * opened[0], fixed, least


def _product(columns: Array, chosen: Sequence[int]) -> Any:
    """The product of some columns, row by row."""
    return math.prod((columns[:, place] for place in chosen), start=1.0)
