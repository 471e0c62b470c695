"""How partial nests grow by a level, many at once: a fan-out below it, its loops in an order, the tensors it keeps.

What a level reads and writes depends on the loops inside it, and on loops further out only until one of them moves the
tile; from then on its share of the whole is fixed. Amounts are totals over the whole problem, as if all loops still to
come were temporal: pJ, elements of DRAM traffic, seconds of each memory's bandwidth. A loop that leaves (part of) a
tile in place scales what the tile's stream moves; a fan-out divides times by its factors, and reads by its multicast.

Columns of a population:
  (sum, energy), (sum, dram), (sum, seconds, level, key)    settled amounts
  (latency,)                                                the longest time that nothing is added to any more
  (first, seconds, level, key)                              what first updates spare of the sum, if told apart
  (pending, stream, ...)                                    amounts that loops further out may still make less
  (open, operand, number)                                   elements that the operand's child asks of whatever parent
  (idle, stream, rank)                                      how many more PEs a fan-out has than its rounds keep busy, as a
                                                            factor, until a loop over the rank leaves the stream in place
  (slide, stream, ...)                                      how an overlapping tile lies: elements moved, length, distance back
  (outputs,)                                                instances further out that sum up one output element
  (held,), (busy,)                                          elements in the buffer, PEs in use

The counts are those of `dse.model.nest`; the mapping that is found is priced by it once more.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.model.nest import Level, Loop, receivers
from dse.search.mapspace import Mapspace, Order
from dse.search.population import Array, Column, Population
from dse.search.problem import KeepChoice
from dse.specs.architecture import DIRECTIONS

Stream = tuple[int, int]
"""What a level receives of an operand, as (operand, number). A tile that never overlaps stays in place as long as the
tiles inside it, so all of an operand's levels are one stream; overlapping tiles have one each, the newest the last."""
FROM_BUFFER = 1 << 8
"""Streams into the outermost bounded level and further out are numbered from here on, those into its inside below."""
SETTLED = -1
"""Instead of a number: nothing further out changes what is received."""


@dataclass(frozen=True)
class Tiles:
    """What a level holds: elements by operand, those that come to it over all if no tile stays, and elements in all where
    that is asked."""

    elements: Mapping[int, Array]
    fills: Mapping[int, Array]
    held: Array | None


