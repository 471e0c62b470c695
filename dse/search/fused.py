"""The best mapping of a cascade over all ways to fuse it, with proof.

First the least that each Einsum comes to whatever it is fused with; then a good mapping from quick runs; then, of each
Einsum, every mapping that could be part of a better one: it costs no more than what is known, less the least of all the
others. `dse.search.join` puts them together.
"""

from __future__ import annotations

import math
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.search.bounds import Bounds
from dse.search.finished import Stage, nest_of
from dse.search.fusion import Fusion, with_shared_loops
from dse.search.growth import Growth
from dse.search.join import NO_BUFFER, Join, Loops, Rows, Step
from dse.search.mapper import Proof, map_einsum
from dse.search.mapspace import Mapspace
from dse.search.population import Column, Population
from dse.search.problem import HERE, LevelMapping, Nest, Problem
from dse.search.run import CHUNK_ROWS, MARGIN, Beam, Run
from dse.specs.mapspace import OBJECTIVES

Key = tuple[str, str]
"""A time that adds up over fused Einsums: (memory, bandwidth), or ("", "") for compute."""

COMPUTE: Key = ("", "")
BEAM_ROWS = 48
"""Partial mappings of each kind that quick runs keep at each boundary."""


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
    """What a run leaves of one Einsum on one unit, by shared loops and what stays, and how to read a nest back."""

    problem: Problem
    rows: tuple[Rows, ...]
    stages: tuple[Stage, ...]
    priced: int
    cut: Mapping[str, int]


def map_fused(
    problems: Sequence[Sequence[Problem]],
    fusion: Fusion,
    objective: str,
    *,
    demanded: Sequence[tuple[int, int]] | None = None,
    known: Mapping[str, float] | None = None,
    jobs: int = 1,
    progress: Callable[[str, float], None] = lambda name, share: None,
) -> FusedMap | None:
    """The mapping of least `objective` over all ways to fuse; `problems` holds each Einsum's, one for each unit.

    `demanded` are the only groups allowed, as (first, end); `known` is what some mapping costs, in the units of
    `FusedMap.costs`, so that nothing is looked at which costs more. None where there is no valid mapping. Interrupted once a good
    mapping is known, it gives that one, not proven.
    """
    wide = [[with_shared_loops(problem, fusion) for problem in own] for own in problems]
    keys = _keys(wide)
    steps = 3 * len(wide)
    with _Pool(jobs) as pool:
        least = pool.map(_least, [(own, objective, keys) for own in wide])
        progress("least costs", len(wide) / steps)
        if any(each is None for each in least):
            return None
        search = _Search(wide, fusion, objective, keys, least, demanded)
        limit: dict[str, float] = {}
        if known is not None:
            limit = search.limit({**known, "dram": known["dram"] / problems[0][0].word_bytes})
        quick = pool.map(_candidates, search.jobs(limit, Beam(BEAM_ROWS, apart=True)))
        found = search.join(quick, limit)
        progress("quick mappings", 2 * len(wide) / steps)
        limit = search.limit(found[0]) if found is not None else limit
        try:
            exact = pool.map(_candidates, search.jobs(limit, None))
            progress("every mapping", 1.0)
            best = search.join(exact, limit)
        except KeyboardInterrupt:
            if found is None:
                raise
            pool.stop()
            known_best = search.finished(quick, *found)
            return replace(known_best, proof=replace(known_best.proof, complete=False))
    return None if best is None else search.finished(exact, *best)


