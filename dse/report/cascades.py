"""What a cascade says of itself, as tables and records: passes, footprints, operations, verification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dse.cascade.operations import count_operations
from dse.cascade.passes import PassReport, analyze_rank, families, passes_in_words
from dse.cascade.verify import Trial
from dse.specs.quantity import Quantity
from dse.specs.workload import Workload


def pass_record(workload: Workload, report: PassReport) -> dict[str, Any]:
    """A pass report for a program: plain names, numbers and expressions."""
    return {
        "workload": workload.name,
        "rank": report.rank,
        "passes": report.passes,
        "ranks": passes_by_rank(workload),
        "barriers": [
            {
                "pass": barrier.number,
                "einsum": barrier.einsum,
                "rereads": barrier.rereads,
                "waits_for": barrier.waits_for,
                "reduction": barrier.reduction,
                "text": str(barrier),
            }
            for barrier in report.barriers
        ],
        "einsums": dict(report.einsums),
        "tensors": dict(report.tensors),
        "footprints": {tensor: str(size) for tensor, size in report.footprints.items()},
        "spills": {tensor: str(size) for tensor, size in report.spills.items()},
        "traversals": dict(report.traversals),
        "operations": [
            {"einsum": each.einsum, "operation": each.operation, "count": str(each.count)}
            for each in count_operations(workload.cascade)
        ],
    }


def passes_by_rank(workload: Workload) -> dict[str, int]:
    """Passes over every rank of a workload."""
    return {rank: analyze_rank(workload.cascade, rank).passes for rank in families(workload.cascade)}


def pass_rows(reports: Sequence[tuple[Workload, PassReport]]) -> list[dict[str, Any]]:
    """A row per workload: the passes it makes over a rank, and why."""
    return [
        {
            "workload": workload.name,
            "rank": report.rank,
            "passes": report.passes,
            "barriers": "; ".join(map(str, report.barriers)),
        }
        for workload, report in reports
    ]


def pass_lines(workload: Workload, report: PassReport, *, alone: bool) -> list[str]:
    """Passes, barriers and traversals in words; of a workload that stands `alone`, the passes over its other ranks too."""
    lines = [f"{workload.name}: {passes_in_words(report.passes)} over {report.rank}"]
    lines += [f"  {barrier}" for barrier in report.barriers]
    for part, count in report.traversals.items():
        lines.append(f"  {count} traversal{'s' if count != 1 else ''} of each {part} fiber inside a tile")
    if alone:
        others = {name: count for name, count in passes_by_rank(workload).items() if name != report.rank}
        lines.append("  over the other ranks: " + ", ".join(f"{name} {count}" for name, count in others.items()))
    return lines


def pass_tables(workload: Workload, report: PassReport) -> list[tuple[str, list[dict[str, Any]]]]:
    """The report opened: tensors with their passes and live footprints, Einsums with their pass and operations."""
    shapes = _shapes(workload)
    tensors = [
        {
            "tensor": tensor,
            "passes": report.tensors.get(tensor, ""),
            "live": str(size),
            "spilled": str(report.spills[tensor]),
            "live_bytes": size.evaluate(shapes) * workload.bits_of(tensor) / 8 if size.symbols <= set(shapes) else None,
        }
        for tensor, size in report.footprints.items()
    ]
    operations = [
        {
            "einsum": each.einsum,
            "pass": report.einsums[each.einsum],
            "operation": each.operation,
            "count": str(each.count),
            "at_default_sizes": each.count.evaluate(shapes) if each.count.symbols <= set(shapes) else None,
        }
        for each in count_operations(workload.cascade)
    ]
    return [
        (
            f"Tensors over {report.rank}: passes, elements live for one fiber whatever the mapping, and moved where it spills",
            tensors,
        ),
        ("Einsums: the pass that each runs in (those of one pass can be fused), and its operations", operations),
    ]


def trial_rows(workload: Workload, trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """A row per kind of input."""
    return [
        {
            "inputs": trial.inputs,
            "largest_error": trial.error,
            "at": trial.where,
            "verdict": _verdict(workload, trial),
        }
        for trial in trials
    ]


def verdict(workload: Workload, trials: Sequence[Trial]) -> tuple[bool, str]:
    """Whether a workload computes its reference - or overflows just as it says - and a sentence to say so."""
    wrong = [trial for trial in trials if not trial.passed and not (workload.overflows and trial.overflows)]
    if wrong:
        first = wrong[0]
        how = "overflows" if first.overflows else f"differs by {first.error:.2g}"
        return (
            False,
            f"{workload.name} is not {workload.reference}: on {first.inputs} inputs it {how}; the first tensor that differs is {first.differs}",
        )
    if workload.overflows and not any(trial.overflows for trial in trials):
        return False, f"{workload.name} says that it overflows, and does not"
    kept = [trial.error for trial in trials if trial.passed]
    aside = ", and overflows on large inputs as it says" if workload.overflows else ""
    return True, f"{workload.name} is {workload.reference}: largest relative error {max(kept):.2g}{aside}"


def _verdict(workload: Workload, trial: Trial) -> str:
    if trial.passed:
        return "right"
    if trial.overflows:
        return "overflows, as it says" if workload.overflows else f"overflows, first {trial.differs}"
    return f"wrong, first {trial.differs}"


def _shapes(workload: Workload) -> dict[str, int]:
    values: dict[str, Quantity] = workload.parameter_values({})
    return {rank: values[rank].value for rank in workload.ranks}


def least_buffer_bytes(workload: Workload, report: PassReport, length: int, fibers: int, part: int) -> float:
    """Bytes of the largest tensor that must be live along the rank at a length of it, for fibers in flight at once;
    inner parts of the rank have `part` elements. Nothing larger need be held at a time: later tensors overwrite it."""
    parts = workload.cascade.partition.get(report.rank, ())
    shapes = {report.rank: length, **dict.fromkeys(parts[1:], part)}
    if parts:
        shapes[parts[0]] = max(1, length // part ** (len(parts) - 1))
    sizes = [size.evaluate(shapes) for size in report.footprints.values()]
    return float(max(sizes, default=1) * fibers * workload.word_bits() / 8)