class Growth:
    """The steps by which populations of one mapspace grow.

    `elements` are how many different elements of each operand the Einsum touches; a strided index leaves some out.
    `apart` keeps the times of memories apart to the end, as those of several Einsums add up.
    """

    def __init__(self, space: Mapspace, *, with_dram: bool, apart: bool = False) -> None:
        self.space = space
        self.apart = apart
        self.problem = space.problem
        self.with_dram = with_dram
        self.sizes = np.array([self.problem.sizes], dtype=np.int64)
        self.points = float(math.prod(self.problem.sizes))
        ones = np.ones_like(self.sizes)
        self.elements = [float(self.receivers(at, self.sizes, ones)[0]) for at in range(len(self.problem.operands))]
        self.output = next(at for at, operand in enumerate(self.problem.operands) if operand.is_output)
        used = space.hard[self.output] | space.soft[self.output]
        self.reduced = [rank for rank in range(len(self.problem.ranks)) if rank not in used]

    def start(self) -> Population:
        """Compute alone, which takes every operand at every point whatever the loops are.

        How many partial sums a level reads depends on the fan-outs outside it, so each row promises over how many
        instances an output element is summed there, and the fan-outs must keep the promise.
        """
        shares = self.shares(len(self.problem.levels))
        rows = len(shares)
        columns: dict[Column, Array] = {
            ("sum", "energy"): np.full(rows, self.points * self.problem.operation_pj),
            ("latency",): np.full(rows, self.points * self.problem.operation_s),
            ("held",): np.zeros(rows),
            ("busy",): np.ones(rows),
            ("outputs",): np.array(shares, dtype=np.float64),
        }
        if self.with_dram:
            columns["sum", "dram"] = np.zeros(rows)
        for operand in range(len(self.problem.operands)):
            columns["open", operand, SETTLED] = np.full(rows, self.points)
        zero = np.zeros(rows, dtype=np.int64)
        return Population(np.ones((rows, len(self.problem.ranks)), dtype=np.int64), columns, zero, zero)

    def shares(self, depth: int) -> list[int]:
        """Over how many instances the fan-outs of the levels outside `depth` may sum up an output element."""
        shares = {1}
        for ways in self.space.fanouts[:depth]:
            own = {int(value) for value in ways.factors[:, self.reduced].prod(axis=1)}
            shares = {one * other for one in shares for other in own}
        return sorted(shares)

    def spread(self, parent: Population, factors: NDArray[np.int64]) -> Population:
        """The rows with a fan-out around them: `factors` (n, ranks)."""
        busy = factors.prod(axis=1).astype(np.float64)
        extents = parent.extents * factors
        fewer = self.space.rounds(parent.extents) / self.space.rounds(extents) if self.space.imperfect else factors
        faster = fewer.prod(axis=1, dtype=np.float64)
        reduced = [rank in self.reduced for rank in range(factors.shape[1])]
        columns: dict[Column, Array] = {}
        for name, column in parent.columns.items():
            match name:
                case ("open", operand, _):
                    columns[name] = column * self.share_asked(operand, factors, fewer, parent.extents)
                case ("latency",) | ("sum", "seconds", *_) | ("pending", _, "seconds", *_):
                    columns[name] = column / faster
                case ("first", *_):
                    columns[name] = column / np.where(reduced, factors, fewer).prod(axis=1, dtype=np.float64)
                case ("busy",):
                    columns[name] = column * busy
                case ("outputs",):
                    columns[name] = column / factors[:, self.reduced].prod(axis=1)
                case _:
                    columns[name] = column
        for stream in waiting_streams(parent):
            for rank in set(self.space.imperfect) - self.space.hard[stream[0]]:
                idle: Column = ("idle", stream, rank)
                columns[idle] = columns.get(idle, np.ones(len(parent))) * factors[:, rank] / fewer[:, rank]
        return Population(extents, columns, parent.origin, parent.choice)

    def share_asked(self, operand: int, factors: NDArray[np.int64], fewer: Array, strides: NDArray[np.int64]) -> Array:
        """What the children of a fan-out ask of an operand together, as a share of what all ask if each asks alone."""
        tiles = self.receivers(operand, factors, strides)
        if not self.space.imperfect:
            return np.asarray(tiles / factors.prod(axis=1).astype(np.float64))
        own = self.space.hard[operand] | self.space.soft[operand]
        alone = [factors[:, rank] if rank in own else fewer[:, rank] for rank in range(factors.shape[1])]
        return np.asarray(tiles / np.prod(alone, axis=0, dtype=np.float64))

    def receivers(self, operand: int, factors: NDArray[np.int64], strides: NDArray[np.int64]) -> Array:
        """Different tiles of an operand among the children of a fan-out."""
        names = self.problem.ranks
        level = Level("", (), tuple(Loop(name, factors[:, rank]) for rank, name in enumerate(names)))
        inside = dict(zip(names, strides.T, strict=True))
        counted = receivers(level, self.problem.operands[operand], inside)
        return np.broadcast_to(np.asarray(counted, dtype=np.float64), len(factors))

    def loop(
        self, parent: Population, extents: NDArray[np.int64], order: Order, waiting: Sequence[Stream]
    ) -> Population:
        """The rows with a level's loops around them, which grow them to `extents`."""
        part = Population(extents, dict(parent.columns), parent.origin, parent.choice)
        for stream in waiting:
            operand = stream[0]
            hard = self.space.hard[operand]
            inside = next((place for place, rank in enumerate(order) if rank in hard), len(order))
            if inside:
                one, every = self.shares_left(part.columns, stream, order[:inside], parent.extents, extents)
                for name in part.columns:
                    if name[:2] == ("pending", stream):
                        part.columns[name] = part.columns[name] * (one if name[2] == "seconds" else every)
                    elif name == ("open", *stream):
                        part.columns[name] = part.columns[name] * one
            if inside < len(order):
                settle(part, stream)
        return part

    def shares_left(
        self,
        columns: dict[Column, Array],
        stream: Stream,
        free: Order,
        before: NDArray[np.int64],
        after: NDArray[np.int64],
    ) -> tuple[Any, Any]:
        """What loops that may leave a tile in place leave of its stream, as a share of all: of the busiest instance's, and
        of all instances'. PEs that idle in the last round hold a tile all the same, from a round before."""
        one: Any = 1.0
        every: Any = 1.0
        sliding = bool(self.space.soft[stream[0]])
        for rank in free:
            stride = before[:, rank]
            bound = after[:, rank] / stride
            idle = columns.get(("idle", stream, rank))
            rounds = bound if idle is None else bound / idle
            if sliding:
                overlap = self.overlap(columns, stream, rank, stride)
                one = one * slid(columns, ("slide", stream, "elements"), bound, overlap)
                every = (
                    every * slid(columns, ("slide", stream, "of all"), rounds, overlap) if self.space.imperfect else one
                )
                back: Column = ("slide", stream, "back", rank)
                if back in columns:
                    columns[back] = columns[back] + (stride * (bound - 1)).astype(np.int64)
            else:
                one, every = one * (1 / bound), every * (1 / rounds)
            if idle is not None:
                columns["idle", stream, rank] = np.ones(len(idle))
        return one, every

    def overlap(self, columns: Mapping[Column, Array], stream: Stream, rank: int, stride: Array) -> Any:
        """What a tile shares with the one before when a loop over a rank advances."""
        overlap: Any = 1.0
        for number, index in enumerate(self.space.indices[stream[0]]):
            shift: Any = 0
            for other, scale in index:
                shift = shift + scale * ((stride if other == rank else 0) - columns["slide", stream, "back", other])
            overlap = overlap * np.maximum(0, columns["slide", stream, "length", number] - np.abs(shift))
        return overlap

    def tiles(self, depth: int, extents: NDArray[np.int64], keep: KeepChoice) -> Tiles:
        """What a level that keeps some tensors holds of them, in elements, where the ranks cover `extents`."""
        kept = [at for at, spec in enumerate(self.problem.operands) if self.problem.tensors[spec.name] in keep.names]
        held = self.space.held(keep.tiled, extents) if depth == self.problem.buffer else None
        elements = {operand: self.space.tile(operand, extents) for operand in kept}
        repeats = self.points / extents.prod(axis=1, dtype=np.float64)
        fills = {operand: tile * self.repeats(operand, extents, repeats) for operand, tile in elements.items()}
        return Tiles(elements, fills, held)

    def repeats(self, operand: int, extents: NDArray[np.int64], perfect: Array) -> Array:
        """How often an operand's tile comes, in whole tiles, if none stays in place; as `perfect` where tiles divide."""
        if not self.space.imperfect:
            return perfect
        own = sorted(self.space.hard[operand] | self.space.soft[operand])
        parts = (self.sizes / np.minimum(extents, self.sizes))[:, own].prod(axis=1)
        others = [rank for rank in range(extents.shape[1]) if rank not in own]
        return np.asarray(parts * self.space.rounds(extents)[:, others].prod(axis=1))

    def close(self, depth: int, part: Population, tiles: Tiles, ending: Container[str]) -> None:
        """A level keeps tensors: it serves what waits for a parent, and waits for its own tile from further out."""
        columns = part.columns
        distinct = self.elements[self.output] * columns["outputs",]
        for operand, tile in tiles.elements.items():
            spec = self.problem.operands[operand]
            child = next((name for name in columns if name[:2] == ("open", operand)), None)
            if child is None:
                continue
            taken, stream = columns.pop(child), (operand, child[2])
            waits = stream in waiting_streams(part)
            where: Column = ("pending", self.served_as(part, stream)) if waits else ("sum",)
            if spec.is_output:
                self.charge(columns, where, depth, reads=taken, writes=taken)
                self.charge(columns, ("sum",), depth, reads=-distinct, times=self.first_times(depth))
            else:
                self.charge(columns, where, depth, reads=taken)
            if self.problem.tensors[spec.name] in ending:
                continue
            sliding = bool(self.space.soft[operand])
            if sliding or not waits or self.space.imperfect:
                first = FROM_BUFFER if self.problem.buffer is not None and depth <= self.problem.buffer else 0
                before = max((n for own, n in waiting_streams(part) if own == operand), default=-1)
                stream = (operand, max(first, 1 + before))
            columns["open", stream[0], stream[1]] = fills = tiles.fills[operand]
            self.charge(columns, ("pending", stream), depth, writes=fills)
            columns.setdefault(
                ("pending", stream, "energy"), np.zeros(len(part))
            )  # it waits even where writing is free
            if spec.is_output:
                self.charge(columns, ("sum",), depth, writes=-distinct, times=self.first_times(depth))
            if sliding:
                columns["slide", stream, "elements"] = tile
                if self.space.imperfect:
                    columns["slide", stream, "of all"] = tile
                for number, length in enumerate(self.space.lengths(operand, part.extents)):
                    whole = np.asarray(length, dtype=np.int64)
                    columns["slide", stream, "length", number] = np.broadcast_to(whole, len(part))
                for rank in sorted({rank for index in self.space.indices[operand] for rank, _ in index}):
                    columns["slide", stream, "back", rank] = np.zeros(len(part), dtype=np.int64)
        if tiles.held is not None:
            columns["held",] = tiles.held

    def served_as(self, part: Population, stream: Stream) -> Stream:
        """The stream of what a parent reads for a child's, apart where PEs that idle may be due to the child's alone."""
        if not self.space.imperfect:
            return stream
        own = stream[0], 1 + max(number for operand, number in waiting_streams(part) if operand == stream[0])
        slides = {name: column for name, column in part.columns.items() if name[:2] == ("slide", stream)}
        part.columns.update({("slide", own, *name[2:]): column for name, column in slides.items()})
        if slides:
            part.columns["slide", own, "of all"] = part.columns["slide", own, "elements"]
        return own

    def charge(
        self,
        columns: dict[Column, Array],
        where: Column,
        depth: int,
        reads: Array | None = None,
        writes: Array | None = None,
        times: Column | None = None,
    ) -> None:
        """Add reads and writes of a level, in elements, to amounts that are settled or pending; the `times` elsewhere."""
        metrics: list[Column] = [("energy",), *(("seconds", depth, key) for key in self.problem.levels[depth].seconds)]
        if self.problem.levels[depth].is_dram and self.with_dram:
            metrics.append(("dram",))
        for metric in metrics:
            for each, elements in zip(self.price(depth, metric), (reads, writes), strict=True):
                if elements is not None and each:
                    kind = times if times is not None and metric[0] == "seconds" else where
                    _add(columns, (*kind, *metric), each * elements)

    def first_times(self, depth: int) -> Column:
        """Where the time goes that first updates, which read nothing, spare a level: apart where a fan-out to come may idle,
        as even an instance that idles in the last round has each first update."""
        idles = set(self.space.imperfect) & set(self.reduced)
        return ("first",) if idles and self.spreads_outside(depth) else ("sum",)

    def price(self, depth: int, metric: Column) -> tuple[float, float]:
        """What ("energy",), ("dram",) or (seconds, level, key) counts for an element that a level reads, and writes."""
        level = self.problem.levels[depth]
        match metric:
            case ("seconds", at, key):
                each = level.seconds[key] if at == depth else 0.0
                read, write = (each * (direction in DIRECTIONS[key]) for direction in ("reads", "writes"))
                return read, write
            case ("dram",):
                return float(level.is_dram), float(level.is_dram)
        return level.read_pj, level.write_pj

    def spreads_outside(self, depth: int) -> bool:
        """Whether there is a fan-out further out than below `depth`."""
        return any(level.axes for level in self.problem.levels[:depth])

    def parts(self, part: Population, depth: int) -> list[Population]:
        """The rows apart by which sliding streams no further loop can leave in place; those are settled at once."""
        parts = [part]
        for stream in waiting_streams(part):
            if ("slide", stream, "elements") in part.columns:
                parts = [piece for each in parts for piece in self.parted(each, stream)]
        for each in parts:
            if not self.apart:
                fold_times(each, last=not self.spreads_outside(depth))
            each.columns = dict(sorted(each.columns.items(), key=lambda item: str(item[0])))
        return parts

    def parted(self, part: Population, stream: Stream) -> list[Population]:
        """Rows of which a sliding stream is settled, and the others.

        It is where two of its indices have moved past their tile, since a loop takes back one at most; and where one
        has whose ranks no loop is left for.
        """
        columns = part.columns
        indices = self.space.indices[stream[0]]
        if any(scale < 0 for index in indices for _, scale in index):
            return [part]
        past: Any = np.zeros(len(part), dtype=np.int64)
        for number, index in enumerate(indices):
            back = sum(scale * columns["slide", stream, "back", rank] for rank, scale in index)
            far = back >= columns["slide", stream, "length", number]
            over = (part.extents >= self.sizes)[:, [rank for rank, _ in index]].all(axis=1)
            past = past + far * np.where(over, 2, 1)
        settled = past >= 2
        if not settled.any():
            return [part]
        done, rest = part.take(settled), part.take(~settled)
        settle(done, stream)
        return [done, rest] if len(rest) else [done]


