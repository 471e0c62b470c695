"""Checks that what an Einsum reads is where another one left it: in a memory that keeps it, and all of it where a
phase has ended in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dse.model.einsum_nest import BoundEinsum, Job
from dse.model.feasibility import Feasibility
from dse.model.nest import hull, product


def check_homes(job: Job, einsums: Mapping[str, BoundEinsum], feasibility: Feasibility) -> None:
    """Refuse an Einsum that reads a tensor from a memory that nothing put it in. Raises SpecError."""
    views = {view.name: view.inputs[0].tensor for view in job.workload.cascade.einsums if view.is_view}
    phase_of = {name: number for number, phase in enumerate(job.plan.phases) for name in phase.einsums}
    for bound in einsums.values():
        for operand in bound.operands:
            tensor = views.get(bound.tensors[operand.name], bound.tensors[operand.name])
            maker = einsums.get(tensor)
            if operand.is_output or maker is None:
                continue
            home = bound.unit.memories[operand.keeps.index(True)]
            key = ("einsums", bound.name, "keep")
            fetched = any(
                home in _memories(other, tensor, views)
                for other in einsums.values()
                if phase_of[other.name] == phase_of[bound.name] and other is not bound
            )
            if not fetched and home not in _memories(maker, tensor, views):
                kept = ", ".join(_memories(maker, tensor, views))
                raise job.plan.source.error(
                    key,
                    f"{bound.name} reads {tensor} from {home}, where nothing puts it; {maker.name} keeps it in {kept}",
                )
            if not fetched:
                feasibility.require(
                    lambda: maker is bound or _holds_all(maker, home),
                    lambda: job.plan.source.error(
                        key,
                        f"{bound.name} reads {tensor} from {home} in a later phase than {maker.name} makes it, "
                        f"and {home} holds a part of it at a time; keep it in a memory that holds all",
                    ),
                )


def _memories(bound: BoundEinsum, tensor: str, views: Mapping[str, str]) -> list[str]:
    """Memories that keep a tensor while an Einsum runs."""
    return [
        memory
        for operand in bound.operands
        if views.get(bound.tensors[operand.name], bound.tensors[operand.name]) == tensor
        for memory, keeps in zip(bound.unit.memories, operand.keeps, strict=True)
        if keeps
    ]


def _holds_all(maker: BoundEinsum, memory: str) -> Any:
    """Whether the tile that a memory keeps is all of what an Einsum makes."""
    operand = next(operand for operand in maker.operands if operand.is_output)
    sizes = [product(hull(operand, maker.lengths(at))) for at in (0, maker.unit.memories.index(memory))]
    return np.asarray(sizes[0] == sizes[1])
