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
    """Rows of an Einsum that join a state, of which `costs` are known, and lead to another; `fresh` elements begin to wait."""

    state: Open
    costs: Costs
    rows: Rows
    after: Open
    fresh: float


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

    States that cannot come to the `limit` by metric, whatever the Einsums to come cost, are dropped.
    """

    fusion: Fusion
    rows: Sequence[Sequence[Rows]]
    objective: str
    limit: Mapping[str, float]
    demanded: Sequence[tuple[int, int]] | None = None
    priced: int = 0
    log: list[tuple[int, int, bool, Loops]] = field(default_factory=list)
    moves: list[list[Move]] = field(default_factory=list)

    def best(self) -> tuple[dict[str, float], list[Step]] | None:
        """The best way and its costs (capacity in elements), Einsum by Einsum, or None."""
        count = len(self.rows[0][0].seconds[0]) if self.rows[0] else 1
        zero = np.zeros(1)
        closed: Costs | None = Costs(zero, zero, zero, np.zeros((1, count)), zero, zero, np.full(1, -1, dtype=np.int64))
        opened: dict[Open, Costs] = {}
        for place in range(len(self.rows)):
            grown: dict[Open, list[Costs]] = {}
            self.moves.append([])
            if closed is not None:
                opened[CLOSED] = closed
            for state, costs in opened.items():
                for after, rows in self.following(state, place):
                    move = Move(state, costs, rows, after, _fresh(state, rows))
                    more = self.moved(move, place)
                    if more is not None:
                        self.moves[-1].append(move)
                        grown.setdefault(after, []).append(more)
            opened = {state: self.logged(state, parts, place) for state, parts in grown.items()}
            closing = [self.closed(costs) for state, costs in opened.items() if self.may_close(state, place + 1)]
            closed = self.kept(together(closing), closed=True) if closing else None
            opened = {state: costs for state, costs in opened.items() if self.may_go_on(state, place + 1)}
        if closed is None or not len(closed.energy):
            return None
        costs_of = self.metrics(closed, len(self.rows))
        order = np.lexsort([costs_of[metric] for metric in reversed(OBJECTIVES[self.objective])])
        found = {metric: float(values[order[0]]) for metric, values in costs_of.items()}
        return found, self.steps(int(closed.trail[order[0]]))

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
    def least(self) -> list[tuple[float, float, Array]]:
        """What each Einsum comes to at least: energy, DRAM traffic, seconds."""
        return [
            (
                min(float(rows.energy.min()) for rows in every),
                min(float(rows.dram.min()) for rows in every),
                np.minimum.reduce([rows.seconds.min(axis=0) for rows in every]),
            )
            for every in self.rows
        ]

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

    def moved(self, move: Move, place: int) -> Costs | None:
        """Every state with every row."""
        costs, rows = move.costs, move.rows
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
        within = self.promising(more, place + 1)
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
                    after = list(onward.get(move.after, ()))
                    if self.may_close(move.after, place + 1):
                        after.append((np.zeros(1), np.full(1, ended)))
                    if not after:
                        continue
                    rest = joined(after)
                    own = added(front_of(move.rows.held, _row_amount(move.rows, amount)), rest, move.fresh)
                    fits = own[0] <= move.rows.buffer[1]
                    before.setdefault(move.state, []).append((own[0][fits], own[1][fits]))
                    so_far = front_of(move.costs.held, _amount(move.costs, amount))
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
        zero = np.zeros(len(costs.energy))
        times = [costs.latency, *(costs.latency + column for column in costs.seconds.T)]
        every: list[Array] = [] if closed else [costs.held]
        then: list[Any]
        if closed:
            values = self.metrics(costs, len(self.rows))
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

    def metrics(self, costs: Costs, end: int) -> dict[str, Array]:
        """What states come to at least, by metric, if each Einsum from `end` on costs the least it can."""
        rest = self.least[end:]
        seconds = costs.seconds + sum((times for _, _, times in rest), np.zeros(costs.seconds.shape[1]))
        found = {
            "energy": costs.energy + sum(energy for energy, _, _ in rest),
            "dram": costs.dram + sum(dram for _, dram, _ in rest),
            "latency": costs.latency + seconds.max(axis=1),
            "capacity": np.maximum(costs.most, costs.held),
        }
        found["edp"] = found["energy"] * found["latency"]
        return found

    def promising(self, costs: Costs, end: int) -> NDArray[np.bool_]:
        """States that the limit does not rule out."""
        found = self.metrics(costs, end)
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


def _fresh(state: Open, rows: Rows) -> float:
    there = dict(state.waiting)
    return sum(size for name, size in rows.waits.items() if name not in there)


def _amount(costs: Costs, amount: Amount) -> Array:
    if isinstance(amount, int):
        return costs.latency + costs.seconds[:, amount]
    return np.asarray(getattr(costs, amount))


def _row_amount(rows: Rows, amount: Amount) -> Array:
    return rows.seconds[:, amount] if isinstance(amount, int) else np.asarray(getattr(rows, amount))
