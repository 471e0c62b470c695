"""Why a problem has no valid mapping: what excludes everything, the closest miss, and the smallest change that helps."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dse.model.feasibility import divisors_of
from dse.search.mapper import map_einsum
from dse.search.mapspace import Mapspace
from dse.search.problem import Problem
from dse.search.size import most_busy


def explain_none(problem: Problem) -> str:
    """One sentence for a problem that the mapper found no mapping of."""
    space = Mapspace(problem)
    smallest = smallest_extents(space)
    for level in problem.levels:
        for axis, size in level.axes:
            if not len(space.axis_factors(axis, size)):
                return f"axis {axis} has no factors that its demands allow"
    short = _never_whole(problem) or _too_small(space, smallest)
    if short:
        return short
    demanded = problem.constraints.utilization
    if demanded:
        free = replace(problem, constraints=replace(problem.constraints, utilization=0.0))
        busy = most_busy(space)
        if busy < demanded * space.compute_units:
            share = busy / space.compute_units
            return (
                f"at most {busy:,} of {space.compute_units:,} PEs can be busy, {share:.3g} of them; "
                f"utilization demands {demanded:g}"
            )
        if map_einsum(free).points:
            return f"tiles fit only with fewer PEs busy than utilization {demanded:g} demands"
    return _least_capacity(problem)


def _never_whole(problem: Problem) -> str:
    """Says which rank the factors that its slots allow never multiply to, and what they do come to."""
    axes = {axis: size for level in problem.levels for axis, size in level.axes}
    for rank, size in zip(problem.ranks, problem.sizes, strict=True):
        if rank in problem.imperfect:
            continue
        products = {1}
        for slot in (*problem.memories, *axes):
            factors = [
                factor
                for factor in divisors_of(size).tolist()
                if factor <= axes.get(slot, size) and problem.constraints.allows(slot, rank, factor)
            ]
            products = {min(have * factor, size * size) for have in products for factor in factors}
        if size not in products:
            below = [str(each) for each in (max((p for p in products if p < size), default=None),) if each]
            above = [str(each) for each in (min((p for p in products if p > size), default=None),) if each]
            near = " or ".join(below + above) or "nothing"
            return f"factors of {rank} that its demands allow come to {near}, never to {rank.upper()} = {size}"
    return ""


def smallest_extents(space: Mapspace) -> list[np.ndarray | None]:
    """By level, the least that each rank can cover from there inward, given what outer slots may still do; None where a
    rank can cover nothing."""
    problem = space.problem
    slots: list[tuple[int, str]] = []
    for depth, level in enumerate(problem.levels):
        slots.append((depth, level.memory))
        slots += [(depth, axis) for axis, _ in level.axes]
    axes = {axis: size for level in problem.levels for axis, size in level.axes}
    found: list[np.ndarray | None] = []
    for depth in range(len(problem.levels)):
        least = []
        for place, (rank, size) in enumerate(zip(problem.ranks, problem.sizes, strict=True)):
            if rank in problem.imperfect:
                least.append(int(space.covers[place][space.left[depth][place]].min(initial=size)))
                continue
            outer, inner = {1}, {1}
            for at, slot in slots:
                factors = [
                    factor
                    for factor in divisors_of(size).tolist()
                    if factor <= axes.get(slot, size) and problem.constraints.allows(slot, rank, factor)
                ]
                grown = {have * factor for have in (inner if at >= depth else outer) for factor in factors}
                grown = {value for value in grown if size % value == 0}
                if at >= depth:
                    inner = grown
                else:
                    outer = grown
            reachable = [value for value in inner if size // value in outer]
            least.append(min(reachable, default=0))
        found.append(np.array([least], dtype=np.int64) if all(least) else None)
    return found


def _too_small(space: Mapspace, smallest: list[np.ndarray | None]) -> str:
    """Says which level is too small for the smallest tiles of what it must keep, and what it would need."""
    problem = space.problem
    for depth, level in enumerate(problem.levels):
        extents, needed = smallest[depth], space.required[depth]
        if extents is None or level.capacity == math.inf:
            continue
        need = float(space.held(needed, extents)[0])
        if need > level.capacity:
            tiles = ", ".join(f"{name} {in_bytes(problem, float(space.held((name,), extents)[0]))}" for name in needed)
            return (
                f"{level.memory} needs {in_bytes(problem, need)} for the smallest tiles ({tiles}), "
                f"has {in_bytes(problem, level.capacity)}"
            )
    return ""


def _least_capacity(problem: Problem) -> str:
    """Says which one memory, made larger, would admit a mapping, and how large it would have to be."""
    for depth, level in enumerate(problem.levels):
        if level.capacity == math.inf or not map_einsum(_with_capacity(problem, depth, math.inf)).points:
            continue
        low, high = math.floor(level.capacity), math.floor(level.capacity) + 1
        while not map_einsum(_with_capacity(problem, depth, high)).points:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if map_einsum(_with_capacity(problem, depth, middle)).points:
                high = middle
            else:
                low = middle
        return (
            f"{level.memory} needs {in_bytes(problem, high)} for any mapping, has {in_bytes(problem, level.capacity)}"
        )
    return "no single memory is too small: its memories and demands exclude every mapping together"


def _with_capacity(problem: Problem, depth: int, capacity: float) -> Problem:
    levels = [replace(level, capacity=capacity) if at == depth else level for at, level in enumerate(problem.levels)]
    return replace(problem, levels=tuple(levels))


def in_bytes(problem: Problem, elements: float) -> str:
    """A number of elements as bytes, in KiB, MiB or GiB where that comes out short."""
    return as_bytes(elements * problem.word_bytes)


def as_bytes(size: float) -> str:
    """Bytes, in KiB, MiB or GiB where that comes out short."""
    for unit, bytes_each in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= bytes_each and size % (bytes_each / 4) == 0:
            return f"{size / bytes_each:g} {unit}"
    return f"{size:,.0f} B"
