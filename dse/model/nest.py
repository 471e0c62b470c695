"""One loop nest -> how often each memory is read, filled and updated, exactly and in closed form.

Given: the loops at each level, outermost level first, and where each operand is kept. Returned: access counts per
level and operand. Every bound may be an integer or an integer array; arrays broadcast, one entry a design point.

Source: Parashar et al., "Timeloop", ISPASS 2019, section V; checked row by row against the counts that Timeloop prints
(tests/model/test_timeloop.py) and against enumeration of the nest (tests/model/test_nest_properties.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Count = int | NDArray[Any]
"""A count: an exact integer, an int64 array, or a float64 array where int64 would wrap. Shape: the design points."""

Terms = tuple[tuple[str, Count], ...]
"""An affine index, without its constant: ((rank variable, coefficient), ...)."""

EXACT_LIMIT = 2.0**62
"""Above this largest possible count, arrays are counted in float64 instead of int64 (Python integers have no limit)."""


@dataclass(frozen=True)
class Loop:
    """A loop over `bound` tiles of a rank; several loops over one rank nest, the outer one striding over the inner."""

    rank: str
    bound: Count


@dataclass(frozen=True)
class Level:
    """A memory, the temporal loops that step through its tile (outermost first), and the fan-out below it."""

    memory: str
    temporal: tuple[Loop, ...] = ()
    spatial: tuple[Loop, ...] = ()


@dataclass(frozen=True)
class Operand:
    """A tensor as one Einsum uses it.

    `indices` holds one affine index per tensor rank (constants left out: they move the tile, not its size);
    `keeps` says for each level of the nest whether it stores the tensor's tile.
    """

    name: str
    indices: tuple[Terms, ...]
    is_output: bool
    keeps: tuple[bool, ...]


@dataclass(frozen=True)
class AccessCounts:
    """What one operand does at one level, in elements per instance, and how many instances are busy.

    `capacity` is the tile's size (the hull, holes of a strided index included); `distinct` the number of different
    output elements an instance ever holds (0 for inputs, of which nothing comes back). `totals` are reads, fills and
    updates over all instances, where not all do as much: then the others are of the busiest.
    """

    reads: Count
    fills: Count
    updates: Count
    capacity: Count
    distinct: Count
    instances: Count
    totals: tuple[Count, Count, Count] | None = None

    def everywhere(self, amount: Callable[[Count, Count, Count], Count]) -> Count:
        """Some amount of reads, fills and updates, over all instances."""
        if self.totals is not None:
            return amount(*self.totals)
        return amount(self.reads, self.fills, self.updates) * self.instances


def product(factors: Iterable[Count]) -> Count:
    """The product of counts; 1 for none."""
    return math.prod(factors)


def exact_product(left: Count, right: Count) -> Count:
    """The product of two counts of any size: float64 where int64 would wrap."""
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    if float(np.max(left)) * float(np.max(right)) < EXACT_LIMIT:
        return left * right
    return np.asarray(left, dtype=np.float64) * right


def exact_size(lengths: Iterable[Count]) -> Count:
    """The product of lengths of any size: float64 where int64 would wrap."""
    size: Count = 1
    for length in lengths:
        size = exact_product(size, length)
    return size


def count_accesses(
    levels: Sequence[Level], operands: Sequence[Operand], *, wrap_distinct: bool = False
) -> dict[tuple[str, str], AccessCounts]:
    """Count the accesses of every operand at every level that keeps it, keyed (memory, operand).

    Inputs: a level's reads are what its child takes (one read per multicast), its fills what arrives from its parent.
    Outputs: updates are what the child sends (once after spatial reduction), reads the partial sums among them
    (updates less distinct elements: the first update reads nothing), fills the partial sums fetched back from the
    parent. Compute is the innermost child; it takes and sends an element every cycle, whatever its loops are.

    `wrap_distinct` reproduces a 64-bit overflow of the published model (see `Accounting.wrap_distinct`).
    """
    levels = _in_range(levels, max((_largest_scale(operand) for operand in operands), default=1.0))
    inside = suffix_extents(levels)
    instances: list[Count] = [1]
    for level in levels:
        instances.append(instances[-1] * product(loop.bound for loop in level.spatial))
    counts: dict[tuple[str, str], AccessCounts] = {}
    for operand in operands:
        tiles = [product(hull(operand, lengths)) for lengths in inside]
        distinct: list[Count] = [0] * len(levels)
        if operand.is_output:
            distinct = _distinct_elements(levels, operand, inside, tiles, wrap=wrap_distinct)
        kept = [depth for depth, keeps in enumerate(operand.keeps) if keeps]
        arriving: Count = 0
        for depth, child in zip(kept, [*kept[1:], len(levels)], strict=True):
            sent = _deliveries(levels, operand, child, inside[child], tiles[child])
            taken = sent * product(receivers(levels[at], operand, inside[at + 1]) for at in range(depth, child))
            if operand.is_output:
                reads, updates = taken - distinct[depth], taken
                fills = 0 if depth == kept[0] else arriving - distinct[depth]
            else:
                reads, updates, fills = taken, 0, arriving
            counts[levels[depth].memory, operand.name] = AccessCounts(
                reads, fills, updates, tiles[depth], distinct[depth], instances[depth]
            )
            arriving = sent
    return counts


def temporal_iterations(levels: Sequence[Level]) -> Count:
    """Time steps of the nest: the product of its temporal loops."""
    return product(loop.bound for level in _in_range(levels) for loop in level.temporal)


def busy_units(levels: Sequence[Level]) -> Count:
    """Compute units that work side by side: the product of the nest's spatial loops."""
    return product(loop.bound for level in levels for loop in level.spatial)


