"""A loop nest whose loops may cover more of a rank than there is -> access counts: the last tile along it is smaller.

Along each rank, a tile that lies past the end is not worked on, and one that crosses it is worked on up to there. A
child takes its tile anew whenever a loop that moves it has advanced, or one outside such a loop, as in a nest whose
tiles are all whole; only iterations that are there count. Then every count is a product over ranks, each of them one
walk down the rank's loops: whole tiles, and what is left of the last. Checked against running the nest
(tests/model/test_tails.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dse.model.nest import (
    AccessCounts,
    Count,
    Level,
    Loop,
    Operand,
    exact_product,
    exact_size,
    fresh_by_loop,
    hull,
    is_plain,
    receivers,
    suffix_extents,
)

Sizes = Mapping[str, Count]
"""The length of each rank that its loops may cover more of."""


@dataclass(frozen=True)
class Place:
    """A loop in a nest: its level, whether it is spatial, and its number from the outermost on."""

    depth: int
    spatial: bool
    number: int
    loop: Loop


def covered(size: Count, loops: Sequence[tuple[Count, Any]]) -> Count:
    """Iterations of a rank's loops that are there, where it has `size` elements.

    `loops` are all of the rank's, outermost first, as (bound, whether its iterations count); one that does not counts as
    its first iteration alone.
    """
    inside: list[Count] = [1]
    whole: list[Count] = [1]
    for bound, counts in reversed(loops):
        inside.append(exact_product(inside[-1], bound))
        whole.append(exact_product(whole[-1], _where(counts, bound, 1)))
    if not loops:
        return 1
    total: Count = 0
    left: Any = size
    for number, (_, counts) in enumerate(loops, 1):
        length, each = inside[-1 - number], whole[-1 - number]
        full = left // length
        rest = left - full * length
        some = np.minimum(full, 1) if isinstance(full, np.ndarray) else min(full, 1)
        total = total + exact_product(_where(counts, full, some), each)
        left = _where(counts, rest, rest * (1 - some))
    return total


def _where(condition: Any, yes: Any, no: Any) -> Any:
    if isinstance(condition, np.ndarray):
        return np.where(condition, yes, no)
    return yes if condition else no


def within(lengths: Mapping[str, Count], sizes: Sizes) -> dict[str, Count]:
    """Lengths that loops cover of each rank, as far as it goes."""
    return {rank: np.minimum(length, sizes[rank]) if rank in sizes else length for rank, length in lengths.items()}


def count_with_tails(
    levels: Sequence[Level], operands: Sequence[Operand], sizes: Sizes
) -> dict[tuple[str, str], AccessCounts]:
    """As `dse.model.nest.count_accesses`, for ranks of `sizes`; counts per instance are those of the busiest.

    An operand with tiles that overlap has no index over a rank of `sizes`.
    """
    nest = _Nest(tuple(levels), sizes)
    counts = {}
    for operand in operands:
        kept = [depth for depth, keeps in enumerate(operand.keeps) if keeps]
        arriving: tuple[Count, Count] = (0, 0)
        for depth, child in zip(kept, [*kept[1:], len(levels)], strict=True):
            taken = tuple(nest.taken(operand, depth, child, everywhere=everywhere) for everywhere in (False, True))
            ever: tuple[Count, ...] = (0, 0)
            if operand.is_output:
                ever = tuple(nest.distinct(operand, depth, everywhere=everywhere) for everywhere in (False, True))
                reads = tuple(all_ - own for all_, own in zip(taken, ever, strict=True))
                back = (0, 0) if depth == kept[0] else tuple(a - own for a, own in zip(arriving, ever, strict=True))
                parts = list(zip(reads, back, taken, strict=True))
            else:
                parts = [(taken[at], arriving[at], 0) for at in (0, 1)]
            tile = exact_size(hull(operand, within(nest.inside[depth], sizes)))
            counts[levels[depth].memory, operand.name] = AccessCounts(
                *parts[0], capacity=tile, distinct=ever[0], instances=nest.instances(depth), totals=parts[1]
            )
            arriving = (
                nest.taken(operand, child, child, everywhere=False),
                nest.taken(operand, child, child, everywhere=True),
            )
    return counts


def steps_with_tails(levels: Sequence[Level], sizes: Sizes) -> Count:
    """Time steps of the nest: those of the busiest PE."""
    return _Nest(tuple(levels), sizes).runs(lambda place: not place.spatial)


def points_with_tails(levels: Sequence[Level], sizes: Sizes) -> Count:
    """Points of the iteration space, each an operation."""
    return _Nest(tuple(levels), sizes).runs(lambda place: True)


@dataclass(frozen=True)
class _Nest:
    levels: tuple[Level, ...]
    sizes: Sizes

    @cached_property
    def places(self) -> list[Place]:
        found: list[Place] = []
        for depth, level in enumerate(self.levels):
            for spatial, loops in ((False, level.temporal), (True, level.spatial)):
                found += [Place(depth, spatial, len(found) + at, loop) for at, loop in enumerate(loops)]
        return found

    @cached_property
    def inside(self) -> list[dict[str, Count]]:
        return suffix_extents(self.levels)

    def runs(self, counts: Callable[[Place], Any], ranks: Callable[[str], bool] = lambda rank: True) -> Count:
        """Iterations that are there of the loops that count, over some ranks."""
        total: Count = 1
        for rank in dict.fromkeys(place.loop.rank for place in self.places):
            if ranks(rank):
                loops = [(place.loop.bound, counts(place)) for place in self.places if place.loop.rank == rank]
                size = self.sizes.get(rank)
                own = covered(exact_size(bound for bound, _ in loops) if size is None else size, loops)
                total = exact_product(total, own)
        return total

    def instances(self, depth: int) -> Count:
        """Instances of a level that are ever busy."""
        return self.runs(lambda place: place.spatial and place.depth < depth)

    def taken(self, operand: Operand, depth: int, child: int, *, everywhere: bool) -> Count:
        """Elements that a level's child takes from it, or sends: by one instance of the level, the busiest, or everywhere.

        Children side by side that take the same tile take it once. With `child` for the level itself, what the child takes.
        """
        relevant = {rank for index in operand.indices for rank, _ in index}
        temporal = [place for place in self.places if not place.spatial and place.depth < child]

        def spread(place: Place) -> bool:
            return everywhere if place.depth < depth else place.loop.rank in relevant

        def moved(place: Place) -> Any:
            found: Any = child == len(self.levels)
            for other in temporal:
                if other.number > place.number and other.loop.rank in relevant:
                    found = found | (other.loop.bound > 1)
            return found

        if is_plain(operand):

            def counts(place: Place) -> Any:
                own = place.loop.rank in relevant
                if place.depth >= child:
                    return own
                if place.spatial:
                    return spread(place)
                return own or moved(place)

            return self.runs(counts)

        def others(counts: Callable[[Place], Any]) -> Count:
            return self.runs(
                lambda place: place.depth < child and (spread(place) if place.spatial else counts(place)),
                lambda rank: rank not in relevant,
            )

        side_by_side: Count = 1
        for at, level in enumerate(self.levels[:child]):
            if at >= depth:
                side_by_side = exact_product(side_by_side, receivers(level, operand, self.inside[at + 1]))
            elif everywhere:
                for loop in level.spatial:
                    if loop.rank in relevant:
                        side_by_side = exact_product(side_by_side, loop.bound)
        if child == len(self.levels):
            own = exact_size(place.loop.bound for place in temporal if place.loop.rank in relevant)
            return exact_product(side_by_side, exact_product(own, others(lambda place: True)))
        tile = hull(operand, self.inside[child])
        total = exact_product(exact_size(tile), others(lambda place: False))
        through: Count = 1  # iterations of the operand's own loops up to here
        before = others(lambda place: False)
        fresh = fresh_by_loop(self.levels, operand, child, self.inside[child], tile)
        for place, elements in zip(temporal, reversed(fresh), strict=True):
            if place.loop.rank in relevant:
                through = exact_product(through, place.loop.bound)
            now = exact_product(through, others(lambda other, last=place.number: other.number <= last))  # type: ignore[misc]
            total = total + exact_product(now - before, elements)
            before = now
        return exact_product(side_by_side, total)

    def distinct(self, operand: Operand, depth: int, *, everywhere: bool) -> Count:
        """Different elements of an output that one instance of a level ever holds, or the sum over all instances."""
        relevant = {rank for index in operand.indices for rank, _ in index}

        def counts(place: Place) -> bool:
            if place.spatial and place.depth < depth:
                return everywhere
            return place.loop.rank in relevant

        return self.runs(counts)