def waiting_streams(population: Population) -> list[Stream]:
    """Streams whose share of the whole still depends on loops further out."""
    return sorted({name[1] for name in population.columns if name[0] == "pending"})


def slid(columns: dict[Column, Array], name: Column, bound: Array, overlap: Any) -> Array:
    """A loop around a tile that may overlap the one before: what it leaves of what the stream moves, as a share of all."""
    moved = columns[name]
    columns[name] = moved * bound - (bound - 1) * overlap
    return np.asarray(columns[name] / (moved * bound))


def settle(population: Population, stream: Stream) -> None:
    """Nothing further out changes a stream: its amounts count as they stand."""
    columns = population.columns
    for name in list(columns):
        if name[:2] == ("pending", stream):
            _add(columns, ("sum", *name[2:]), columns.pop(name))
        elif name[:2] in (("slide", stream), ("idle", stream)):
            del columns[name]
        elif name == ("open", *stream):
            columns["open", stream[0], SETTLED] = columns.pop(name)


def fold_times(population: Population, *, last: bool) -> None:
    """Seconds of memories to which nothing can be added any more become part of the latency; where first updates are told
    apart, once the last fan-out stands."""
    columns = population.columns
    pending = {name[2:] for name in columns if name[0] == "pending"}
    for name in list(columns):
        if name[:2] == ("sum", "seconds") and name[1:] not in pending and (last or ("first", *name[1:]) not in columns):
            seconds = columns.pop(name) + columns.pop(("first", *name[1:]), 0.0)
            columns["latency",] = np.maximum(columns["latency",], seconds)


def _add(columns: dict[Column, Array], name: Column, amount: Array) -> None:
    columns[name] = columns[name] + amount if name in columns else amount
