"""The best mapping of a cascade over all ways to fuse it, with proof.

First the outer part of every Einsum's mappings, all of them joined: what the whole comes to at least, and, for whatever
one Einsum shares and leaves in the buffer, what the others come to at least. Then every mapping of each Einsum that
could be part of something hardly more than that least; where those join, the best is found, and else more is allowed.
`dse.search.join` puts them together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dse.search.finished import Stage, nest_of
from dse.search.fusion import Fusion, with_shared_loops
from dse.search.growth import Growth
from dse.search.join import NO_BUFFER, Amount, Join, Rows, Step
from dse.search.mapper import Found, Proof, map_einsum
from dse.search.mapspace import Mapspace
from dse.search.outer import OuterGrowth, beyond_buffer, bounds_of, least_seconds
from dse.search.pool import Pool
from dse.search.population import Array, Column, Population
from dse.search.problem import HERE, LevelMapping, Nest, Point, Problem
from dse.search.rest import Front, Loops, Rest, Stays, front_of
from dse.search.run import CHUNK_ROWS, Run
from dse.search.size import size_of
from dse.specs.mapspace import OBJECTIVES

Key = tuple[str, str]
"""A time that adds up over fused Einsums: (memory, bandwidth), or ("", "") for compute."""

COMPUTE: Key = ("", "")
SLACKS = (0.003, 0.03, 0.2, 1.0)
"""How much more than the least of all outer parts is looked for, one after the other."""


@dataclass(frozen=True)
class Placed:
    """An Einsum in a mapping of the whole: its problem, its own nest, and the loops that it shares."""

    problem: Problem
    nest: Nest


@dataclass(frozen=True)
class Group:
    """Successive Einsums that share loops, outermost first, and what stays in the buffer for them."""

    einsums: tuple[str, ...]
    loops: Loops
    stays: tuple[str, ...]


@dataclass(frozen=True)
class FusedMap:
    """The best mapping of a cascade: Einsums in order, in groups, with costs (capacity in bytes) and proof."""

    placed: tuple[Placed, ...]
    groups: tuple[Group, ...]
    costs: Mapping[str, float]
    proof: Proof


@dataclass(frozen=True)
class Candidates:
    """What a run leaves of one Einsum on one unit, by shared loops and what stays, and how to read a nest back; of outer
    parts also the least energy of what is inside the buffer, and how many mappings there are in all."""

    problem: Problem
    rows: tuple[Rows, ...]
    stages: tuple[Stage, ...]
    priced: int
    cut: Mapping[str, int]
    inside: float = 0.0
    size: int = 0


@dataclass(frozen=True)
class Task:
    """An Einsum on one unit, and what is to be beaten.

    `rest` is what the other Einsums come to at least, `inside` what the inside of the buffer does.
    """

    problem: Problem
    objective: str
    limit: Mapping[str, float]
    rest: Mapping[tuple[Loops, Stays], Mapping[Column, Front]]
    inside: float
    keys: Sequence[Key]
    fusion: Fusion

    @property
    def rest_of_all(self) -> Rest:
        """The rest, in the buffer that the Einsum has."""
        buffer = self.problem.buffer
        return Rest(math.inf if buffer is None else self.problem.levels[buffer].capacity, self.rest)


class FusedSearch:
    """The search for the mapping of least `objective` over all ways to fuse, whose outer parts are begun at once.

    `problems` holds each Einsum's, one for each unit; `demanded` are the only groups allowed, as (first, end).
    """

    def __init__(
        self,
        problems: Sequence[Sequence[Problem]],
        fusion: Fusion,
        objective: str,
        pool: Pool,
        *,
        demanded: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        wide = [[with_shared_loops(problem, fusion) for problem in own] for own in problems]
        self.search, self.pool = _Search(wide, fusion, objective, _keys(wide), demanded), pool
        self.outer = pool.begin(_outer_part, self.search.tasks({}), _points)

    def best(
        self,
        known: Callable[[], Mapping[str, float]] = dict,
        progress: Callable[[str, float], None] = lambda name, share: None,
    ) -> FusedMap | None:
        """What is found; None where there is no valid mapping.

        `known` says what some mapping costs, in the units of `FusedMap.costs`, so that in the end nothing is looked at
        which costs more.
        """
        search = self.search
        parts = self.outer.results()
        outer = search.join(parts)
        progress("outer parts", 1 / 3)
        if outer is None:
            return None
        first = OBJECTIVES[search.objective][0]

        def most() -> dict[str, float]:
            per_unit = search.problems[0][0].word_bytes if first == "dram" else 1
            return {metric: value / per_unit for metric, value in known().items() if metric == first}

        tried = (outer.best(limit) for limit in search.limits(outer.floor, most, settle=False))
        least = next((found[0] for found in tried if found is not None), None)
        if least is None:
            return None
        progress("least of all", 1 / 2)
        for limit in search.limits(least, most, settle=True):
            outer.best(limit)
            rests = outer.rests(search.amounts)
            tasks = search.tasks(limit, rests, [part.inside for part in parts])
            exact = self.pool.begin(_candidates, tasks, _points).results()
            join = search.join(exact)
            best = None if join is None else join.best(limit)
            if join is not None and best is not None:
                progress("every mapping", 1.0)
                size = math.prod(sum(part.size for part in own) for own in search.grouped(parts))
                return search.finished(exact, best, outer.priced + join.priced, size)
        return None


def fused_traffic(
    problems: Sequence[Problem],
    fusion: Fusion,
    *,
    jobs: int = 1,
    progress: Callable[[str, float], None] = lambda name, share: None,
) -> Found:
    """The least DRAM traffic over what the buffer holds, both in bytes, over all ways to fuse; one problem an Einsum, of
    the outermost memory and the buffer alone."""
    wide = [[with_shared_loops(problem, fusion)] for problem in problems]
    search = _Search(wide, fusion, "dram", _keys(wide), None)
    tasks, found = search.tasks({}), dict[int, Candidates]()
    with Pool(jobs) as pool:
        for place, part in pool.begin(_candidates, tasks, _points).done():
            found[place] = part
            progress(tasks[place].problem.einsum, len(found) / (len(tasks) + 1))
    parts = [found[place] for place in range(len(tasks))]
    join = search.join(parts)
    ends = None if join is None else replace(join, front=True).ends({})
    priced = sum(part.priced for part in parts)
    if join is None or ends is None:
        return Found([], Proof(_size(wide), priced, {}))
    held, traffic = front_of(ends.most, ends.dram)
    word = problems[0].word_bytes
    points = [
        Point((), {"capacity": size * word, "dram": moved * word})
        for size, moved in zip(held.tolist(), traffic.tolist(), strict=True)
    ]
    return Found(points, Proof(_size(wide), priced + join.priced, {}))


def fused_size(problems: Sequence[Sequence[Problem]], fusion: Fusion) -> int:
    """How many ways there are to choose a mapping, shared loops and what stays for every Einsum."""
    return _size([[with_shared_loops(problem, fusion) for problem in own] for own in problems])


def _size(problems: Sequence[Sequence[Problem]]) -> int:
    return math.prod(sum(size_of(Mapspace(each)) for each in own) for own in problems)


def _points(task: Task) -> float:
    return math.prod(task.problem.sizes)


def _keys(problems: Sequence[Sequence[Problem]]) -> tuple[Key, ...]:
    """Compute, and every bandwidth of a memory on some path."""
    found = [
        (level.memory, key) for own in problems for problem in own for level in problem.levels for key in level.seconds
    ]
    return (COMPUTE, *dict.fromkeys(found))


@dataclass
class _Search:
    """What the rounds of one search share."""

    problems: Sequence[Sequence[Problem]]
    fusion: Fusion
    objective: str
    keys: tuple[Key, ...]
    demanded: Sequence[tuple[int, int]] | None

    @property
    def amounts(self) -> list[Amount]:
        """What the objective, and what breaks its ties first, is bounded by."""
        found: list[Amount] = ["energy"]
        if self.objective == "dram":
            found.append("dram")
        if self.objective in ("latency", "edp"):
            found += range(len(self.keys))
        return found

    def tasks(
        self,
        limit: Mapping[str, float],
        rests: Sequence[Mapping[tuple[Loops, Stays], Mapping[Amount, Front]]] = (),
        inside: Sequence[float] = (),
    ) -> list[Task]:
        """What is to be done within a limit, Einsum by Einsum and unit by unit; `rests` by Einsum, `inside` by task."""
        found: list[Task] = []
        for place, own in enumerate(self.problems):
            for problem in own:
                columns = self.columns(problem)
                rest = {
                    key: {column: block[amount] for amount in block for column in columns[amount]}
                    for key, block in (rests[place] if rests else {}).items()
                }
                least = inside[len(found)] if inside else 0.0
                found.append(Task(problem, self.objective, limit, rest, least, self.keys, self.fusion))
        return found

    def columns(self, problem: Problem) -> dict[Amount, list[Column]]:
        """The columns of a run that hold an amount."""
        found: dict[Amount, list[Column]] = {"energy": [("energy",)], "dram": [("dram",)]}
        for number, (memory, key) in enumerate(self.keys):
            found[number] = [
                ("seconds", depth, key)
                for depth, level in enumerate(problem.levels)
                if level.memory == memory and key in level.seconds
            ]
        found[self.keys.index(COMPUTE)] = [("latency",)]
        return found

    def limits(
        self, least: Mapping[str, float], most: Callable[[], Mapping[str, float]], *, settle: bool
    ) -> Iterator[Mapping[str, float]]:
        """What mappings may come to, wider and wider, where nothing can come to less than `least`: in the end `most`, and
        where a round costs much, to `settle` things, nothing wider than that.

        Of latency and DRAM traffic, of which many mappings reach the least, first with what breaks ties.
        """
        first, second = OBJECTIVES[self.objective][:2]
        if first in ("latency", "dram"):
            yield from ({first: least[first], second: least[second] * (1 + slack)} for slack in SLACKS)
        for slack in SLACKS:
            if settle and slack > SLACKS[0] and least[first] * (1 + slack) >= most().get(first, math.inf):
                break
            yield {first: least[first] * (1 + slack)}
        yield most()

    def grouped(self, candidates: Sequence[Candidates]) -> list[list[Candidates]]:
        """Candidates by Einsum."""
        left = iter(candidates)
        return [[next(left) for _ in own] for own in self.problems]

    def join(self, candidates: Sequence[Candidates]) -> Join | None:
        """All ways to put candidates together."""
        rows = [
            [replace(rows, place=rows.place * len(own) + unit) for unit, each in enumerate(own) for rows in each.rows]
            for own in self.grouped(candidates)
        ]
        return Join(self.fusion, rows, self.objective, self.demanded) if all(rows) else None

    def finished(
        self, candidates: Sequence[Candidates], best: tuple[Mapping[str, float], Sequence[Step]], joined: int, size: int
    ) -> FusedMap:
        """The mapping that was found, Einsum by Einsum, where so many states were `joined`, of a space of this `size`."""
        costs, steps = best
        placed, groups = [], []
        for own, step in zip(self.grouped(candidates), steps, strict=True):
            row, unit = divmod(step.row, len(own))
            chosen = own[unit]
            nest = nest_of(chosen.problem, chosen.stages, row)
            here = {name for name, how in _staying(chosen, row) if how == HERE}
            placed.append(Placed(_without_shared(chosen.problem), _own_nest(chosen.problem, nest, here)))
            stays = {name for name, _ in _staying(chosen, row)}
            if step.begins:
                groups.append(Group((), step.loops, ()))
            last = groups[-1]
            groups[-1] = Group(
                (*last.einsums, chosen.problem.einsum), last.loops, tuple(dict.fromkeys((*last.stays, *sorted(stays))))
            )
        cut: Counter[str] = Counter()
        for each in candidates:
            cut.update(each.cut)
        priced = sum(each.priced for each in candidates) + joined
        word = self.problems[0][0].word_bytes
        in_bytes = {**costs, "capacity": costs["capacity"] * word, "dram": costs["dram"] * word}
        return FusedMap(tuple(placed), tuple(groups), in_bytes, Proof(size, priced, dict(sorted(cut.items()))))


def _candidates(task: Task) -> Candidates:
    """Mappings of one Einsum that may be part of what comes to the limit."""
    problem, rest = task.problem, task.rest_of_all
    beyond: Mapping[Column, Sequence[Array]] = {}
    beside: Mapping[Column, Sequence[Array]] = {}
    growth = Growth(Mapspace(problem), with_dram=True, apart=True)
    if task.limit and (problem.shared or problem.stays) and growth.space.tabled:
        beyond, beside = beyond_buffer(problem, task.inside, task.objective, task.limit, rest)
    bounds = bounds_of(growth, beyond)
    run = Run(growth, bounds, task.objective, (), task.limit, None, CHUNK_ROWS, rest=rest, beside=beside)
    return _finished(run, task)


def _outer_part(task: Task) -> Candidates:
    return replace(_outer_rows(task), size=size_of(Mapspace(task.problem)))


def _outer_rows(task: Task) -> Candidates:
    """The outer parts of its mappings; where others can find nothing in its buffer, the least of each cost as one."""
    problem = task.problem
    if problem.shared or problem.stays:
        try:
            growth = OuterGrowth(problem)
        except ValueError:
            return Candidates(problem, (), (), 0, {})
        rest = Rest(growth.problem.levels[-1].capacity, {})
        run = Run(growth, bounds_of(growth), task.objective, (), task.limit, None, CHUNK_ROWS, rest=rest)
        return replace(_finished(run, task), inside=growth.inside)
    best = map_einsum(problem, "energy").points
    if not best:
        return Candidates(problem, (), (), 0, {})
    dram = map_einsum(problem, "dram").points[0].costs["dram"] if task.objective == "dram" else 0.0
    seconds = np.zeros((1, len(task.keys)))
    seconds[0, task.keys.index(COMPUTE)] = least_seconds(problem)
    energy = np.array([best[0].costs["energy"]])
    alone = Rows(
        NO_BUFFER, (), (), {}, energy, np.array([dram / problem.word_bytes]), seconds, np.zeros(1), np.zeros(1, int)
    )
    return Candidates(problem, (alone,), (), 0, {})


def _finished(run: Run, task: Task) -> Candidates:
    rows: list[Rows] = []
    for population in run.finished():
        rows += _rows(run.problem, run, population, task.keys, task.fusion)
    return Candidates(run.problem, tuple(rows), tuple(run.stages), run.priced, dict(run.cut))


def _rows(problem: Problem, run: Run, population: Population, keys: Sequence[Key], fusion: Fusion) -> list[Rows]:
    """The finished mappings of one kind, by shared loops and what stays."""
    columns, count = population.columns, len(population)
    seconds = np.zeros((count, len(keys)))
    seconds[:, 0] = columns["latency",]
    for name, column in columns.items():
        if name[:2] == ("sum", "seconds"):
            seconds[:, keys.index((problem.levels[name[2]].memory, name[3]))] = column
    dram = columns.get(("sum", "dram"), np.zeros(count))
    label, shared = columns.get(("stays",), np.zeros(count, dtype=np.int64)), columns["shared",]
    last, before = run.stages[-1], run.stages[-2]
    level = None if problem.buffer is None else problem.levels[problem.buffer]
    buffer = NO_BUFFER if level is None else (level.memory, level.capacity)
    found = []
    kind = shared * len(run.stays) + label
    order = np.argsort(kind, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(kind[order])) + 1)
    firsts = population.origin[[own[0] for own in groups]]
    extents = before.extents[last.origin[firsts]]
    alone = np.where([name in fusion.cascade.iterative for name in problem.ranks], 1, extents)
    held = {name: run.space.held((name,), alone).tolist() for stays in run.stays for name, _ in stays}
    for number, own in enumerate(groups):
        place = population.origin[own]
        _, loop_order = run.space.decode(int(last.choice[place[0]]))
        loops = problem.shared_loops(extents[number].tolist(), loop_order)
        stays = run.stays[int(label[own[0]])]
        waits = {name: held[name][number] for name, _ in stays}
        found.append(
            Rows(
                buffer,
                loops,
                stays,
                waits,
                columns["sum", "energy"][own],
                dram[own],
                seconds[own],
                columns["held",][own],
                place,
            )
        )
    return found


def _staying(candidates: Candidates, row: int) -> tuple[tuple[str, str], ...]:
    return next(rows.stays for rows in candidates.rows if row in rows.place)


def _without_shared(problem: Problem) -> Problem:
    return replace(problem, levels=problem.levels[1:], homes={}, shared=(), batch=(), stays={})


def _own_nest(problem: Problem, nest: Nest, here: set[str]) -> Nest:
    """A nest without the loops that it shares; what lives in the buffer alone is kept by no level further out."""
    return tuple(
        LevelMapping(
            level.memory,
            level.temporal,
            level.spatial,
            tuple(name for name in level.keep if depth > 0 or name not in here),
        )
        for depth, level in enumerate(nest[1:])
    )
