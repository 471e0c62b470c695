"""The choices that make up a mapping of one Einsum: factors, fan-outs, and loop orders up to equivalence."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.model.feasibility import divisors_of
from dse.model.nest import hull
from dse.search.problem import Problem

Order = tuple[int, ...]
"""Ranks by position, innermost loop first."""

LARGEST_TABLE = 1 << 21
"""Extents that a table is made for; larger mapspaces do without."""


@dataclass(frozen=True)
class Multiples:
    """For each extent of a rank (by position) the ones a slot may grow it to: `flat[start : start + count]`, at `place`
    among the extents."""

    flat: NDArray[np.int64]
    place: NDArray[np.int64]
    start: NDArray[np.int64]
    count: NDArray[np.int64]


@dataclass(frozen=True)
class Fanouts:
    """The distinct ways to spread ranks below a level: factors (ways, ranks), and how each is divided over the axes."""

    factors: NDArray[np.int64]
    axes: NDArray[np.int64]


class Mapspace:
    """What each slot of a problem's chain may do.

    `covers` has, by rank, the extents that loops from some slot inward may cover. They divide its size; the outermost
    fan-out of an imperfect rank may also have any other number of PEs, so that the last of its rounds leaves some idle
    (as in Ruby-S: Horeni et al., ISPASS 2022). Loops further out divide the rounds.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.imperfect = [rank for rank, name in enumerate(problem.ranks) if name in problem.imperfect]
        self.covers = [self._extents_of(rank) for rank in range(len(problem.ranks))]
        self.radix = np.cumprod([1, *(len(found) for found in self.covers[:-1])])
        self._orders: dict[Any, list[Order]] = {}

    @cached_property
    def compute_units(self) -> int:
        """PEs at the end of the chain."""
        return math.prod(size for level in self.problem.levels for _, size in level.axes)

    @cached_property
    def tabled(self) -> bool:
        """Whether there are few enough combinations of extents to make tables of."""
        return math.prod(len(own) for own in self.covers) <= LARGEST_TABLE

    @cached_property
    def grid(self) -> NDArray[np.int64]:
        """Every combination of extents, in the order of their codes; shape (combinations, ranks)."""
        shape = [len(own) for own in self.covers]
        places = np.unravel_index(np.arange(math.prod(shape)), shape, order="F")
        return np.stack([own[place] for own, place in zip(self.covers, places, strict=True)], axis=1)

    def _extents_of(self, rank: int) -> NDArray[np.int64]:
        size = self.problem.sizes[rank]
        divisors = divisors_of(size)
        if rank not in self.imperfect:
            return divisors
        most = max((math.prod(length for _, length in level.axes) for level in self.problem.levels), default=1)
        found = set(divisors.tolist())
        for inside in divisors.tolist():
            for factor in range(2, min(most, size // inside) + 1):
                rounds = -(-size // (inside * factor))
                found |= {inside * factor * more for more in divisors_of(rounds).tolist()}
        return np.array(sorted(found), dtype=np.int64)

    def rounds(self, extents: NDArray[np.int64]) -> NDArray[np.float64]:
        """How many tiles of these extents (n, ranks) there are along each rank."""
        sizes = np.array([self.problem.sizes], dtype=np.int64)
        if not self.imperfect:
            return np.asarray(sizes / extents)
        return (-(-sizes // extents)).astype(np.float64)

    def grows(self, rank: int, extents: Any, factors: Any, *, spatial: bool) -> Any:
        """Whether extents of a rank may grow by factors."""
        rounds = self.rounds_along(rank, extents)
        if not spatial or rank not in self.imperfect:
            return rounds % factors == 0
        return (factors == 1) | ((self.problem.sizes[rank] % extents == 0) & (factors <= rounds))

    def rounds_along(self, rank: int, extents: Any) -> Any:
        """How many tiles of an extent there are along one rank, in whole numbers."""
        return -(-self.problem.sizes[rank] // extents)

    def positions(self, extents: NDArray[np.int64]) -> NDArray[np.int64]:
        """Position of each extent among those of its rank; shape (n, ranks)."""
        found = np.empty(extents.shape, dtype=np.int64)
        for rank, own in enumerate(self.covers):
            found[:, rank] = np.searchsorted(own, extents[:, rank]) if len(own) > 1 else 0
        return found

    def codes(self, extents: NDArray[np.int64]) -> NDArray[np.int64]:
        """One number for each row of extents."""
        return self.positions(extents) @ self.radix

    @cached_property
    def multiples(self) -> list[list[Multiples]]:
        """By level and rank, what its temporal loops may grow an extent to; the outermost level completes the rank."""
        found = []
        for depth, level in enumerate(self.problem.levels):
            found.append(
                [
                    self._multiples(level.memory, rank, left, steps=self._steps(depth, rank))
                    for rank, left in enumerate(self.left[depth])
                ]
            )
        return found

    @cached_property
    def batch(self) -> frozenset[int]:
        """Ranks that every operand has an index of its own for: nothing is reused over them.

        A loop over one costs the same wherever it stands; outside all others it needs the least room. So where nothing
        is demanded of its loops, those inside the outermost memory need not be looked at; of an Einsum that may be fused,
        those inside the buffer, as its loops cannot move out of the loops that it shares.
        """
        demands = self.problem.constraints
        memories = set(self.problem.memories)
        free = frozenset(range(len(self.covers)))
        if demands.order.get(self.problem.memories[self.problem.outermost]):
            return frozenset()
        for rank, name in enumerate(self.problem.ranks):
            bounded = any(slot in memories and other == name for slot, other in demands.factors)
            barred = any(slot in memories and slot and name not in ranks for slot, ranks in demands.ranks.items())
            if bounded or barred:
                free -= {rank}
        return free.intersection(*self.hard)

    def _steps(self, depth: int, rank: int) -> bool:
        """Whether the loops of a level are to step over a rank."""
        problem = self.problem
        last = problem.buffer if problem.shared or problem.stays else problem.outermost
        return rank not in self.batch or last is None or depth <= last

    @cached_property
    def left(self) -> list[list[NDArray[np.bool_]]]:
        """By level and rank, which of its extents the slots further out can still make whole."""
        found = [[own >= size for own, size in zip(self.covers, self.problem.sizes, strict=True)]]
        for depth, level in enumerate(self.problem.levels[:-1]):
            allows = self.problem.constraints.allows
            inner = [
                self._reaching(rank, ends, partial(allows, level.memory, name), spatial=False)
                if self._steps(depth, rank)
                else ends
                for rank, (name, ends) in enumerate(zip(self.problem.ranks, found[-1], strict=True))
            ]
            if level.axes:
                spread = [set(self.fanouts[depth].factors[:, rank].tolist()) for rank in range(len(inner))]
                inner = [
                    self._reaching(rank, ends, spread[rank].__contains__, spatial=True)
                    for rank, ends in enumerate(inner)
                ]
            found.append(inner)
        return found

    def _reaching(
        self, rank: int, ends: NDArray[np.bool_], allows: Callable[[int], bool], *, spatial: bool
    ) -> NDArray[np.bool_]:
        """Which extents of a rank can grow to one of `ends` by a factor that is allowed."""
        own = self.covers[rank]
        return np.array(
            [
                any(
                    end % one == 0 and self.grows(rank, one, end // one, spatial=spatial) and allows(end // one)
                    for end in own[ends].tolist()
                )
                for one in own.tolist()
            ]
        )

    def _multiples(self, slot: str, rank: int, left: NDArray[np.bool_], *, steps: bool) -> Multiples:
        name, own = self.problem.ranks[rank], self.covers[rank].tolist()
        allows = self.problem.constraints.allows
        ends = self.covers[rank][left].tolist()
        grown = [
            [
                end
                for end in ends
                if end % one == 0
                and self.grows(rank, one, end // one, spatial=False)
                and (steps or end == one)
                and allows(slot, name, end // one)
            ]
            for one in own
        ]
        counts = np.array([len(group) for group in grown], dtype=np.int64)
        flat = np.array([other for group in grown for other in group], dtype=np.int64)
        return Multiples(flat, np.searchsorted(self.covers[rank], flat), np.cumsum(counts) - counts, counts)

    @cached_property
    def fanouts(self) -> list[Fanouts]:
        """By level, the distinct ways to use the axes below it."""
        return [self._fanouts(level.axes) for level in self.problem.levels]

    def _fanouts(self, axes: tuple[tuple[str, int], ...]) -> Fanouts:
        ranks = len(self.covers)
        total, ways = np.ones((1, ranks), dtype=np.int64), np.ones((1, 0, ranks), dtype=np.int64)
        for axis, size in axes:
            own = self.axis_factors(axis, size)
            product = (total[:, None, :] * own[None, :, :]).reshape(-1, ranks)
            shape = (len(total), len(own), 1, ranks)
            spread = np.concatenate(
                [
                    np.broadcast_to(ways[:, None], (len(total), len(own), ways.shape[1], ranks)),
                    np.broadcast_to(own[None, :, None, :], shape),
                ],
                axis=2,
            ).reshape(-1, ways.shape[1] + 1, ranks)
            divides = np.ones(len(product), dtype=bool)
            for rank, whole in enumerate(self.problem.sizes):
                own_product = product[:, rank]
                divides &= own_product <= whole if rank in self.imperfect else whole % own_product == 0
            product, spread = product[divides], spread[divides]
            _, first = np.unique(self.codes(product), return_index=True)
            total, ways = product[first], spread[first]
        return Fanouts(total, ways)

    def factors_on(self, axis: str, size: int, rank: int) -> list[int]:
        """Factors of a rank on one axis that its demands allow."""
        name, whole = self.problem.ranks[rank], self.problem.sizes[rank]
        every = range(1, min(size, whole) + 1) if rank in self.imperfect else divisors_of(whole).tolist()
        return [factor for factor in every if factor <= size and self.problem.constraints.allows(axis, name, factor)]

    def axis_factors(self, axis: str, size: int) -> NDArray[np.int64]:
        """Factors of every rank on one axis: shape (ways, ranks), their product at most the axis's size."""
        found = np.ones((1, 0), dtype=np.int64)
        for rank in range(len(self.covers)):
            factors = np.array(self.factors_on(axis, size, rank))
            if not len(factors):
                return np.ones((0, len(self.covers)), dtype=np.int64)
            grown = np.concatenate(
                [np.repeat(found, len(factors), axis=0), np.tile(factors, len(found))[:, None]], axis=1
            )
            found = grown[grown.prod(axis=1) <= size]
        return found.astype(np.int64)

    def orders(self, depth: int, loops: int, waiting: Sequence[tuple[int, int]]) -> list[Order]:
        """Orders of a level's loops (a bit for each rank) that differ in what they let `waiting` streams reuse.

        Of operands whose tiles never overlap, a loop that an operand does not index is reuse if it stands inside the
        innermost loop that it does; an order that gives each operand what another gives it, and more, makes that other
        one needless. Overlapping tiles are told apart by the whole sequence up to the first loop that ends all overlap.
        """
        key = (depth, loops, tuple(waiting))
        if key not in self._orders:
            active = frozenset(rank for rank in range(len(self.covers)) if loops >> rank & 1)
            if depth == 0 and self.problem.shared:
                self._orders[key] = self._shared_orders(active)
                return self._orders[key]
            self._orders[key] = self._distinct_orders(depth, active, sorted({operand for operand, _ in waiting}))
        return self._orders[key]

    def _shared_orders(self, active: frozenset[int]) -> list[Order]:
        """Every order of loops that Einsums share, ranks that index everything outermost: they leave nothing in place."""
        batch = [rank for rank in sorted(active) if self.problem.ranks[rank] in self.problem.batch]
        inner = [rank for rank in sorted(active) if rank not in batch]
        return [(*order, *reversed(batch)) for order in itertools.permutations(inner)]

    def encode(self, keep: int, order: Order) -> int:
        """A set of tensors kept, by its number, and an order of loops as one number."""
        base = len(self.covers) + 1
        code = keep
        for place in range(len(self.covers)):
            code = code * base + (order[place] + 1 if place < len(order) else 0)
        return code

    def decode(self, code: int) -> tuple[int, Order]:
        """What `encode` made a number of."""
        base = len(self.covers) + 1
        digits = []
        for _ in range(len(self.covers)):
            code, digit = divmod(code, base)
            digits.append(digit)
        return code, tuple(digit - 1 for digit in reversed(digits) if digit)

    def _distinct_orders(self, depth: int, active: frozenset[int], waiting: Sequence[int]) -> list[Order]:
        ranks = self.problem.ranks
        written = [ranks.index(name) for name in self.problem.constraints.order.get(self.problem.memories[depth], ())]
        outer = [rank for rank in written if rank in active]
        free = sorted(active - set(outer))
        found: dict[Any, Order] = {}

        def extend(sequence: Order, left: list[int]) -> None:
            reuse = [self._reuse(operand, sequence) for operand in waiting]
            if all(done for _, _, done in reuse):
                sequence = (*sequence, *left)
                left = []
            if left:
                for rank in left:
                    extend((*sequence, rank), [other for other in left if other != rank])
                return
            sequence = (*sequence, *reversed(outer))
            seen = tuple(self._reuse(operand, sequence)[:2] for operand in waiting)
            found.setdefault(seen, sequence)

        extend((), free)
        kept = [
            order
            for seen, order in found.items()
            if not any(other != seen and _gives_more(other, seen) for other in found)
        ]
        return kept

    def _reuse(self, operand: int, sequence: Order) -> tuple[frozenset[int], tuple[int, ...], bool]:
        """Loops that an operand gets for free, those that decide on overlap after them, and whether more can matter."""
        hard, soft = self.hard[operand], self.soft[operand]
        free: list[int] = []
        for place, rank in enumerate(sequence):
            if rank in hard:
                return frozenset(free), (), True
            if rank in soft:
                rest = sequence[place:]
                stop = next((at for at, other in enumerate(rest) if other in hard), len(rest) - 1)
                return frozenset(free), rest[: stop + 1], rest[stop] in hard
            free.append(rank)
        return frozenset(free), (), False

    @cached_property
    def hard(self) -> list[frozenset[int]]:
        """By operand, the ranks whose loops leave no overlap: those alone in an index."""
        return [
            frozenset(rank for index in indices if len(index) == 1 for rank, _ in index) for indices in self.indices
        ]

    @cached_property
    def soft(self) -> list[frozenset[int]]:
        """By operand, the ranks that slide: those that share an index."""
        return [
            frozenset(rank for index in indices if len(index) > 1 for rank, _ in index) - self.hard[operand]
            for operand, indices in enumerate(self.indices)
        ]

    @cached_property
    def indices(self) -> list[list[list[tuple[int, int]]]]:
        """By operand and index, the (rank, scale) of its terms; ranks of size 1 never move and are left out."""
        return [[self._terms(index) for index in operand.indices] for operand in self.problem.operands]

    def _terms(self, index: Any) -> list[tuple[int, int]]:
        place = {name: rank for rank, name in enumerate(self.problem.ranks)}
        return [(place[name], scale) for name, scale in index if self.problem.sizes[place[name]] > 1]

    def tile(self, operand: int, extents: NDArray[np.int64]) -> NDArray[Any]:
        """Elements of an operand's tile (its hull) where the ranks cover `extents` (n, ranks)."""
        size: NDArray[Any] = np.ones(len(extents))
        for length in self.lengths(operand, extents):
            size = size * length
        return size

    def lengths(self, operand: int, extents: NDArray[np.int64]) -> list[Any]:
        """Length of an operand's tile along each of its indices."""
        if self.imperfect:
            extents = np.minimum(extents, self.problem.sizes)
        covered = dict(zip(self.problem.ranks, extents.T, strict=True))
        return hull(self.problem.operands[operand], covered)

    def held(self, names: tuple[str, ...], extents: NDArray[np.int64]) -> NDArray[Any]:
        """Elements that the tiles of some tensors take together; a tensor read twice takes its larger tile."""
        total: NDArray[Any] = np.zeros(len(extents))
        for name in names:
            tiles = [
                self.tile(number, extents)
                for number, operand in enumerate(self.problem.operands)
                if self.problem.tensors[operand.name] == name
            ]
            total = total + np.maximum.reduce(tiles)
        return total

    @cached_property
    def required(self) -> list[tuple[str, ...]]:
        """By level, the tensors that every choice keeps there."""
        return [
            tuple(
                name
                for name in self.problem.names
                if all(name in choice.tiled for choice in self.problem.keep_choices[depth])
            )
            for depth in range(len(self.problem.levels))
        ]


def _gives_more(one: Any, other: Any) -> bool:
    """Whether an order's reuse is at least another's for every operand, where overlap goes the same way."""
    return all(mine[0] >= its[0] and mine[1] == its[1] for mine, its in zip(one, other, strict=True))
