"""Every mapping of a small problem, priced by the nest model: what the mapper must find the best of.

Nothing is shared with the mapper but the problem: factors, loop orders and kept tensors are enumerated outright, and
`count_accesses` prices all factorisations of one choice of orders and keeps in a call.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dse.model.nest import Level, Loop, Operand, busy_units, count_accesses, extents, hull, product, temporal_iterations
from dse.model.tails import count_with_tails, steps_with_tails, within
from dse.search.problem import Problem
from dse.specs.architecture import DIRECTIONS


def factorisations(number: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Every way to write a number as an ordered product."""
    if parts == 1:
        yield (number,)
        return
    for first in range(1, number + 1):
        if number % first == 0:
            for rest in factorisations(number // first, parts - 1):
                yield (first, *rest)


def spread_at_will(problem: Problem, size: int) -> Iterator[tuple[int, ...]]:
    """Every way to write out a rank whose outermost fan-out, inside of which all divides, may have any number of PEs; what
    is outside divides the rounds that it takes. A factor for each level, then for each axis."""

    def outward(depth: int, inside: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        if depth < 0:
            if inside >= size:
                yield (), ()
            return
        for spread in itertools.product(*(range(1, most + 1) for _, most in problem.levels[depth].axes)):
            rounds, factor = math.ceil(size / inside), math.prod(spread)
            if factor > 1 and (size % inside or factor > rounds):
                continue
            rounds = math.ceil(size / (inside * factor))
            for step in range(1, rounds + 1):
                if rounds % step == 0:
                    for levels, axes in outward(depth - 1, inside * factor * step):
                        yield (*levels, step), (*axes, *spread)

    for levels, axes in outward(len(problem.levels) - 1, 1):
        yield (*levels, *axes)


def all_factors(problem: Problem) -> np.ndarray:
    """Factors of every mapping, shape (mappings, slots, ranks); slots are the levels, then the axes."""
    axes = [axis for level in problem.levels for axis in level.axes]
    slots = [*problem.memories, *(axis for axis, _ in axes)]
    choices = []
    for rank, size in zip(problem.ranks, problem.sizes, strict=True):
        own = spread_at_will(problem, size) if rank in problem.imperfect else factorisations(size, len(slots))
        allows = problem.constraints.allows
        choices.append([way for way in own if all(allows(slot, rank, f) for slot, f in zip(slots, way, strict=True))])
    every = np.array([np.array(ways).T for ways in itertools.product(*choices)])
    if not len(every):
        return np.ones((0, len(slots), len(problem.ranks)), dtype=np.int64)
    used = every[:, len(problem.memories) :].prod(axis=2)
    fits = (used <= [size for _, size in axes]).all(axis=1)
    fits &= used.prod(axis=1) >= problem.constraints.utilization * np.prod([size for _, size in axes])
    return every[fits]


def all_costs(problem: Problem) -> dict[str, np.ndarray]:
    """Metrics of every valid mapping, one entry a mapping; `size` counts those of any capacity, orders once."""
    factors = all_factors(problem)
    ranks, levels = problem.ranks, problem.levels
    found: dict[str, list[np.ndarray]] = {name: [] for name in ("energy", "latency", "edp", "dram", "capacity")}
    if not len(factors):
        return {name: np.ones(0) for name in found}
    orders = [_orders(problem, depth) for depth in range(len(levels))]
    for choices in itertools.product(*(problem.keep_choices[depth] for depth in range(len(levels)))):
        keeps = [choice.names for choice in choices]
        for order in itertools.product(*orders):
            nest, slot = [], len(levels)
            for depth, level in enumerate(levels):
                temporal = tuple(Loop(ranks[rank], factors[:, depth, rank]) for rank in order[depth])
                spatial = []
                for _ in level.axes:
                    spatial += [Loop(name, factors[:, slot, rank]) for rank, name in enumerate(ranks)]
                    slot += 1
                nest.append(Level(level.memory, temporal, tuple(spatial)))
            for name, values in _costs(problem, nest, keeps).items():
                found[name].append(values)
    return {name: np.concatenate(values) for name, values in found.items()}


def _orders(problem: Problem, depth: int) -> list[tuple[int, ...]]:
    """Orders of all ranks, outermost first; inside the innermost memory one, since compute is fed at every step."""
    ranks = range(len(problem.ranks))
    if depth == len(problem.levels) - 1:
        return [tuple(ranks)]
    fixed = [problem.ranks.index(name) for name in problem.constraints.order.get(problem.memories[depth], ())]
    free = [rank for rank in ranks if rank not in fixed]
    return [(*fixed, *rest) for rest in itertools.permutations(free)]


def _costs(problem: Problem, nest: Sequence[Level], keeps: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
    operands = [
        Operand(
            operand.name,
            operand.indices,
            operand.is_output,
            tuple(problem.tensors[operand.name] in own for own in keeps),
        )
        for operand in problem.operands
    ]
    tails = {rank: size for rank, size in zip(problem.ranks, problem.sizes, strict=True) if rank in problem.imperfect}
    counts = count_with_tails(nest, operands, tails) if tails else count_accesses(nest, operands)
    steps: Any = steps_with_tails(nest, tails) if tails else temporal_iterations(nest)
    points = math.prod(problem.sizes) if tails else steps * busy_units(nest)
    energy = points * problem.operation_pj
    latency = steps * problem.operation_s
    dram: Any = 0.0
    fits: Any = np.ones(np.shape(steps), dtype=bool)
    held_in_buffer: Any = 0.0
    for depth, level in enumerate(problem.levels):
        times = dict.fromkeys(level.seconds, 0.0)
        held: dict[str, Any] = {}
        for operand in operands:
            count = counts.get((level.memory, operand.name))
            if count is None:
                continue
            moved = {"reads": count.reads, "writes": count.fills + count.updates}
            reads, writes = count.everywhere(lambda r, f, u: r), count.everywhere(lambda r, f, u: f + u)
            energy = energy + level.read_pj * reads + level.write_pj * writes
            if level.is_dram:
                dram = dram + reads + writes
            for key, seconds in level.seconds.items():
                times[key] = times[key] + seconds * sum(moved[direction] for direction in DIRECTIONS[key])
            tensor, tile = problem.tensors[operand.name], product(hull(operand, within(extents(nest[depth:]), tails)))
            held[tensor] = np.maximum(held.get(tensor, 0), tile)
        for seconds in times.values():
            latency = np.maximum(latency, seconds)
        fits &= sum(held.values()) <= level.capacity
        if depth == problem.buffer:
            held_in_buffer = sum(held.values())
    shape = np.shape(steps)
    costs = {"energy": energy, "latency": latency, "edp": energy * latency, "dram": dram * problem.word_bytes}
    costs["capacity"] = held_in_buffer * problem.word_bytes
    return {name: np.broadcast_to(value, shape)[fits] for name, value in costs.items()}
