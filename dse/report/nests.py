"""A mapping that was found, as a person reads it: its loop nest, what each level keeps, and why nothing is better."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dse.model.capacity import most_held
from dse.model.einsum_nest import Job
from dse.model.nest import Level, Loop, suffix_extents
from dse.model.result import Result
from dse.search.explain import as_bytes, in_bytes
from dse.search.mapper import Found, Proof
from dse.search.mapspace import Mapspace
from dse.search.problem import LevelMapping, Problem
from dse.search.workload import EinsumMap, WorkloadMap

INDENT = "  "


def map_lines(found: WorkloadMap) -> list[str]:
    """Every Einsum's nest, group by group, and the proofs."""
    lines = []
    for group in found.groups:
        if len(group.einsums) == 1:
            (name,) = group.einsums
            proof = [proof_line(found.einsums[name].found.proof)] if found.proof is None else []
            lines += [*nest_lines(found.einsums[name]), *proof, ""]
            continue
        stays = f"; {', '.join(group.stays)} {'stays' if len(group.stays) == 1 else 'stay'} on chip in between"
        lines.append(f"{', '.join(group.einsums)} fused{stays}")
        lines += [f"{INDENT * depth}for {rank} in {factor}" for depth, (rank, factor) in enumerate(group.loops, 1)]
        for name in group.einsums:
            lines += [INDENT * (len(group.loops) + 1) + line for line in nest_lines(found.einsums[name])]
        lines.append("")
    return [*lines, *([proof_line(found.proof), ""] if found.proof is not None else [])]


def nest_lines(each: EinsumMap) -> list[str]:
    """The loop nest, outermost memory first: tiles kept, then the loops that step through them, then the fan-out."""
    problem, space = each.problem, Mapspace(each.problem)
    covered = suffix_extents(
        [
            Level(
                level.memory,
                _loops(level.temporal),
                tuple(loop for own in level.spatial.values() for loop in _loops(own)),
            )
            for level in each.best.nest
        ]
    )
    lines = [f"{problem.einsum} on {problem.unit}"]
    depth_of_loops = 0
    for depth, level in enumerate(each.best.nest):
        extents = np.array([[covered[depth].get(rank, 1) for rank in problem.ranks]])
        tiles = [f"{name} {in_bytes(problem, float(space.held((name,), extents)[0]))}" for name in level.keep]
        room = problem.levels[depth].capacity
        held = float(space.held(level.keep, extents)[0])
        use = "" if room == float("inf") or not tiles else f"  ({in_bytes(problem, held)} of {in_bytes(problem, room)})"
        lines.append(f"{INDENT * depth_of_loops}{level.memory}: {', '.join(tiles) or 'passed by'}{use}")
        for rank, factor in level.temporal:
            depth_of_loops += 1
            lines.append(f"{INDENT * depth_of_loops}for {rank} in {factor}")
        across = [
            f"{axis}: {' x '.join(f'{rank} {factor}' for rank, factor in loops)}"
            for axis, loops in level.spatial.items()
            if loops
        ]
        if across:
            depth_of_loops += 1
            idle = _last_rounds(problem, covered[depth + 1], level)
            lines.append(f"{INDENT * depth_of_loops}side by side in {'; '.join(across)}{idle}")
    lines.append(f"{INDENT * (depth_of_loops + 1)}compute {problem.einsum}")
    return lines


