"""Workload + hardware + mapping plan -> a `Binding`: checked nests for every Einsum, and the sizes that were found.

Sizes may be arrays, one entry a design point. A point that cannot exist raises where there is one point; among many it
is marked infeasible and the rest go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.model.capacity import check_capacities, held_tiles, overflow_error, overflow_share, room
from dse.model.einsum_nest import BoundEinsum, Job, bind_einsums
from dse.model.feasibility import Feasibility, largest_divisor, whole_number
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
    outer = {**hardware.values, **workload.parameter_values(given)}
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
        if isinstance(value, LargestDivisor) and name not in given:
            found[name] = _largest_that_fits(job, name, value, {**outer, **found}, given, feasibility)
    values = _with_written(plan, {**outer, **found}, given)
    einsums = bind_einsums(job, values, feasibility)
    for name, value in plan.parameters.items():
        if isinstance(value, Overflow) and name not in given:
            values[name] = Quantity(overflow_share(job, einsums, value.of, values))
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
    """Tiles grow linearly with one factor, so two trial sizes tell the largest that fits."""
    needs: list[list[Any]] = []
    for size in (2, 1):
        values = _with_written(job.plan, {**outer, name: Quantity(size)}, given)
        nests = bind_einsums(job, values, Feasibility(checked=False))
        needs.append(
            [sum(held[factor.fits].values()) for held in held_tiles(job, nests, factor.fits) if factor.fits in held]
        )
    has = room(job, factor.fits, values)
    spills = factor.fits in {spill.memory for spill in job.plan.spills}
    limit: Any = np.inf
    for at_two, at_one in zip(*needs, strict=True):
        growth = np.asarray(at_two - at_one, dtype=np.float64)
        fitting = np.floor((has - at_one) / np.where(growth > 0, growth, 1)) + 1
        limit = np.minimum(limit, np.where(growth > 0, fitting, np.inf))
        feasibility.require(
            lambda: spills | (at_one <= has),
            lambda: overflow_error(
                job, ("parameters", name), factor.fits, at_one, has, f"the smallest tiles ({name} = 1)"
            ),
        )
    return Quantity(largest_divisor(whole_number(factor.of, values, feasibility), np.maximum(limit, 1)))
