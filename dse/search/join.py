"""Mappings of single Einsums -> the best mapping of a cascade: groups of fused Einsums, one Einsum after the other.

A group is open while Einsums join it. What matters of an open one is its shared loops, what waits in the buffer for
whom, and its costs so far; of two that agree in the first two, the one that costs no more in any way is as good.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.search.fusion import Fusion
from dse.search.population import Array, Ranking, undominated
from dse.search.problem import HERE, LEFT
from dse.search.rest import Front, Loops, Stays, added, front_of, joined
from dse.search.run import MARGIN
from dse.specs.mapspace import OBJECTIVES

NO_BUFFER = ("", float("inf"))
"""Of an Einsum on whose path nothing is bounded."""


@dataclass(frozen=True)
class Rows:
    """Mappings of one Einsum that agree in shared loops and in what stays in the buffer.

    `buffer` is the memory and how many elements it holds; `waits` gives what each tensor that stays takes there, in
    elements; `seconds` has a column for the compute time and for each bandwidth; `place` tells where each row came from.
    """

    buffer: tuple[str, float]
    loops: Loops
    stays: Stays
    waits: Mapping[str, float]
    energy: Array
    dram: Array
    seconds: Array
    held: Array
    place: NDArray[np.int64]

    @cached_property
    def least(self) -> Array:
        """The least energy, DRAM traffic, and seconds."""
        return np.array([self.energy.min(), self.dram.min(), *self.seconds.min(axis=0)])


@dataclass(frozen=True)
class Open:
    """What tells states apart: where the group in progress began (None between groups), its buffer, its loops, and what
    waits."""

    start: int | None
    buffer: tuple[str, float]
    loops: Loops
    waiting: tuple[tuple[str, str], ...]


CLOSED = Open(None, NO_BUFFER, (), ())
"""Between groups."""

Amount = str | int
"""What adds up over Einsums: "energy", "dram", or a column of their seconds."""


@dataclass(frozen=True)
class Move:
    """Rows of an Einsum that join a state and lead to another; `fresh` elements begin to wait."""

    state: Open
    rows: Rows
    after: Open
    fresh: float


@dataclass(frozen=True)
class Reached:
    """The least with which a state is reached: elements held; energy, DRAM traffic and seconds."""

    held: float
    least: Array

    def or_less(self, other: Reached | None) -> Reached:
        """The least of two."""
        return self if other is None else Reached(min(self.held, other.held), np.minimum(self.least, other.least))


@dataclass
class Costs:
    """States that agree: costs of all so far, `seconds` of the group in progress and `latency` of those before it,
    elements `held` by the group and at most by any before; `trail` is a place in the log."""

    energy: Array
    dram: Array
    latency: Array
    seconds: Array
    held: Array
    most: Array
    trail: NDArray[np.int64]

    def take(self, rows: Array) -> Costs:
        """Some of the rows."""
        return Costs(*(getattr(self, name)[rows] for name in _FIELDS))


_FIELDS = ("energy", "dram", "latency", "seconds", "held", "most", "trail")


def together(parts: Sequence[Costs]) -> Costs:
    """Rows of several, in order."""
    return Costs(*(np.concatenate([getattr(part, name) for part in parts]) for name in _FIELDS))


@dataclass(frozen=True)
class Step:
    """What joined: an Einsum's row, and whether it began a group under some loops."""

    row: int
    begins: bool
    loops: Loops


