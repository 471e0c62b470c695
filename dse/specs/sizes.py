"""Shapes to run a workload at: small ones of its own, or those that a person asks for."""

from __future__ import annotations

from collections.abc import Mapping

from dse.specs.quantity import Quantity
from dse.specs.workload import Workload

SMALL = 12
"""Longest rank where a person gives no size."""


def shapes_to_run(workload: Workload, given: Mapping[str, Quantity]) -> dict[str, int]:
    """Shape of every rank. Ranks that `given` (parameters, ranks or parts by name) leaves open are 12 at most, and
    inner parts the largest divisor of their rank up to a quarter of it. Raises SpecError."""
    values = workload.parameter_values(given)
    touched = set(given)
    for name, located in workload.parameters.items():
        if located.expression.names & touched:
            touched.add(name)
    shapes = {}
    for rank, located in workload.ranks.items():
        asked = rank in given or located.expression.names & touched
        shapes[rank] = values[rank].value if asked else min(SMALL, values[rank].value)
    for rank, parts in workload.cascade.partition.items():
        left = shapes[rank]
        for part in reversed(parts[1:]):
            size = int(given[part].value) if part in given else _divisor(left, max(1, left // 4))
            if left % size:
                raise workload.source.error(("partition", rank), f"{rank} = {left} does not divide by {part} = {size}")
            shapes[part] = size
            left //= size
        shapes[parts[0]] = left
    return shapes


def _divisor(number: int, limit: int) -> int:
    return next(divisor for divisor in range(limit, 0, -1) if number % divisor == 0)