def _last_rounds(problem: Problem, inside: Mapping[str, Any], level: LevelMapping) -> str:
    """What the last round of a fan-out keeps busy of each rank that its PEs do not divide."""
    found = []
    for rank, size in zip(problem.ranks, problem.sizes, strict=True):
        factor = math.prod(own for loops in level.spatial.values() for name, own in loops if name == rank)
        left = -(-size // inside.get(rank, 1)) % factor
        if left:
            found.append(f"{rank} {left} of {factor}")
    return f"  (in the last round {', '.join(found)})" if found else ""


def _loops(written: Sequence[tuple[str, int]]) -> tuple[Loop, ...]:
    return tuple(Loop(rank, factor) for rank, factor in written)


def proof_line(proof: Proof) -> str:
    """How large the space was, and what became of it."""
    cuts = ", ".join(f"{count:,} by {rule}" for rule, count in proof.cut.items() if count)
    head = "proven" if proof.complete else "NOT proven: stopped before the end"
    return f"{head}: {proof.size:,} mappings; {proof.priced:,} partial ones priced" + (f"; cut {cuts}" if cuts else "")


def level_rows(result: Result, einsums: Sequence[str]) -> list[dict[str, Any]]:
    """Cost by Einsum and level: elements read and written, and energy; compute on a row of its own."""
    rows = []
    for name in einsums:
        entries = [entry for entry in result.energy if entry.einsum == name]
        for component in dict.fromkeys(entry.component for entry in entries):
            own = [entry for entry in entries if entry.component == component]
            moved = {action: sum(e.elements for e in own if e.action == action) for action in ("read", "write")}
            is_memory = component in result.binding.hardware.memories
            rows.append(
                {
                    "einsum": name,
                    "component": component,
                    "words_read": moved["read"] if is_memory else None,
                    "words_written": moved["write"] if is_memory else None,
                    "actions": sum(entry.count for entry in own),
                    "energy_pj": sum(entry.energy_pj for entry in own),
                }
            )
    return rows


def totals_lines(found: WorkloadMap) -> list[str]:
    """What the whole mapping costs, and what fusion saves."""
    lines = [f"{found.objective}: {_totals(found.result)}"]
    binding = found.result.binding
    held = most_held(Job(binding.workload, binding.hardware, binding.plan), binding.einsums)
    if held:
        order = [memory for memory in binding.hardware.memories if memory in held]
        shown = (f"{memory} {as_bytes(held[memory][0])} of {as_bytes(held[memory][1])}" for memory in order)
        lines.append(f"held at most: {', '.join(shown)}")
    if found.unfused is not None:
        lines.append(f"unfused: {_totals(found.unfused.result)}")
        shares = [
            (getattr(found.result, name), getattr(found.unfused.result, name), what)
            for name, what in (("energy_pj", "energy"), ("latency_s", "latency"), ("dram_bytes", "DRAM traffic"))
        ]
        lines.append(f"fusion saves {', '.join(f'{1 - fused / apart:.1%} of {what}' for fused, apart, what in shares)}")
    return lines


def _totals(result: Result) -> str:
    clock = result.binding.hardware.clock_hz
    return (
        f"{result.energy_pj:.10g} pJ, {result.latency_s:.7g} s ({result.latency_s * clock:,.0f} cycles), "
        f"{result.dram_bytes:,.0f} B of DRAM traffic"
    )


def map_rows(found: WorkloadMap) -> list[dict[str, Any]]:
    """A row per Einsum: what its mapping costs, and the proof in numbers (of the whole, where Einsums were fused)."""
    result, rows = found.result, []
    fused = {name: number for number, group in enumerate(found.groups) for name in group.einsums}
    for name, each in found.einsums.items():
        proof, costs = each.found.proof, each.best.costs
        cycles = result.timings[name].cycles / result.binding.hardware.clock_hz
        rows.append(
            {
                "einsum": name,
                "group": fused[name],
                "unit": each.problem.unit,
                "energy_pj": costs.get(
                    "energy", sum(entry.energy_pj for entry in result.energy if entry.einsum == name)
                ),
                "latency_s": costs.get("latency", cycles),
                "buffer_bytes": costs.get("capacity"),
                "proven": proof.complete,
                "mappings": proof.size,
                "priced": proof.priced,
                **{
                    f"cut_by_{rule.replace('-', '_')}": proof.cut.get(rule, 0)
                    for rule in ("capacity", "bound", "dominance", "utilization", "fan-out")
                },
            }
        )
    return rows


METRIC_COLUMNS = {"energy": "energy_pj", "latency": "latency_s", "capacity": "buffer_bytes", "dram": "dram_bytes"}


def front_rows(einsum: str, found: Found, metrics: Sequence[str]) -> list[dict[str, Any]]:
    """A row per point of a Pareto front."""
    return [
        {"einsum": einsum, **{METRIC_COLUMNS[metric]: point.costs[metric] for metric in metrics}}
        for point in found.points
    ]
