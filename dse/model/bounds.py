"""Checks that every index stays inside its tensor, and that the work to be counted is of a size that can be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dse.cascade.cascade import rank_of
from dse.cascade.einsum import Affine
from dse.model.einsum_nest import Job
from dse.model.feasibility import Feasibility
from dse.specs.quantity import Quantity

MOST_POINTS = 1e60
"""An iteration space is no larger: no machine runs it, and floats hold what is made of it."""


def check_bounds(job: Job, values: Mapping[str, Quantity], feasibility: Feasibility) -> None:
    """Refuse iteration spaces past all sense, and indices that leave their tensors. Raises SpecError.

    An Einsum with a filter is passed over: what would lie outside may be filtered out.
    """
    cascade, source = job.workload.cascade, job.workload.source
    shapes = job.workload.shapes(values)
    for number, einsum in enumerate(cascade.einsums):
        points = math.prod(float(np.max(shapes[rank_of(variable)])) for variable in einsum.variables)
        if points > MOST_POINTS:
            raise source.error(
                ("einsums", number), f"{einsum.name} has {points:.2g} points; at most {MOST_POINTS:g} are counted"
            )
    made = {access.tensor: access for access in (*cascade.inputs, *(einsum.output for einsum in cascade.einsums))}
    for number, einsum in enumerate(cascade.einsums):
        for access in () if einsum.where else einsum.inputs:
            for index, declared in zip(access.indices, made[access.tensor].indices, strict=True):
                if index == declared:
                    continue
                low, high = _ends(index, shapes)
                least, most = _ends(declared, shapes)
                least = np.minimum(least, 0)
                feasibility.require(
                    lambda: (low >= least) & (high <= most),
                    lambda: source.error(
                        ("einsums", number),
                        f"{access} reaches from {low} to {high}, {made[access.tensor]} has {least} to {most}",
                    ),
                )


def _ends(index: Affine, shapes: Mapping[str, Any]) -> tuple[Any, Any]:
    """Lowest and highest coordinate that an index points to."""
    low = high = index.offset.evaluate(shapes)
    for variable, scale in index.terms:
        reach = scale.evaluate(shapes) * (shapes[rank_of(variable)] - 1)
        low, high = low + np.minimum(reach, 0), high + np.maximum(reach, 0)
    return low, high