def extents(levels: Sequence[Level]) -> dict[str, Count]:
    """Length of each rank that the loops of `levels` cover."""
    return suffix_extents(levels)[0]


def suffix_extents(levels: Sequence[Level]) -> list[dict[str, Count]]:
    """`extents` of the levels from each one inward, and of compute ({}) at the end."""
    lengths: dict[str, Count] = {}
    found = [lengths]
    for level in reversed(levels):
        lengths = dict(lengths)
        for loop in (*level.spatial, *level.temporal):
            lengths[loop.rank] = lengths[loop.rank] * loop.bound if loop.rank in lengths else loop.bound
        found.append(lengths)
    return found[::-1]


def hull(operand: Operand, lengths: Mapping[str, Count]) -> list[Count]:
    """Length of an operand's tile along each of its ranks, where the rank variables cover `lengths`."""
    return [_reach(index, lengths) for index in operand.indices]


def _reach(index: Terms, lengths: Mapping[str, Count]) -> Count:
    if len(index) == 1 and isinstance(index[0][1], int) and index[0][1] == 1:
        return lengths.get(index[0][0], 1)
    length: Count = 1
    for rank, scale in index:
        width: Any = abs(scale)
        length = length + width * (lengths.get(rank, 1) - 1)
    return length


def _in_range(levels: Sequence[Level], scale: float = 1.0) -> Sequence[Level]:
    """The same levels with float bounds where a product of all of them, and of `scale`, could pass int64."""
    loops = [loop for level in levels for loop in (*level.temporal, *level.spatial)]
    if not any(isinstance(loop.bound, np.ndarray) for loop in loops):
        return levels
    largest = scale * math.prod(float(np.max(loop.bound)) for loop in loops)
    if largest < EXACT_LIMIT:
        return levels

    def as_float(these: tuple[Loop, ...]) -> tuple[Loop, ...]:
        return tuple(Loop(loop.rank, np.asarray(loop.bound, dtype=np.float64)) for loop in these)

    return [Level(level.memory, as_float(level.temporal), as_float(level.spatial)) for level in levels]


def _largest_scale(operand: Operand) -> float:
    """How much larger than its iterations an operand's hull can be: its scales, multiplied."""
    return math.prod(max(1.0, float(np.max(np.abs(scale)))) for index in operand.indices for _, scale in index)


