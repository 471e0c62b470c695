"""Bound nests -> what each memory moves: words read and written by Einsum and tensor, spilling included."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dse.model.accounting import Accounting
from dse.model.binding import Binding
from dse.model.einsum_nest import BoundEinsum
from dse.model.nest import AccessCounts, busy_units, count_accesses, product
from dse.model.tails import count_with_tails
from dse.specs.mapping import SpillPlan
from dse.specs.quantity import COUNT


@dataclass(frozen=True)
class Traffic:
    """Elements that an Einsum reads from and writes to a memory for one operand, over all the instances that it uses.

    An element has so many `bits`; `instances` is how many instances of the hardware share that: a memory that the unit
    sees as one may be many. Where not all do as much, `busiest` is what `instances` of them that do most share.
    """

    einsum: str
    memory: str
    operand: str
    reads: Any
    writes: Any
    instances: Any
    bits: int
    busiest: tuple[Any, Any] | None = None

    def bytes_of_one(self, directions: Collection[str]) -> Any:
        """Bytes that the busiest instance moves in some directions, "reads" or "writes"."""
        reads, writes = (self.reads, self.writes) if self.busiest is None else self.busiest
        elements = sum(each for name, each in (("reads", reads), ("writes", writes)) if name in directions)
        return self.bits / 8 * elements / self.instances


def einsum_counts(bound: BoundEinsum, accounting: Accounting) -> dict[tuple[str, str], AccessCounts]:
    """Access counts of one Einsum by (memory, operand), per instance."""
    if bound.tails:
        return count_with_tails(bound.levels, bound.operands, bound.tails)
    return count_accesses(bound.levels, bound.operands, wrap_distinct=accounting.wrapped_distinct)


def memory_traffic(binding: Binding, accounting: Accounting) -> list[Traffic]:
    """Traffic of every Einsum at every memory that keeps an operand of it. Reads include partial sums fetched back."""
    found: list[Traffic] = []
    for bound in binding.einsums.values():
        counts = einsum_counts(bound, accounting)
        for (memory, operand), counted in counts.items():
            component = binding.hardware.architecture.memories[memory].class_name
            alone = accounting.one_register_file and component == "register_file"
            count = replace(counted, instances=1, totals=None) if alone else counted
            read = _kept_reads if accounting.dropped_reads and component == "dram" else _all_reads
            reads = count.everywhere(read)
            writes, busiest = count.everywhere(_writes), None
            shared = busy_instances(binding, bound, memory)
            if count.totals is not None:
                own = count.reads, count.fills, count.updates
                busiest = read(*own), _writes(*own)
                shared = shared / busy_units(bound.levels[: bound.unit.memories.index(memory)])
            bits = binding.workload.bits_of(bound.tensors[operand])
            found.append(Traffic(bound.name, memory, operand, reads, writes, shared, bits, busiest))
        found.extend(_spilled(binding, bound, counts, accounting))
    return found


def busy_instances(binding: Binding, bound: BoundEinsum, memory: str) -> Any:
    """Instances of a memory that an Einsum keeps busy: those on its path, each standing for its share of the chip's.

    Counted only where a bandwidth is to be shared.
    """
    if not binding.hardware.memories[memory].bandwidths:
        return 1
    depth = bound.unit.memories.index(memory)
    on_path = product(size for fanout in binding.hardware.fanouts[bound.unit.name][:depth] for size in fanout.values())
    return busy_units(bound.levels[:depth]) * (binding.hardware.memories[memory].instances / on_path)


def _spilled(
    binding: Binding, bound: BoundEinsum, counts: dict[tuple[str, str], AccessCounts], accounting: Accounting
) -> list[Traffic]:
    """Extra traffic of the memory outside for the share of a tensor that does not fit: what the inner memory exchanges
    with its child for that share, less what it would have exchanged with the memory outside."""
    found: list[Traffic] = []
    for spill in binding.plan.spills:
        if spill.memory not in bound.unit.memories[1:]:
            continue
        outside = bound.unit.memories[bound.unit.memories.index(spill.memory) - 1]
        used = busy_instances(binding, bound, outside)
        share = spill_share(binding, spill)
        for operand in bound.operands:
            count = counts.get((spill.memory, operand.name))
            if count is None or bound.tensors[operand.name] not in spill.tensors:
                continue
            if count.totals is not None:
                raise binding.plan.source.error(
                    spill.key, f"{bound.name} has imperfect loops; what spills is not counted for those"
                )
            home = counts.get((outside, operand.name))
            reads = _unless_equal(count.reads, count.updates) if accounting.dropped_reads else count.reads
            reads = reads - count.fills
            writes = count.updates - (home.updates if home is not None else 0)
            spilled_reads, spilled_writes = (share * moved * count.instances for moved in (reads, writes))
            bits = binding.workload.bits_of(bound.tensors[operand.name])
            found.append(Traffic(bound.name, outside, operand.name, spilled_reads, spilled_writes, used, bits))
    return found


def spill_share(binding: Binding, spill: SpillPlan) -> Any:
    """The share of a tensor that spills, from 0 to 1. Raises SpecError for any other."""
    share = spill.share.evaluate(binding.values, COUNT)
    if np.any(np.asarray(share) < 0) or np.any(np.asarray(share) > 1):
        raise spill.share.source.error(spill.share.key, f"share is from 0 to 1, found {share}")
    return share


def _all_reads(reads: Any, fills: Any, updates: Any) -> Any:
    return reads


def _kept_reads(reads: Any, fills: Any, updates: Any) -> Any:
    return _unless_equal(reads, updates)


def _writes(reads: Any, fills: Any, updates: Any) -> Any:
    return fills + updates


def _unless_equal(reads: Any, updates: Any) -> Any:
    """Reads, or none where they equal the updates."""
    return reads * (reads != updates)
