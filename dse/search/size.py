"""How many mappings a mapspace has, counted without listing them."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

from dse.model.feasibility import divisors_of
from dse.search.mapspace import Mapspace

Axes = tuple[int, ...]
"""A factor for each axis of a chain."""

LOOP_BITS = 8
"""Bits of a count of loops, of which a level has fewer than 256."""


def size_of(space: Mapspace) -> int:
    """How many mappings there are before any is refused for capacity: factors x orders x keeps.

    Orders are those of loops with factors above 1; inside the innermost memory they change nothing and count once.
    """
    problem = space.problem
    keeps = math.prod(len(problem.keep_choices[depth]) for depth in range(len(problem.levels)))
    outer = len(problem.levels) - 1
    least = problem.constraints.utilization * space.compute_units
    orders = sum(
        count * math.prod(math.factorial(loops >> LOOP_BITS * depth & 2**LOOP_BITS - 1) for depth in range(outer))
        for used, ways in _assignments(space).items()
        if math.prod(used) >= least
        for loops, count in ways.items()
    )
    return orders * keeps


def most_busy(space: Mapspace) -> int:
    """The most PEs that any assignment of factors keeps busy; 0 where there is none."""
    return max((math.prod(used) for used, ways in _assignments(space).items() if ways), default=0)


def _assignments(space: Mapspace) -> dict[Axes, Counter[int]]:
    """How many ways there are to divide all ranks over all slots: by factors on the axes, then by the loops whose
    order is free, as `_rank_choices` counts them."""
    problem = space.problem
    axes = [axis for level in problem.levels for axis in level.axes]
    combined: dict[Axes, Counter[int]] = {(1,) * len(axes): Counter({0: 1})}
    for rank in range(len(problem.ranks)):
        own = _rank_choices(space, rank)
        grown: dict[Axes, Counter[int]] = {}
        for used, ways in combined.items():
            for more_used, more_ways in own.items():
                product = tuple(a * b for a, b in zip(used, more_used, strict=True))
                if any(now > size for now, (_, size) in zip(product, axes, strict=True)):
                    continue
                target = grown.setdefault(product, Counter())
                for loops, count in ways.items():
                    for more_loops, more in more_ways.items():
                        target[loops + more_loops] += count * more
        combined = grown
    return combined


def _rank_choices(space: Mapspace, rank: int) -> dict[Axes, Counter[int]]:
    """Ways to divide one rank over all slots: by factors on the axes, then by loops whose order is free, as one
    number with a digit of `LOOP_BITS` bits a level."""
    problem = space.problem
    name, memories = problem.ranks[rank], problem.memories
    ways: Counter[tuple[int, Axes, int]] = Counter({(1, (), 0): 1})
    for depth in reversed(range(len(memories))):
        spread: Counter[tuple[int, Axes, int]] = Counter()
        for (extent, used, loops), count in ways.items():
            for own in _axis_choices(space, rank, problem.levels[depth].axes):
                factor = math.prod(own)
                if space.grows(rank, extent, factor, spatial=True):
                    spread[extent * factor, (*own, *used), loops] += count
        ways = Counter()
        ordered = depth < len(memories) - 1 and name not in problem.constraints.order.get(memories[depth], ())
        for (extent, used, loops), count in spread.items():
            for factor in divisors_of(space.rounds_along(rank, extent)).tolist():
                if problem.constraints.allows(memories[depth], name, factor):
                    free = factor > 1 and ordered
                    ways[extent * factor, used, loops + (free << LOOP_BITS * depth)] += count
    found: dict[Axes, Counter[int]] = {}
    for (extent, used, loops), count in ways.items():
        if space.rounds_along(rank, extent) == 1:
            found.setdefault(used, Counter())[loops] += count
    return found


def _axis_choices(space: Mapspace, rank: int, axes: Sequence[tuple[str, int]]) -> list[Axes]:
    """Factors of a rank on some axes."""
    return list(itertools.product(*(space.factors_on(axis, most, rank) for axis, most in axes)))