def _distinct_elements(
    levels: Sequence[Level],
    operand: Operand,
    inside: Sequence[Mapping[str, Count]],
    tiles: Sequence[Count],
    *,
    wrap: bool,
) -> list[Count]:
    """Different elements that one instance of each level holds: the tensor's size, shared out at every fan-out."""
    distinct = [tiles[0]]
    for depth in range(1, len(levels)):
        fanout = levels[depth - 1].spatial
        if not fanout and not wrap:
            distinct.append(distinct[-1])
            continue
        reach = dict(inside[depth])
        for loop in fanout:
            reach[loop.rank] = reach.get(loop.rank, 1) * loop.bound
        union = product(hull(operand, reach))
        if wrap:
            distinct.append(_wrapping_product(distinct[-1], tiles[depth]) // union)
        else:
            distinct.append(_scaled(distinct[-1], tiles[depth], union))
    return distinct


def _scaled(count: Count, numerator: Count, denominator: Count) -> Count:
    """count * numerator // denominator, without passing int64 on the way."""
    if all(isinstance(value, int) for value in (count, numerator, denominator)):
        return count * numerator // denominator
    if float(np.max(count)) * float(np.max(numerator)) < EXACT_LIMIT:
        return count * numerator // denominator
    return np.floor(np.asarray(count, dtype=np.float64) * numerator / denominator)


def _wrapping_product(left: Count, right: Count) -> Count:
    if isinstance(left, int) and isinstance(right, int):
        return (left * right) % 2**64
    sides = np.broadcast_arrays(left, right)
    if all(side.dtype.kind == "i" for side in sides):
        return (sides[0].astype(np.uint64) * sides[1].astype(np.uint64)).astype(np.float64)
    wrapped = [float(int(a) * int(b) % 2**64) for a, b in zip(*(side.ravel() for side in sides), strict=True)]
    return np.array(wrapped).reshape(sides[0].shape)


def _deliveries(
    levels: Sequence[Level], operand: Operand, child: int, inside: Mapping[str, Count], tile: Count
) -> Count:
    """Elements that one child instance receives (or sends) over the whole nest.

    A storage child receives the part of its tile that it does not hold already: all of it at the first step, and at
    each later step the tile less its overlap with the tile of the step before. Which loop advances fixes how far the
    tile moves, so the sum over steps is a sum over loops.
    """
    loops = [loop for level in levels[:child] for loop in level.temporal]
    if child == len(levels):
        return product(loop.bound for loop in loops)
    if is_plain(operand):
        times: Count = 1
        moved: bool | NDArray[np.bool_] = False
        relevant = {rank for index in operand.indices for rank, _ in index}
        for loop in reversed(loops):
            if loop.rank in relevant:
                times = times * loop.bound
                moved = moved | (loop.bound > 1)
            elif isinstance(moved, np.ndarray):
                times = times * np.where(moved, loop.bound, 1)
            elif moved:
                times = times * loop.bound
        return times * tile
    return _sliding_deliveries(levels, operand, child, inside, hull(operand, inside))


def is_plain(operand: Operand) -> bool:
    """Whether each tensor rank is indexed by one variable of its own, so that tiles never overlap."""
    ranks = [index[0][0] for index in operand.indices if index]
    return len(set(ranks)) == len(ranks) and all(
        len(index) < 2 and all(isinstance(scale, int) and scale == 1 for _, scale in index) for index in operand.indices
    )


def overlapping_ranks(operands: Iterable[Operand]) -> dict[str, str]:
    """The ranks that index an operand whose tiles may overlap, each with such an operand's name."""
    return {
        rank: operand.name
        for operand in operands
        if not is_plain(operand)
        for index in operand.indices
        for rank, _ in index
    }


def _sliding_deliveries(
    levels: Sequence[Level], operand: Operand, child: int, inside: Mapping[str, Count], tile: Sequence[Count]
) -> Count:
    """`_deliveries` for indices such as `2*p + r`, whose successive tiles overlap."""
    loops = [loop for level in reversed(levels[:child]) for loop in reversed(level.temporal)]
    total = product(tile)
    for position, (loop, fresh) in enumerate(
        zip(loops, fresh_by_loop(levels, operand, child, inside, tile), strict=True)
    ):
        repeats = product(outer.bound for outer in loops[position + 1 :])
        total = total + repeats * (loop.bound - 1) * fresh
    return total


def fresh_by_loop(
    levels: Sequence[Level], operand: Operand, child: int, inside: Mapping[str, Count], tile: Sequence[Count]
) -> list[Count]:
    """Elements of a child's tile that it does not hold yet when a loop advances, for each temporal loop around it,
    innermost first; `inside` is what the child covers, `tile` the lengths of its tile."""
    size = product(tile)
    strides = dict(inside)
    rewound: dict[str, Count] = {}
    found: list[Count] = []
    for level in reversed(levels[:child]):
        for loop in reversed(level.spatial):
            strides[loop.rank] = strides.get(loop.rank, 1) * loop.bound
        for loop in reversed(level.temporal):
            stride = strides.get(loop.rank, 1)
            move = {rank: -distance for rank, distance in rewound.items()}
            move[loop.rank] = move.get(loop.rank, 0) + stride
            overlap = product(
                _positive_part(length - abs(_shift(index, move)))
                for length, index in zip(tile, operand.indices, strict=True)
            )
            found.append(size - overlap)
            rewound[loop.rank] = rewound.get(loop.rank, 0) + stride * (loop.bound - 1)
            strides[loop.rank] = stride * loop.bound
    return found


def _shift(index: Terms, move: Mapping[str, Count]) -> Any:
    """How far an index moves when its rank variables move."""
    return sum(scale * move.get(rank, 0) for rank, scale in index)


def _positive_part(value: Count) -> Count:
    return max(0, value) if isinstance(value, int) else np.maximum(0, value)


def receivers(level: Level, operand: Operand, strides: Mapping[str, Count]) -> Count:
    """Different tiles among the children of one instance: children that hold the same tile are one access."""
    if not level.spatial:
        return 1
    fanout = extents([Level(level.memory, (), level.spatial)])
    if is_plain(operand):
        return product(fanout.get(index[0][0], 1) for index in operand.indices if index)
    used = [rank for index in operand.indices for rank, _ in index if rank in fanout]
    groups = [[index] for index in operand.indices] if len(set(used)) == len(used) else [list(operand.indices)]
    return product(_different_offsets(group, fanout, strides) for group in groups)


def _different_offsets(indices: Sequence[Terms], fanout: Mapping[str, Count], strides: Mapping[str, Count]) -> Count:
    """How many different places the indices point to while every rank of the fan-out takes all its values."""
    ranks = sorted({rank for index in indices for rank, _ in index if rank in fanout})
    if len(ranks) < 2:
        return product(fanout[rank] for rank in ranks)
    if len(ranks) == 2 and len(indices) == 1 and any(isinstance(fanout[rank], np.ndarray) for rank in ranks):
        (n, a), (m, b) = ((fanout[rank], np.abs(dict(indices[0])[rank] * strides.get(rank, 1))) for rank in ranks)
        common = np.gcd(np.asarray(a, dtype=np.int64), np.asarray(b, dtype=np.int64))
        twice: Count = np.maximum(0, n - b // common) * np.maximum(0, m - a // common)
        return n * m - twice
    steps = [dict(index).get(rank, 0) * strides.get(rank, 1) for index in indices for rank in ranks]
    arrays = np.broadcast_arrays(
        *[np.asarray(value, dtype=np.int64) for value in (*[fanout[rank] for rank in ranks], *steps)]
    )
    cases, where = np.unique(np.stack([array.ravel() for array in arrays], axis=-1), axis=0, return_inverse=True)
    found = []
    for case in cases.tolist():
        bounds, moves = case[: len(ranks)], case[len(ranks) :]
        rows = [moves[start : start + len(ranks)] for start in range(0, len(moves), len(ranks))]
        found.append(_different_sums(bounds, _one_step_each(bounds, rows)))
    counted = np.array(found)[where.ravel()].reshape(arrays[0].shape)
    return int(counted) if counted.ndim == 0 else counted


def _one_step_each(bounds: Sequence[int], moves: Sequence[Sequence[int]]) -> list[int]:
    """Steps along several indices as one number a rank, apart enough that no two places fall together."""
    steps, base = [0] * len(bounds), 1
    for row in moves:
        steps = [step + base * move for step, move in zip(steps, row, strict=True)]
        base *= 2 * sum(abs(move) * (bound - 1) for move, bound in zip(row, bounds, strict=True)) + 1
    return steps


def _different_sums(bounds: Sequence[int], steps: Sequence[int]) -> int:
    """How many values sum(step*i) takes for 0 <= i < bound.

    Two steps a, b with common divisor g meet again after b/g of the first and a/g of the second; more are summed out.
    """
    pairs = [(bound, abs(step)) for bound, step in zip(bounds, steps, strict=True) if bound > 1 and step != 0]
    if len(pairs) == 2:
        (n, a), (m, b) = pairs
        common = math.gcd(a, b)
        return n * m - max(0, n - b // common) * max(0, m - a // common)
    sums = np.zeros(1, dtype=object if any(step > 2**40 for _, step in pairs) else np.int64)
    for bound, step in pairs:
        sums = np.unique(np.add.outer(sums, step * np.arange(bound)))
    return len(sums)
