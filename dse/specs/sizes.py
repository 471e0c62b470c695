"""Shapes to run a workload at: small ones of its own, or those that a person asks for."""

from __future__ import annotations

from collections.abc import Mapping

from dse.specs.quantity import Quantity
from dse.specs.workload import Workload

SMALL = (12, 10, 8, 9, 14, 6, 15, 7, 11, 5)
"""Lengths of ranks where a person gives no size: each its own, so that one taken for another shows."""


def shapes_to_run(workload: Workload, given: Mapping[str, Quantity]) -> dict[str, int]:
    """Shape of every rank. Ranks that `given` (parameters, ranks or parts by name) leaves open are 15 at most, equal
    where they are written alike; inner parts are the largest divisor of their rank up to a quarter of it.

    Raises SpecError.
    """
    values = workload.parameter_values(given)
    touched = set(given)
    for name, located in workload.parameters.items():
        if located.expression.names & touched:
            touched.add(name)
    partitioned = workload.cascade.partition
    sizes: dict[str, int] = {}
    shapes: dict[str, int] = {}
    for rank in sorted(workload.ranks, key=lambda rank: rank not in partitioned):
        written = workload.ranks[rank].expression
        own = values[rank].value
        if rank in given or written.names & touched:
            shapes[rank] = own
        else:
            shapes[rank] = min(own, sizes.setdefault(written.text, SMALL[len(sizes) % len(SMALL)]))
    for rank, parts in partitioned.items():
        left = shapes[rank]
        for part in reversed(parts[1:]):
            size = given[part].value if part in given else _divisor(left, max(1, left // 4))
            if not isinstance(size, int) or size < 1 or left % size:
                raise workload.source.error(("partition", rank), f"{rank} = {left} does not divide by {part} = {size}")
            shapes[part] = size
            left //= size
        shapes[parts[0]] = left
    return shapes


def _divisor(number: int, limit: int) -> int:
    return next(divisor for divisor in range(limit, 0, -1) if number % divisor == 0)