class _Pool:
    """Runs functions on arguments, in order, here or in processes."""

    def __init__(self, jobs: int) -> None:
        # Ctrl-C ends a worker without a word of its own
        stops = (signal.SIGINT, signal.SIG_DFL)
        self.pool = ProcessPoolExecutor(jobs, initializer=signal.signal, initargs=stops) if jobs > 1 else None

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *problem: object) -> None:
        if problem[0] is not None:
            self.stop()
        elif self.pool is not None:
            self.pool.shutdown()

    def stop(self) -> None:
        """Start nothing more, and wait for nothing."""
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)

    def map(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        if self.pool is None:
            return [function(*each) for each in arguments]
        return [future.result() for future in [self.pool.submit(function, *each) for each in arguments]]


def _keys(problems: Sequence[Sequence[Problem]]) -> tuple[Key, ...]:
    """Compute, and every bandwidth of a memory on some path."""
    found = [
        (level.memory, key) for own in problems for problem in own for level in problem.levels for key in level.seconds
    ]
    return (COMPUTE, *dict.fromkeys(found))


def _least(
    problems: Sequence[Problem], objective: str, keys: Sequence[Key]
) -> tuple[float, float, NDArray[np.float64]] | None:
    """What an Einsum comes to at least, whatever it is fused with: energy, DRAM traffic in elements, seconds by key."""
    energy, dram, compute = math.inf, math.inf, math.inf
    for problem in problems:
        best = map_einsum(problem, "energy").points
        if not best:
            continue
        energy = min(energy, best[0].costs["energy"])
        if objective == "dram":
            dram = min(dram, map_einsum(problem, "dram").points[0].costs["dram"] / problem.word_bytes)
        space = Mapspace(problem)
        busy = math.prod(int(ways.factors.prod(axis=1).max(initial=1)) for ways in space.fanouts)
        compute = min(compute, math.prod(problem.sizes) * problem.operation_s / busy)
    if energy == math.inf:
        return None
    return energy, 0.0 if dram == math.inf else dram, np.array([compute, *[0.0] * (len(keys) - 1)])


@dataclass
class _Search:
    """What the rounds of one search share."""

    problems: Sequence[Sequence[Problem]]
    fusion: Fusion
    objective: str
    keys: tuple[Key, ...]
    least: Sequence[tuple[float, float, NDArray[np.float64]]]
    demanded: Sequence[tuple[int, int]] | None

    def jobs(self, limit: Mapping[str, float], beam: Beam | None) -> list[tuple[Any, ...]]:
        """Arguments of `_candidates`, Einsum by Einsum and unit by unit."""
        found = []
        for place, own in enumerate(self.problems):
            others = [each for other, each in enumerate(self.least) if other != place]
            energy, dram = sum(each[0] for each in others), sum(each[1] for each in others)
            seconds = sum((each[2] for each in others), np.zeros(len(self.keys)))
            for problem in own:
                rest: dict[Column, float] = {("energy",): energy, ("dram",): dram, ("latency",): float(seconds[0])}
                for depth, level in enumerate(problem.levels):
                    for key in level.seconds:
                        rest["seconds", depth, key] = float(seconds[self.keys.index((level.memory, key))])
                found.append((problem, self.objective, limit, rest, beam, self.keys, self.fusion))
        return found

    def limit(self, costs: Mapping[str, float]) -> dict[str, float]:
        """What is to be beaten: where nothing can be less than what is known, also in what breaks ties first."""
        first, second = OBJECTIVES[self.objective][:2]
        limit = {first: costs[first]}
        total = [sum(each[number] for each in self.least) for number in range(2)]
        seconds = sum((each[2] for each in self.least), np.zeros(len(self.keys)))
        floor = {"dram": total[1], "latency": float(seconds.max())}.get(first, math.inf)
        if first in ("dram", "latency") and costs[first] <= floor * MARGIN:
            limit[second] = costs[second]
        return limit

    def grouped(self, candidates: Sequence[Candidates]) -> list[list[Candidates]]:
        """Candidates by Einsum."""
        left = iter(candidates)
        return [[next(left) for _ in own] for own in self.problems]

    def join(
        self, candidates: Sequence[Candidates], limit: Mapping[str, float]
    ) -> tuple[dict[str, float], list[Step], Join] | None:
        """The best way to put candidates together."""
        every = self.grouped(candidates)
        rows = [
            [replace(rows, place=rows.place * len(own) + unit) for unit, each in enumerate(own) for rows in each.rows]
            for own in every
        ]
        if not all(rows):
            return None
        join = Join(self.fusion, rows, self.objective, limit, self.least, self.demanded)
        best = join.best()
        return None if best is None else (*best, join)

    def finished(
        self, candidates: Sequence[Candidates], costs: Mapping[str, float], steps: Sequence[Step], join: Join
    ) -> FusedMap:
        """The mapping that was found, Einsum by Einsum."""
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
        priced = sum(each.priced for each in candidates) + join.priced
        size = math.prod(sum(Mapspace(each).size() for each in own) for own in self.problems)
        word = self.problems[0][0].word_bytes
        in_bytes = {**costs, "capacity": costs["capacity"] * word, "dram": costs["dram"] * word}
        return FusedMap(tuple(placed), tuple(groups), in_bytes, Proof(size, priced, dict(sorted(cut.items()))))


def _candidates(
    problem: Problem,
    objective: str,
    limit: Mapping[str, float],
    rest: Mapping[Column, float],
    beam: Beam | None,
    keys: Sequence[Key],
    fusion: Fusion,
) -> Candidates:
    """Mappings of one Einsum that may be part of what comes to the limit."""
    growth = Growth(Mapspace(problem), with_dram=True, apart=True)
    metrics: list[Column] = [("energy",), *(("seconds", 1, key) for key in problem.levels[1].seconds), ("dram",)]
    bounds = {metric: Bounds(growth, metric) for metric in metrics}
    run = Run(growth, bounds, objective, (), limit, beam, CHUNK_ROWS, rest=rest)
    rows: list[Rows] = []
    for population in run.finished():
        rows += _rows(problem, run, population, keys, fusion)
    return Candidates(problem, tuple(rows), tuple(run.stages), run.priced, dict(run.cut))


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
    for code in np.unique(np.stack([label, shared], axis=1), axis=0).tolist():
        own = np.flatnonzero((label == code[0]) & (shared == code[1]))
        place = population.origin[own]
        extents = before.extents[last.origin[place[0]]]
        _, order = run.space.decode(int(last.choice[place[0]]))
        loops = tuple((problem.ranks[rank], int(problem.sizes[rank] // extents[rank])) for rank in reversed(order))
        stays = run.stays[int(code[0])]
        alone = np.where([name in fusion.cascade.iterative for name in problem.ranks], 1, extents)[None, :]
        waits = {name: float(run.space.held((name,), alone)[0]) for name, _ in stays}
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
