"""What each memory holds at once, against what it has: tiles of bound Einsums, refused or spilled where they overflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dse.model.einsum_nest import BoundEinsum, Job
from dse.model.feasibility import Feasibility
from dse.model.nest import Loop, Operand, exact_size, hull, product
from dse.specs.quantity import INFORMATION, Quantity
from dse.specs.source import Key, SpecError


def held_tiles(
    job: Job, einsums: Mapping[str, BoundEinsum], only: str | None = None
) -> list[dict[str, dict[str, Any]]]:
    """Words that one instance of a memory holds, as memory -> tensor -> words; one entry per time to check.

    A memory inside all fan-outs, the registers of a PE, holds the operands of an Einsum at a time; any other holds the
    tiles of all Einsums of a phase: a tensor that several use once, and of tensors that share space the largest. What one
    Einsum leaves in a memory for others stays whole under the loops further out that all of them go through alike.
    `only` looks at one memory.
    """
    home = {tensor: group[0] for group in job.plan.share_space for tensor in group}
    widths = {
        tensor: job.workload.bits_of(tensor) / job.workload.word_bits()
        for bound in einsums.values()
        for tensor in bound.tensors.values()
    }
    times: list[dict[str, dict[str, Any]]] = []
    for phase in job.plan.phases:
        together: dict[str, dict[str, Any]] = {}
        steps = frozenset(job.workload.cascade.iterative)
        alike = _loops_alike([einsums[name] for name in phase.einsums if name in einsums], steps)
        for bound in (einsums[name] for name in phase.einsums if name in einsums):
            for depth, memory in enumerate(bound.unit.memories):
                if only not in (None, memory) or job.hardware.memories[memory].capacity_bits is None:
                    continue
                tiles = _tiles(bound, depth, alike, steps, widths)
                if depth == len(bound.unit.memories) - 1 and not bound.unit.path[depth][1]:
                    times.append({memory: tiles})
                    continue
                above = product(
                    size for fanout in job.hardware.fanouts[bound.unit.name][:depth] for size in fanout.values()
                )
                share = above / job.hardware.memories[memory].instances
                held = together.setdefault(memory, {})
                for tensor, size in tiles.items():
                    place = home.get(tensor, tensor)
                    held[place] = np.maximum(held.get(place, 0), size * share)
        times.append(together)
    return times


def most_held(job: Job, einsums: Mapping[str, BoundEinsum]) -> dict[str, tuple[Any, Any]]:
    """Bytes that one instance of each bounded memory holds at most at any time, and those that it has room for."""
    word_bytes = job.workload.word_bits() / 8
    found: dict[str, tuple[Any, Any]] = {}
    for held in held_tiles(job, einsums):
        for memory, tensors in held.items():
            before = found[memory][0] if memory in found else 0.0
            size = job.hardware.memories[memory].capacity_bits
            found[memory] = np.maximum(before, sum(tensors.values()) * word_bytes), size / 8
    return found


def _loops_alike(einsums: Sequence[BoundEinsum], steps: frozenset[str]) -> dict[tuple[str, str], list[Loop]]:
    """By memory and tensor that Einsums hand on in it: the loops further out, over the tensor's ranks, that all of those
    Einsums start with. Of the iterations `steps`, one is live at a time."""
    handed = {
        (bound.unit.memories[operand.keeps.index(True)], bound.tensors[operand.name])
        for bound in einsums
        for operand in bound.operands
        if operand.keeps.index(True)
    }
    found: dict[tuple[str, str], list[Loop]] = {}
    for bound in einsums:
        for operand in bound.operands:
            for depth, memory in enumerate(bound.unit.memories):
                key = (memory, bound.tensors[operand.name])
                if key in handed and operand.keeps[depth]:
                    loops = _outer_loops(bound, operand, depth, steps)
                    found[key] = _common_start(found[key], loops) if key in found else loops
    return found


def _outer_loops(bound: BoundEinsum, operand: Operand, depth: int, steps: frozenset[str]) -> list[Loop]:
    used = {rank for index in operand.indices for rank, _ in index} - steps
    return [loop for level in bound.levels[:depth] for loop in level.temporal if loop.rank in used]


def _common_start(one: Sequence[Loop], other: Sequence[Loop]) -> list[Loop]:
    start = []
    for mine, its in zip(one, other, strict=False):
        if mine.rank != its.rank or np.any(np.asarray(mine.bound != its.bound)):
            break
        start.append(mine)
    return start


def _tiles(
    bound: BoundEinsum,
    depth: int,
    alike: Mapping[tuple[str, str], Sequence[Loop]],
    steps: frozenset[str],
    widths: Mapping[str, float],
) -> dict[str, Any]:
    """Words that one instance of a level keeps of each tensor: its tile, or all that waits there for other Einsums."""
    inside = bound.lengths(depth)
    sizes: dict[str, Any] = {}
    for operand in bound.operands:
        if operand.keeps[depth]:
            tensor, lengths = bound.tensors[operand.name], inside
            shared = alike.get((bound.unit.memories[depth], tensor))
            if shared is not None:
                own = _outer_loops(bound, operand, depth, steps)[len(shared) :]
                lengths = bound.lengths(depth, own)
            size: Any = exact_size(hull(operand, lengths))
            if widths[tensor] != 1:
                size = size * widths[tensor]
            sizes[tensor] = np.maximum(sizes[tensor], size) if tensor in sizes else size
    return sizes


def room(job: Job, memory: str, values: Mapping[str, Quantity]) -> Any:
    """Words that the mapping may keep in one instance of a memory (infinite where it has no bound)."""
    bits = job.hardware.memories[memory].capacity_bits
    asked = job.plan.capacity.get(memory)
    if asked is not None and bits is not None:
        most, bits = bits, asked.size(values, INFORMATION)
        if np.any(np.asarray(bits > most)):
            has = f"{np.min(most) / 8:,.0f} B"
            raise asked.source.error(asked.key, f"{memory} has {has}, found {asked.expression.text!r}")
    return np.inf if bits is None else bits / job.workload.word_bits()


def overflow_share(job: Job, einsums: Mapping[str, BoundEinsum], memory: str, values: Mapping[str, Quantity]) -> Any:
    """Of what a memory is to hold, the largest share over all phases that it cannot: 0 where all fits."""
    needs = [sum(held[memory].values()) for held in held_tiles(job, einsums, memory) if held.get(memory)]
    share: Any = 0.0
    for need in needs:
        share = np.maximum(share, 1 - room(job, memory, values) / need)
    return share if np.ndim(share) else float(share)


def check_capacities(
    job: Job, einsums: Mapping[str, BoundEinsum], values: Mapping[str, Quantity], feasibility: Feasibility
) -> None:
    """Refuse tiles that do not fit, by how much; memories that spill or are `unchecked` are passed over."""
    skipped = {*job.plan.unchecked, *(spill.memory for spill in job.plan.spills)}
    for held in held_tiles(job, einsums):
        for memory, tensors in held.items():
            has = room(job, memory, values)
            if memory in skipped or has is np.inf or not tensors:
                continue
            need = sum(tensors.values())
            feasibility.require(
                lambda: need <= has,
                lambda: overflow_error(
                    job,
                    ("einsums",),
                    memory,
                    need,
                    has,
                    ", ".join(f"{tensor} {size_in_bytes(job, size)}" for tensor, size in tensors.items()),
                ),
            )


def overflow_error(job: Job, key: Key, memory: str, need: Any, has: Any, what: str) -> SpecError:
    """Says which memory overflows, by how much, and what is to be in it."""
    return job.plan.source.error(
        key,
        f"{memory} needs {size_in_bytes(job, need)} for {what}; has {size_in_bytes(job, has)}: "
        f"{size_in_bytes(job, need - has)} too many",
    )


def size_in_bytes(job: Job, words: Any) -> str:
    """A number of words as bytes."""
    return f"{float(np.max(words)) * job.workload.word_bits() / 8:,.0f} B"
