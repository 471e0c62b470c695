"""What the other Einsums of a cascade come to at least, by what one of them shares with them and leaves in the buffer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dse.search.mapspace import Mapspace
from dse.search.population import Array, Column
from dse.search.problem import KeepChoice

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


@dataclass(frozen=True)
class Rest:
    """The rest for one Einsum, whose buffer holds `capacity` elements.

    `blocks` gives, by shared loops and what stays and by column, the elements that others hold and the least that they
    come to.
    """

    capacity: float
    blocks: Mapping[tuple[Loops, Stays], Mapping[Column, Front]]

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Of what the least is known."""
        return tuple(dict.fromkeys(column for block in self.blocks.values() for column in block))

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
        return np.asarray(np.concatenate([[np.inf], amount])[last])

    def tables(self, space: Mapspace) -> dict[Column, list[Array]]:
        """The least whatever the shared loops, by number of the set that the buffer keeps and by code of the extents that
        its tiles cover."""
        depth = space.problem.buffer
        choices = [] if depth is None else space.problem.keep_choices[depth]
        return {column: [self._table(space, keep, column) for keep in choices] for column in self.columns}

    def _table(self, space: Mapspace, keep: KeepChoice, column: Column) -> Array:
        held = space.held(keep.tiled, space.grid)
        found = np.full(len(held), np.inf)
        for (loops, stays), block in self.blocks.items():
            if stays == keep.staying and column in block:
                factors = dict(loops)
                inside = np.array(
                    [
                        size // factors.get(name, 1)
                        for name, size in zip(space.problem.ranks, space.problem.sizes, strict=True)
                    ]
                )
                own = np.flatnonzero((inside % space.grid == 0).all(axis=1))
                found[own] = np.minimum(found[own], self.of(column, loops, stays, held[own]))
        return found
