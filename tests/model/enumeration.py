"""Access counts by running the loop nest step by step: slow, and written without the closed form's reasoning."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from dse.model.nest import Level, Operand, Terms

Box = tuple[tuple[int, int], ...]
"""A tile: (first, last) along each tensor rank, holes of strided indices included."""


def enumerate_accesses(levels: Sequence[Level], operand: Operand) -> dict[str, dict[str, int]]:
    """Reads, fills, updates, capacity and distinct elements per instance of every level that keeps the operand."""
    loops = [
        (depth, kind, loop.rank, int(loop.bound))
        for depth, level in enumerate(levels)
        for kind, group in (("time", level.temporal), ("space", level.spatial))
        for loop in group
    ]
    strides = []
    for position, (_, _, rank, _) in enumerate(loops):
        stride = 1
        for _, _, other, bound in loops[position + 1 :]:
            stride *= bound if other == rank else 1
        strides.append(stride)

    def tile(depth: int, values: Mapping[int, int]) -> Box:
        """Tile of an instance of a level (len(levels): compute) where the outer loops have these values."""
        low: dict[str, int] = {}
        high: dict[str, int] = {}
        for position, (at, _, rank, bound) in enumerate(loops):
            value = values.get(position, 0) if at < depth else 0
            low[rank] = low.get(rank, 0) + strides[position] * value
            high[rank] = high.get(rank, 0) + strides[position] * (value if at < depth else bound - 1)

        def end(index: Terms, *, upper: bool) -> int:
            ends = ((high if (scale > 0) == upper else low).get(rank, 0) * scale for rank, scale in index)
            return sum(ends)

        return tuple((end(index, upper=False), end(index, upper=True)) for index in operand.indices)

    def positions(kind: str, depths: range) -> list[int]:
        return [number for number, (depth, what, _, _) in enumerate(loops) if what == kind and depth in depths]

    def walk(numbers: Sequence[int]) -> list[dict[int, int]]:
        return [
            dict(zip(numbers, values, strict=True))
            for values in itertools.product(*(range(loops[n][3]) for n in numbers))
        ]

    def received(child: int, place: Mapping[int, int]) -> int:
        """Elements that come to one child instance over time."""
        total, before = 0, set()
        for time in walk(positions("time", range(child))):
            now = elements(tile(child, {**place, **time}))
            total += len(now) if child == len(levels) else len(now - before)
            before = now
        return total

    def requested(depth: int, child: int, place: Mapping[int, int]) -> int:
        """Elements that an instance at `depth` is asked for: children with the same tile ask once."""
        if depth == child:
            return received(child, place)
        answers: dict[Box, int] = {}
        for below in walk(positions("space", range(depth, depth + 1))):
            here = {**place, **below}
            answers.setdefault(tile(depth + 1, here), requested(depth + 1, child, here))
        return sum(answers.values())

    kept = [depth for depth, keeps in enumerate(operand.keeps) if keeps]
    found = {}
    for number, depth in enumerate(kept):
        child = kept[number + 1] if number + 1 < len(kept) else len(levels)
        first = dict.fromkeys(positions("space", range(depth)), 0)
        taken = requested(depth, child, first)
        arrived = received(depth, first) if number else 0
        ever = set().union(
            *(elements(tile(depth, {**first, **time})) for time in walk(positions("time", range(depth))))
        )
        if operand.is_output:
            row = {"reads": taken - len(ever), "updates": taken, "fills": arrived - len(ever) if number else 0}
        else:
            row = {"reads": taken, "updates": 0, "fills": arrived}
        row["capacity"] = len(elements(tile(depth, first)))
        found[levels[depth].memory] = row
    return found


def elements(box: Box) -> set[tuple[int, ...]]:
    """Every element of a tile."""
    return set(itertools.product(*(range(low, high + 1) for low, high in box)))
