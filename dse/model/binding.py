"""Workload + hardware + mapping plan -> a `Binding`: checked nests for every Einsum, and the sizes that were found.

Sizes may be arrays, one entry a design point. A point that cannot exist raises where there is one point; among many it
is marked infeasible and the rest go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.model.bounds import check_bounds
from dse.model.capacity import check_capacities, held_tiles, overflow_error, overflow_share, room
from dse.model.einsum_nest import BoundEinsum, Job, bind_einsums
from dse.model.feasibility import (
    Feasibility,
    divisor_counts,
    largest_divisor,
    next_divisor,
    nth_divisor,
    whole_number,
)
from dse.model.homes import check_homes
from dse.model.names import check_names
from dse.specs.architecture import Hardware
from dse.specs.mapping import LargestDivisor, Overflow, Plan
from dse.specs.parameters import Located, resolve
from dse.specs.quantity import Quantity
from dse.specs.workload import Workload


@dataclass(frozen=True)
class Binding:
    """A workload bound to hardware: the nests, in the cascade's order, and the values of every parameter.

    `feasible` is True, or a boolean array where some design points cannot exist.
    """

    workload: Workload
    hardware: Hardware
    plan: Plan
    values: Mapping[str, Quantity]
    einsums: Mapping[str, BoundEinsum]
    feasible: bool | NDArray[np.bool_]


def bind(workload: Workload, hardware: Hardware, plan: Plan, given: Mapping[str, Quantity]) -> Binding:
    """Bind every Einsum that computes. `given` sets workload and mapping parameters by name. Raises SpecError."""
    check_names(workload, hardware.architecture, plan)
    job = Job(workload, hardware, plan)
    own = workload.parameter_values(given)
    for name in own:
        if name in hardware.values:
            raise workload.source.error(
                ("parameters", name), f"{name} is a parameter of {workload.name} and of {hardware.architecture.name}"
            )
    outer = {**hardware.values, **own}
    for name in plan.parameters:
        if name in outer:
            raise plan.source.error(
                ("parameters", name), f"{name} is a parameter of the workload or the architecture already"
            )
    feasibility = Feasibility()
    found = {name: Quantity(1) for name, value in plan.parameters.items() if isinstance(value, LargestDivisor)}
    found |= {name: Quantity(0) for name, value in plan.parameters.items() if isinstance(value, Overflow)}
    found |= {name: given[name] for name in found if name in given}
    for name, value in plan.parameters.items():
        if isinstance(value, LargestDivisor) and name not in given and plan.uses(name, given):
            found[name] = _largest_that_fits(job, name, value, {**outer, **found}, given, feasibility)
    values = _with_written(plan, {**outer, **found}, given)
    check_bounds(job, values, feasibility)
    einsums = bind_einsums(job, values, feasibility)
    for name, value in plan.parameters.items():
        if isinstance(value, Overflow) and name not in given:
            found[name] = Quantity(overflow_share(job, einsums, value.of, values))
    values = _with_written(plan, {**outer, **found}, given)
    check_homes(job, einsums, feasibility)
    check_capacities(job, einsums, values, feasibility)
    return Binding(workload, hardware, plan, values, einsums, feasibility.points)


def _with_written(plan: Plan, values: dict[str, Quantity], given: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """`values` and the mapping's written parameters, which may use them."""
    written = {name: value for name, value in plan.parameters.items() if isinstance(value, Located)}
    return {**values, **resolve(written, values, given)}


def _largest_that_fits(
    job: Job,
    name: str,
    factor: LargestDivisor,
    outer: dict[str, Quantity],
    given: Mapping[str, Quantity],
    feasibility: Feasibility,
) -> Quantity:
    """The largest divisor with which the memory overflows at no time, point by point.

    Tiles mostly grow linearly with a factor, so the first guess extends a line through two trial sizes; where it or the
    next divisor proves it wrong, the divisors are bisected (tiles never shrink as a factor grows).
    """
    start = _with_written(job.plan, {**outer, name: Quantity(1)}, given)
    number, has = whole_number(factor.of, start, feasibility), room(job, factor.fits, start)

    nests: dict[str, BoundEinsum] = {}

    def needs(size: Any) -> list[Any]:
        nonlocal nests
        values = _with_written(job.plan, {**outer, name: Quantity(size)}, given)
        nests = bind_einsums(job, values, Feasibility(checked=False), factor.fits, nests)
        return [sum(held[factor.fits].values()) for held in held_tiles(job, nests, factor.fits) if factor.fits in held]

    at_one = needs(1)
    spills = factor.fits in {spill.memory for spill in job.plan.spills}
    for need in at_one:
        feasibility.require(
            lambda: spills | (need <= has),
            lambda: overflow_error(
                job, ("parameters", name), factor.fits, need, has, f"the smallest tiles ({name} = 1)"
            ),
        )
    limit: Any = np.inf
    for small, large in zip(at_one, needs(2), strict=True):
        growth = np.asarray(large - small, dtype=np.float64)
        fitting = np.floor((has - small) / np.where(growth > 0, growth, 1)) + 1
        limit = np.minimum(limit, np.where(growth > 0, fitting, np.inf))
    guess = largest_divisor(number, np.maximum(limit, 1))
    return Quantity(_corrected(number, guess, lambda size: _all_at_most(needs(size), has)))


def _all_at_most(needs: list[Any], has: Any) -> Any:
    holds: Any = True
    for need in needs:
        holds = holds & np.asarray(need <= has)
    return holds


def _corrected(number: Any, guess: Any, fits: Callable[[Any], Any]) -> Any:
    """The largest divisor of `number` that `fits`, or 1: `guess` where it is right, else found by bisection."""
    above = next_divisor(number, guess)
    right = (fits(guess) | (np.asarray(guess) == 1)) & (~np.asarray(fits(above)) | (np.asarray(above) == guess))
    if np.all(right):
        return guess
    numbers = np.asarray(number)
    counts = divisor_counts(numbers)
    low, high = np.zeros(numbers.shape, dtype=np.int64), counts - 1
    while np.any(low < high):
        middle = (low + high + 1) // 2
        holds = fits(nth_divisor(numbers, middle))
        low, high = np.where(holds, middle, low), np.where(holds, high, middle - 1)
    return nth_divisor(numbers, low)
