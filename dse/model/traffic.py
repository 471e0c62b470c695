"""Bound nests -> what each memory moves: words read and written by Einsum and tensor, spilling included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dse.model.accounting import Accounting
from dse.model.binding import Binding
from dse.model.einsum_nest import BoundEinsum
from dse.model.nest import AccessCounts, busy_units, count_accesses


@dataclass(frozen=True)
class Traffic:
    """Elements that an Einsum reads from and writes to a memory for one operand, over all the instances that it uses."""

    einsum: str
    memory: str
    operand: str
    reads: Any
    writes: Any
    instances: Any


def einsum_counts(bound: BoundEinsum, accounting: Accounting) -> dict[tuple[str, str], AccessCounts]:
    """Access counts of one Einsum by (memory, operand), per instance."""
    return count_accesses(bound.levels, bound.operands, wrap_distinct=accounting.wrapped_distinct)


def memory_traffic(binding: Binding, accounting: Accounting) -> list[Traffic]:
    """Traffic of every Einsum at every memory that keeps an operand of it. Reads include partial sums fetched back."""
    found: list[Traffic] = []
    for bound in binding.einsums.values():
        counts = einsum_counts(bound, accounting)
        for (memory, operand), count in counts.items():
            component = binding.hardware.architecture.memories[memory].class_name
            instances = 1 if accounting.one_register_file and component == "register_file" else count.instances
            reads, writes = count.reads, count.fills + count.updates
            if accounting.dropped_reads and component == "dram":
                reads = _unless_equal(reads, count.updates)
            found.append(Traffic(bound.name, memory, operand, reads * instances, writes * instances, instances))
        found.extend(_spilled(binding, bound, counts, accounting))
    return found


def _spilled(
    binding: Binding, bound: BoundEinsum, counts: dict[tuple[str, str], AccessCounts], accounting: Accounting
) -> list[Traffic]:
    """Extra traffic of the memory outside for the share of a tensor that does not fit: what the inner memory exchanges
    with its child for that share, less what it would have exchanged with the memory outside."""
    found: list[Traffic] = []
    for spill in binding.plan.spills:
        if spill.memory not in bound.unit.memories[1:]:
            continue
        depth = bound.unit.memories.index(spill.memory) - 1
        outside, used = bound.unit.memories[depth], busy_units(bound.levels[:depth])
        share = spill.share.evaluate(binding.values)
        for operand in bound.operands:
            count = counts.get((spill.memory, operand.name))
            if count is None or bound.tensors[operand.name] not in spill.tensors:
                continue
            home = counts.get((outside, operand.name))
            reads = _unless_equal(count.reads, count.updates) if accounting.dropped_reads else count.reads
            reads = reads - count.fills
            writes = count.updates - (home.updates if home is not None else 0)
            spilled_reads, spilled_writes = (share * moved * count.instances for moved in (reads, writes))
            found.append(Traffic(bound.name, outside, operand.name, spilled_reads, spilled_writes, used))
    return found


def _unless_equal(reads: Any, updates: Any) -> Any:
    """Reads, or none where they equal the updates."""
    return reads * (reads != updates)