@dataclass
class Join:
    """All ways to put Einsums together, `rows` of each.

    `moves` are those that a search within a limit may make, by the Einsum that joins; `ahead`, by place, is what the Einsums
    to come cost at least from each state on (energy, DRAM traffic, seconds; nothing where no way leads to the end);
    `reached` holds the costs of all states that the search went through. For a `front`, what takes
    less room is kept as well.
    """

    fusion: Fusion
    rows: Sequence[Sequence[Rows]]
    objective: str
    demanded: Sequence[tuple[int, int]] | None = None
    front: bool = False
    priced: int = 0
    limit: Mapping[str, float] = field(default_factory=dict)
    log: list[tuple[int, int, bool, Loops]] = field(default_factory=list)
    moves: list[list[Move]] = field(default_factory=list)
    ahead: list[dict[Open, Array]] = field(default_factory=list)
    reached: list[dict[Open, Costs]] = field(default_factory=list)

    def best(self, limit: Mapping[str, float]) -> tuple[dict[str, float], list[Step]] | None:
        """The best way and its costs (capacity in elements), Einsum by Einsum; None where none comes to the limit by
        metric."""
        closed = self.ends(limit)
        if closed is None or not len(closed.energy):
            return None
        costs_of = self.metrics(closed)
        order = np.lexsort([costs_of[metric] for metric in reversed(OBJECTIVES[self.objective])])
        found = {metric: float(values[order[0]]) for metric, values in costs_of.items()}
        return found, self.steps(int(closed.trail[order[0]]))

    def ends(self, limit: Mapping[str, float]) -> Costs | None:
        """The undominated costs of all Einsums, within the limit by metric."""
        self.limit, self.log, self.reached = limit, [], []
        self.survey()
        zero = np.zeros(1)
        width = len(self.rows[0][0].seconds[0])
        closed: Costs | None = Costs(zero, zero, zero, np.zeros((1, width)), zero, zero, np.full(1, -1, dtype=np.int64))
        opened: dict[Open, Costs] = {}
        for place, moves in enumerate(self.moves):
            self.reached.append({**opened, **({} if closed is None else {CLOSED: closed})})
            grown: dict[Open, list[Costs]] = {}
            for move in moves:
                costs, ahead = self.reached[place].get(move.state), self.ahead[place + 1].get(move.after)
                more = None if costs is None or ahead is None else self.moved(move, costs, ahead)
                if more is not None:
                    grown.setdefault(move.after, []).append(more)
            opened = {state: self.logged(state, parts, place) for state, parts in grown.items()}
            closing = [self.closed(costs) for state, costs in opened.items() if self.may_close(state, place + 1)]
            closed = self.kept(together(closing), closed=True) if closing else None
            opened = {state: costs for state, costs in opened.items() if self.may_go_on(state, place + 1)}
        return closed

    def survey(self) -> None:
        """Find the moves that may lead to the end within the limit, and what is ahead of each state."""
        rest = [*np.cumsum(self.least[::-1], axis=0)[::-1], np.zeros_like(self.least[0])]
        self.moves = []
        reached: dict[Open, Reached] = {CLOSED: Reached(0.0, np.zeros_like(self.least[0]))}
        for place in range(len(self.rows)):
            self.moves.append([])
            after: dict[Open, Reached] = {}
            for state, so_far in reached.items():
                for to, rows in self.following(state, place):
                    move = Move(state, rows, to, _fresh(state, rows))
                    now = Reached(so_far.held + float(rows.held.min()) + move.fresh, so_far.least + rows.least)
                    if now.held <= rows.buffer[1] and self.within(now.least + rest[place + 1]):
                        self.moves[-1].append(move)
                        after[to] = now.or_less(after.get(to))
            reached = {state: least for state, least in after.items() if self.may_go_on(state, place + 1)}
            ends = [least for state, least in after.items() if self.may_close(state, place + 1)]
            for least in ends:
                reached[CLOSED] = Reached(0.0, least.least).or_less(reached.get(CLOSED))
        onward = {CLOSED: np.zeros_like(self.least[0])}
        self.ahead = [onward]
        for place in reversed(range(len(self.rows))):
            before: dict[Open, Array] = {}
            for move in self.moves[place]:
                if CLOSED in onward and self.may_close(move.after, place + 1):
                    onward[move.after] = _least(onward.get(move.after), onward[CLOSED])
                if move.after in onward:
                    before[move.state] = _least(before.get(move.state), move.rows.least + onward[move.after])
            onward = before
            self.ahead.insert(0, onward)

    @cached_property
    def least(self) -> list[Array]:
        """What each Einsum comes to at least: energy, DRAM traffic, seconds."""
        return [np.minimum.reduce([rows.least for rows in every]) for every in self.rows]

    @property
    def floor(self) -> dict[str, float]:
        """What all come to at least, by metric, if each costs the least that it can."""
        return _metrics(np.sum(self.least, axis=0))

    def within(self, least: Array) -> bool:
        """Whether energy, DRAM traffic and seconds come to the limit."""
        found = _metrics(least)
        return all(found[metric] <= most * MARGIN for metric, most in self.limit.items())

    def following(self, state: Open, place: int) -> Iterator[tuple[Open, Rows]]:
        """Rows of an Einsum that may come next, and the state that they lead to."""
        start = place if state.start is None else state.start
        for own, loops in self.shared_loops(state, place):
            if not all(self.fusion.may_share(start, place + 1, name) for name, _ in loops):
                continue
            for rows in self.by_loops[place].get(own, ()):
                if state.start is not None and rows.buffer != state.buffer:
                    continue
                waiting = self.waiting(state, rows, place, start)
                if waiting is not None:
                    yield Open(start, rows.buffer, loops, waiting), rows

    @cached_property
    def by_loops(self) -> list[dict[Loops, list[Rows]]]:
        """Rows of each Einsum by its shared loops."""
        found: list[dict[Loops, list[Rows]]] = []
        for every in self.rows:
            own: dict[Loops, list[Rows]] = {}
            for rows in every:
                own.setdefault(rows.loops, []).append(rows)
            found.append(own)
        return found

    def shared_loops(self, state: Open, place: int) -> Iterator[tuple[Loops, Loops]]:
        """Loops with which an Einsum may join a group, and those that the group then has.

        An Einsum shares the outermost loops, up to the first over a rank that it lacks: it runs before or after those
        further in.
        """
        if state.start is None:
            yield from ((own, own) for own in self.by_loops[place])
            return
        variables = self.fusion.einsums[place].variables
        own = tuple(loop for loop in state.loops if loop[0] in variables)
        if own != state.loops[: len(own)]:
            return
        yield own, state.loops
        if own == state.loops:
            before = {name for each in self.fusion.einsums[state.start : place] for name in each.variables}
            if not set(variables) <= before:
                for more in self.by_loops[place]:
                    added = more[len(own) :]
                    if added and more[: len(own)] == own and not any(name in before for name, _ in added):
                        yield more, more

    def waiting(self, state: Open, rows: Rows, place: int, start: int) -> tuple[tuple[str, str], ...] | None:
        """What waits in the buffer once an Einsum has joined; None where it asks for what is not there."""
        there, finds = dict(state.waiting), state.start is None
        stays, einsum = dict(rows.stays), self.fusion.einsums[place]
        for name in dict.fromkeys(access.tensor for access in (*einsum.inputs, einsum.output)):
            how, makes, reads = stays.get(name), einsum.name == name, einsum.reads(name)
            later = self.fusion.makers.get(name, -1) > place
            if name in there:
                if (makes and how is None) or (not makes and how != HERE):
                    return None
                finds = True
                there[name] = LEFT if how == LEFT else there[name]
            elif how == HERE:
                carried = reads and not makes and later
                missed = makes and any(start <= reader < place for reader in self.fusion.readers.get(name, ()))
                if missed or not (makes or carried):
                    return None
                there[name] = HERE
            elif how == LEFT:
                if later and not makes:
                    return None
                there[name] = LEFT
        if not finds:
            return None
        going_on = {name: how for name, how in there.items() if self.fusion.users(name)[-1] > place}
        return tuple(sorted(going_on.items()))

    def moved(self, move: Move, costs: Costs, ahead: Array) -> Costs | None:
        """Every state with every row; `ahead` is what the Einsums to come cost at least."""
        rows = move.rows
        one, other = (
            np.repeat(np.arange(len(costs.energy)), len(rows.energy)),
            np.tile(np.arange(len(rows.energy)), len(costs.energy)),
        )
        held = costs.held[one] + rows.held[other] + move.fresh
        fits = held <= rows.buffer[1]
        one, other, held = one[fits], other[fits], held[fits]
        self.priced += len(one)
        more = Costs(
            costs.energy[one] + rows.energy[other],
            costs.dram[one] + rows.dram[other],
            costs.latency[one],
            costs.seconds[one] + rows.seconds[other],
            held,
            costs.most[one],
            np.stack([costs.trail[one], rows.place[other]], axis=1),
        )
        within = self.promising(more, ahead)
        return more.take(within) if within.any() else None

    def rests(self, amounts: Sequence[Amount]) -> list[dict[tuple[Loops, Stays], dict[Amount, Front]]]:
        """For each Einsum, what all the others come to at least, by its shared loops and what stays, and by amount.

        Of all ways within the limit that `best` went through.
        """
        found: list[dict[tuple[Loops, Stays], dict[Amount, Front]]] = [{} for _ in self.rows]
        for amount in amounts:
            ended = 0.0  # what the Einsums after some place come to, where a group ends there
            onward: dict[Open, list[Front]] = {}
            for place in reversed(range(len(self.rows))):
                before: dict[Open, list[Front]] = {}
                through: dict[tuple[Loops, Stays], list[Front]] = {}
                for move in self.moves[place]:
                    costs = self.reached[place].get(move.state)
                    if costs is None:
                        continue
                    after = list(onward.get(move.after, ()))
                    if self.may_close(move.after, place + 1):
                        after.append((np.zeros(1), np.full(1, ended)))
                    if not after:
                        continue
                    rest = joined(after)
                    own = added(front_of(move.rows.held, _row_amount(move.rows, amount)), rest, move.fresh)
                    fits = own[0] <= move.rows.buffer[1]
                    before.setdefault(move.state, []).append((own[0][fits], own[1][fits]))
                    so_far = front_of(costs.held, _amount(costs, amount))
                    through.setdefault((move.rows.loops, move.rows.stays), []).append(added(so_far, rest, move.fresh))
                for key, fronts in through.items():
                    found[place].setdefault(key, {})[amount] = joined(fronts)
                closed = joined(before.pop(CLOSED, [(np.zeros(0), np.zeros(0))]))
                ended = float(closed[1].min(initial=np.inf))
                onward = {state: [joined(fronts)] for state, fronts in before.items()}
        return found

    def logged(self, state: Open, parts: Sequence[Costs], place: int) -> Costs:
        """The undominated of some states, each with a place in the log."""
        costs = self.kept(together(parts), closed=False)
        begins = state.start == place
        start = len(self.log)
        self.log += [(before, row, begins, state.loops) for before, row in costs.trail.tolist()]
        costs.trail = np.arange(start, len(self.log))
        return costs

    def closed(self, costs: Costs) -> Costs:
        """States once their group has ended."""
        zero = np.zeros_like(costs.energy)
        return Costs(
            costs.energy,
            costs.dram,
            costs.latency + costs.seconds.max(axis=1),
            np.zeros_like(costs.seconds),
            zero,
            np.maximum(costs.most, costs.held),
            costs.trail,
        )

    def may_close(self, state: Open, end: int) -> bool:
        """Whether a group may end before an Einsum: nothing that is in the buffer alone is touched again, no iteration is
        torn apart, and a single Einsum has no loops to share."""
        start = state.start if state.start is not None else end
        if (end - start == 1 and state.loops) or any(how == HERE for _, how in state.waiting):
            return False
        if self.demanded is not None and (start, end) not in self.demanded:
            return False
        for reader, maker in self.fusion.waiting:
            inside = (start <= reader < end, start <= maker < end)
            if any(inside) and not (all(inside) and self.steps_alone(state, reader)):
                return False
        return True

    def steps_alone(self, state: Open, place: int) -> bool:
        """Whether a group goes through the iterations of an Einsum one at a time."""
        factors = dict(state.loops)
        sizes, iterative = self.fusion.sizes, self.fusion.cascade.iterative
        return all(
            factors.get(name, 1) == sizes[name] for name in self.fusion.einsums[place].variables if name in iterative
        )

    def may_go_on(self, state: Open, end: int) -> bool:
        """Whether more Einsums may join a group."""
        return bool(state.waiting) and end < len(self.rows)

    def kept(self, costs: Costs, *, closed: bool) -> Costs:
        """Without dominated states."""
        if len(costs.energy) == 1:
            return costs.take(np.zeros(1, dtype=np.int64))
        zero = np.zeros(len(costs.energy))
        times = [costs.latency, *(costs.latency + column for column in costs.seconds.T)]
        every: list[Array] = [] if closed else [costs.held]
        every += [costs.most] if self.front else []
        then: list[Any]
        if closed:
            values = self.metrics(costs)
            if self.objective == "edp":
                every, then = [costs.latency, costs.energy], [costs.most]
            else:
                then = [values[metric] for metric in OBJECTIVES[self.objective]]
        elif self.objective in ("latency", "edp"):
            every, then = [*every, *times], [costs.energy, costs.most]
        else:
            first = [costs.dram] if self.objective == "dram" else []
            then = [*first, costs.energy, times, costs.most]
        trail = costs.trail if costs.trail.ndim == 2 else costs.trail[:, None]
        keep = undominated([zero], Ranking(every, [], then), tuple(trail.T))
        return costs.take(keep)

    def metrics(self, costs: Costs, ahead: Array | None = None) -> dict[str, Array]:
        """What states come to at least, by metric; `ahead` is what the Einsums to come cost at least."""
        more: Any = np.zeros(2 + costs.seconds.shape[1]) if ahead is None else ahead
        found = {
            "energy": costs.energy + more[0],
            "dram": costs.dram + more[1],
            "latency": costs.latency + (costs.seconds + more[2:]).max(axis=1),
            "capacity": np.maximum(costs.most, costs.held),
        }
        found["edp"] = found["energy"] * found["latency"]
        return found

    def promising(self, costs: Costs, ahead: Array) -> NDArray[np.bool_]:
        """States that the limit does not rule out."""
        found = self.metrics(costs, ahead)
        within = np.ones(len(costs.energy), dtype=bool)
        for metric, most in self.limit.items():
            within &= found[metric] <= most * MARGIN
        return within

    def steps(self, trail: int) -> list[Step]:
        """The rows behind a place in the log; the loops are those that the group ends up with."""
        found: list[Step] = []
        loops: Loops | None = None
        while trail >= 0:
            trail, row, begins, own = self.log[trail]
            loops = own if loops is None else loops
            found.append(Step(row, begins, loops))
            if begins:
                loops = None
        return found[::-1]


def _metrics(least: Array) -> dict[str, float]:
    energy, dram, latency = float(least[0]), float(least[1]), float(least[2:].max())
    return {"energy": energy, "dram": dram, "latency": latency, "edp": energy * latency}


def _least(one: Array | None, other: Array) -> Array:
    return other if one is None else np.minimum(one, other)


def _fresh(state: Open, rows: Rows) -> float:
    there = dict(state.waiting)
    return sum(size for name, size in rows.waits.items() if name not in there)


def _amount(costs: Costs, amount: Amount) -> Array:
    if isinstance(amount, int):
        return costs.latency + costs.seconds[:, amount]
    return np.asarray(getattr(costs, amount))


def _row_amount(rows: Rows, amount: Amount) -> Array:
    return rows.seconds[:, amount] if isinstance(amount, int) else np.asarray(getattr(rows, amount))
