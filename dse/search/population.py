"""Many partial mappings at once, and which of them can still be part of the best one.

A population holds mappings of the levels from some boundary inward: what matters of each is the extents it covers, and
columns of amounts (cost so far, cost that still depends on loops further out). `undominated` keeps those that no other
with the same extents beats in every way that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

    It must be no worse in each of `every`, nor in each of `open`, amounts of which loops to come may leave any part.
    Then `then` decides in turn: a single column is an amount that further levels only add to, so that less of it
    decides; a list of columns must be no worse, each, and does not decide.

    `worth` says how much an open amount can come to at most, in each of `every` and, last, in the first of `then`. What
    is worse in open amounts, but better by more than those can come to, is better all the same.
    """

    every: Sequence[Array]
    open: Sequence[Array]
    then: Sequence[Array | Sequence[Array]]
    worth: Sequence[Sequence[float]] = ()

    def map(self, change: Callable[[Array], Array]) -> Ranking:
        """The same of changed columns."""
        return Ranking(
            [change(column) for column in self.every],
            [change(column) for column in self.open],
            [
                [change(column) for column in item] if isinstance(item, list) else change(np.asarray(item))
                for item in self.then
            ],
            self.worth,
        )

    def beats(self, leader: Array, rows: Array) -> NDArray[np.bool_]:
        """Which of `rows` their `leader` is at least as good as."""
        holds, plain = np.ones(len(rows), dtype=bool), np.ones(len(rows), dtype=bool)
        gaps = [np.maximum(column[leader] - column[rows], 0) for column in self.open]
        for gap in gaps:
            plain &= gap == 0
        for number, column in enumerate(self.every):
            holds &= column[leader] + self.lost(number, gaps) <= column[rows]
        strictly = np.zeros(len(rows), dtype=bool)
        if self.worth and not isinstance(self.then[0], list):
            first = np.asarray(self.then[0])
            margin = np.abs(first[rows]) * (4 / PRECISION)
            strictly = first[leader] + self.lost(len(self.every), gaps) < first[rows] - margin
        still, beaten = holds & plain, np.zeros(len(rows), dtype=bool)
        for item in self.then:
            if isinstance(item, list):
                for column in item:
                    still &= column[leader] <= column[rows]
                continue
            mine, its = np.asarray(item)[leader], np.asarray(item)[rows]
            beaten |= still & (mine < its)
            still &= mine == its
        return (holds & strictly) | beaten | still

    def lost(self, number: int, gaps: Sequence[Array]) -> Any:
        """What gaps in open amounts can come to at most."""
        if not self.worth:
            return 0.0
        return sum((gap * most for gap, most in zip(gaps, self.worth[number], strict=True) if most), 0.0)

    def total(self) -> Array:
        """All amounts together at their most: what has less may beat more."""
        weights = self.worth[-1] if self.worth else [1.0] * len(self.open)
        first = self.then[0] if self.then and not isinstance(self.then[0], list) else 0.0
        amounts: Any = sum((column * most for column, most in zip(self.open, weights, strict=True)), np.asarray(first))
        return np.asarray(amounts, dtype=np.float64)


def undominated(keys: Sequence[Array], ranking: Ranking, ties: Sequence[Array]) -> NDArray[np.int64]:
    """Rows that no other row of equal keys is at least as good as, sorted; of equally good ones the first by `ties`."""
    rows = np.arange(len(keys[0]))
    if not len(rows):
        return rows
    ranking = ranking.map(rounded)
    if len(rows) > MANY_ROWS:
        rows = _not_beaten_by_best(keys, ranking)
        ranking = ranking.map(lambda column: column[rows])
    return rows[_sorted_front([key[rows] for key in keys], ranking, [tie[rows] for tie in ties])]


MANY_ROWS = 1 << 12
"""From here on a first look for rows that are plainly beaten pays."""


def _not_beaten_by_best(keys: Sequence[Array], ranking: Ranking) -> NDArray[np.int64]:
    """Rows that the one of their keys with the least of all amounts together does not beat."""
    group = _groups(keys)
    total = ranking.total()
    least = np.full(int(group.max()) + 1, np.inf)
    np.minimum.at(least, group, total)
    leaders = np.full(len(least), len(total), dtype=np.int64)
    places = np.flatnonzero(total <= least[group])
    np.minimum.at(leaders, group[places], places)
    leader = leaders[group]
    rows = np.arange(len(group))
    return np.flatnonzero(~ranking.beats(leader, rows) | (leader == rows))


def _groups(keys: Sequence[Array]) -> NDArray[np.int64]:
    """A number for each different set of keys, the same for equal ones."""
    group: NDArray[np.int64] = np.zeros(len(keys[0]), dtype=np.int64)
    for key in keys:
        if (key == key[0]).all():
            continue
        values, number = np.unique(key, return_inverse=True)
        group = group * len(values) + number
        if len(values) > 1:
            group = np.unique(group, return_inverse=True)[1]
    return group


def _sorted_front(keys: Sequence[Array], ranking: Ranking, ties: Sequence[Array]) -> NDArray[np.int64]:
    """`undominated`, by sorting: the first row of each key is kept, and what it beats is dropped, until none is left."""
    sort: list[Any] = [sum(item) if isinstance(item, list) else item for item in ranking.then if len(item)]
    amounts: Any = [sum(columns) for columns in (ranking.every, ranking.open) if columns]
    order = np.lexsort([*reversed(ties), *reversed(sort), *amounts, ranking.total(), *reversed(keys)])
    group = np.zeros(len(order), dtype=bool)
    for key in keys:
        ordered = key[order]
        group[1:] |= ordered[1:] != ordered[:-1]
    group_of = np.cumsum(group)
    ranking = ranking.map(lambda column: column[order])
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
        waiting = waiting[~ranking.beats(leader, waiting)]
    return order[keep]
