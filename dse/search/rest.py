"""What the other Einsums of a cascade come to at least, by what one of them shares with them and leaves in the buffer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dse.search.mapspace import Mapspace
from dse.search.population import Array, Column

Loops = tuple[tuple[str, int], ...]
"""Shared loops, outermost first: (rank variable, factor)."""
Stays = tuple[tuple[str, str], ...]
"""What stays in the buffer, and how."""
Front = tuple[Array, Array]
"""Elements in the buffer, ascending, and the least amount that comes with no more of them."""


def front_of(held: Array, amount: Array) -> Front:
    """The undominated of some (elements held, amount)."""
    order = np.lexsort([amount, held])
    held, amount = held[order], amount[order]
    less = np.ones(len(held), dtype=bool)
    less[1:] = amount[1:] < np.minimum.accumulate(amount)[:-1]
    return held[less], amount[less]


def added(one: Front, other: Front, fresh: float = 0.0) -> Front:
    """Every point of one front with every point of another, and `fresh` elements more."""
    held = (one[0][:, None] + other[0][None] + fresh).ravel()
    return held, (one[1][:, None] + other[1][None]).ravel()


def joined(fronts: Sequence[Front]) -> Front:
    """One front of several."""
    return front_of(np.concatenate([held for held, _ in fronts]), np.concatenate([amount for _, amount in fronts]))


class Rest:
    """The rest for one Einsum: `blocks` gives, by shared loops and what stays and by column, the elements that others
    hold and the least that they come to."""

    def __init__(
        self, space: Mapspace, blocks: Mapping[tuple[Loops, Stays], Mapping[Column, Front]], capacity: float
    ) -> None:
        self.space = space
        self.blocks = blocks
        self.capacity = capacity
        self.columns = tuple(dict.fromkeys(column for block in blocks.values() for column in block))
        self._tables: dict[tuple[Column, int], Array] = {}

    def least(self, column: Column) -> float:
        """The least whatever the Einsum does; 0 of what nothing is known of."""
        found = [block[column][1].min(initial=math.inf) for block in self.blocks.values() if column in block]
        return float(min(found, default=0.0))

    def of(self, column: Column, loops: Loops, stays: Stays, held: Array) -> Array:
        """The least under shared loops, where the Einsum's own tiles take `held` elements; infinite where nothing fits."""
        block = self.blocks.get((loops, stays))
        if block is None:
            return np.full(len(held), np.inf)
        taken, amount = block[column]
        last = np.searchsorted(taken, self.capacity - held, side="right")
        return np.concatenate([[np.inf], amount])[last]

    def table(self, column: Column, number: int) -> Array:
        """The least by code of the extents that the buffer's tiles cover, whatever the shared loops, where the buffer
        keeps the set of that number."""
        if column not in self.columns:
            return np.zeros(len(self.space.grid))
        if (column, number) not in self._tables:
            self._tables[column, number] = self._table(column, number)
        return self._tables[column, number]

    def _table(self, column: Column, number: int) -> Array:
        problem = self.space.problem
        assert problem.buffer is not None
        keep = problem.keep_choices[problem.buffer][number]
        held = self.space.held(keep.tiled, self.space.grid)
        found = np.full(len(held), np.inf)
        for (loops, stays), block in self.blocks.items():
            if stays == keep.staying and column in block:
                inside = self._inside(loops)
                found[inside] = np.minimum(found[inside], self.of(column, loops, stays, held[inside]))
        return found

    def _inside(self, loops: Loops) -> NDArray[np.int64]:
        """Codes of extents that shared loops can stand around."""
        factors = dict(loops)
        fits = np.ones(len(self.space.grid), dtype=bool)
        for rank, (name, size) in enumerate(zip(self.space.problem.ranks, self.space.problem.sizes, strict=True)):
            fits &= (size // factors.get(name, 1)) % self.space.grid[:, rank] == 0
        return np.flatnonzero(fits)
