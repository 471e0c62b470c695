"""Many partial mappings at once, and which of them can still be part of the best one.

A population holds mappings of the levels from some boundary inward: what matters of each is the extents it covers, and
columns of amounts (cost so far, cost that still depends on loops further out). `undominated` keeps those that no other
with the same extents beats in every way that counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Column = tuple[Any, ...]
Array = NDArray[Any]

PRECISION = 2.0**42
"""Amounts are compared to this part of their size: what differs by less differs by rounding alone."""


@dataclass
class Population:
    """Partial mappings of one kind (equal column names): extents (n, ranks), columns of shape (n,), and where each came
    from: its row in the stage before, and the choice made since."""

    extents: NDArray[np.int64]
    columns: dict[Column, Array]
    origin: NDArray[np.int64]
    choice: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.extents)

    def take(self, rows: Array) -> Population:
        """Some of the rows."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return Population(self.extents[rows], columns, self.origin[rows], self.choice[rows])


def join(parts: Sequence[Population]) -> Population:
    """Populations of one kind as one, in order."""
    if len(parts) == 1:
        return parts[0]
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    return Population(
        np.concatenate([part.extents for part in parts]),
        columns,
        np.concatenate([part.origin for part in parts]),
        np.concatenate([part.choice for part in parts]),
    )


def rounded(values: Array) -> Array:
    """Values to 42 bits, so that sums that differ by the order of their terms alone are equal."""
    mantissa, exponent = np.frexp(np.asarray(values, dtype=np.float64))
    return np.ldexp(np.round(mantissa * PRECISION), exponent)


@dataclass(frozen=True)
class Ranking:
    """What makes one partial mapping at least as good as another, whatever is done further out.

    It must be no worse in each of `every`. Then `then` decides in turn: a single column is an amount that further
    levels only add to, so that less of it decides; a list of columns must be no worse, each, and does not decide.
    """

    every: Sequence[Array]
    then: Sequence[Array | Sequence[Array]]


def undominated(keys: Sequence[Array], ranking: Ranking, ties: Sequence[Array]) -> NDArray[np.int64]:
    """Rows that no other row of equal keys is at least as good as, sorted; of equally good ones the first by `ties`."""
    every, then = ranking.every, ranking.then
    rows = np.arange(len(keys[0]))
    if not len(rows):
        return rows
    if len(rows) > MANY_ROWS and all((key == key[0]).all() for key in keys[1:]) and not isinstance(then[0], list):
        rows = _not_plainly_beaten(keys[0], every, np.asarray(then[0]))
        every, then = _rows_of(rows, every, then)
    every = [rounded(column) for column in every]
    then = [
        [rounded(column) for column in item] if isinstance(item, list) else rounded(np.asarray(item)) for item in then
    ]
    return rows[_sorted_front([key[rows] for key in keys], every, then, [tie[rows] for tie in ties])]


MANY_ROWS = 1 << 12
"""From here on a first look for rows that are plainly beaten pays."""


def _not_plainly_beaten(key: Array, every: Sequence[Array], first: Array) -> NDArray[np.int64]:
    """Rows that the one of their key with the least sum of amounts does not beat by more than rounding."""
    total = np.asarray(sum(every) + first, dtype=np.float64)
    least = np.full(int(key.max()) + 1, np.inf)
    np.minimum.at(least, key, total)
    leaders = np.zeros(len(least), dtype=np.int64)
    places = np.flatnonzero(total <= least[key])
    leaders[key[places]] = places
    leader = leaders[key]
    beaten = first[leader] < first - np.abs(first) * (4 / PRECISION)
    for column in every:
        beaten &= column[leader] <= column
    return np.flatnonzero(~beaten)


def _rows_of(rows: NDArray[np.int64], every: Sequence[Array], then: Sequence[Any]) -> tuple[list[Array], list[Any]]:
    return (
        [column[rows] for column in every],
        [[column[rows] for column in item] if isinstance(item, list) else item[rows] for item in then],
    )


def _sorted_front(
    keys: Sequence[Array], every: Sequence[Array], then: Sequence[Any], ties: Sequence[Array]
) -> NDArray[np.int64]:
    """`undominated`, by sorting: the first row of each key is kept, and what it beats is dropped, until none is left."""
    sort: list[Any] = [sum(item) if isinstance(item, list) else item for item in then if len(item)]
    total: Any = sum(every) if every else np.zeros(len(keys[0]))
    order = np.lexsort([*reversed(ties), *reversed(sort), total, *reversed(keys)])
    group = np.zeros(len(order), dtype=bool)
    for key in keys:
        ordered = key[order]
        group[1:] |= ordered[1:] != ordered[:-1]
    group_of = np.cumsum(group)
    every, then = _rows_of(order, every, then)
    keep = np.zeros(len(order), dtype=bool)
    waiting = np.arange(len(order))
    while len(waiting):
        groups = group_of[waiting]
        first = np.ones(len(waiting), dtype=bool)
        first[1:] = groups[1:] != groups[:-1]
        leaders = waiting[first]
        keep[leaders] = True
        rest = ~first
        waiting, leader = waiting[rest], leaders[np.cumsum(first) - 1][rest]
        waiting = waiting[~_beats(leader, waiting, every, then)]
    return order[keep]


def _beats(leader: Array, rows: Array, every: Sequence[Array], then: Sequence[Any]) -> Array:
    holds = np.ones(len(rows), dtype=bool)
    for column in every:
        holds &= column[leader] <= column[rows]
    open_, beaten = holds.copy(), np.zeros(len(rows), dtype=bool)
    for item in then:
        if isinstance(item, list):
            for column in item:
                open_ &= column[leader] <= column[rows]
            continue
        mine, its = item[leader], item[rows]
        beaten |= open_ & (mine < its)
        open_ &= mine == its
    return beaten | open_
