"""Mappings that were found -> what a mapping file of them says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dse.search.build import NO_RANK
from dse.search.problem import Nest, Problem
from dse.specs.architecture import Hardware
from dse.specs.workload import Workload

if TYPE_CHECKING:
    from dse.search.fused import Group
    from dse.search.workload import EinsumMap


def mapping_data(
    workload: Workload,
    hardware: Hardware,
    objective: str,
    einsums: Mapping[str, EinsumMap],
    groups: Sequence[Group],
    parts: Mapping[str, int],
) -> dict[str, Any]:
    """What a mapping file of some Einsums' best nests says, a phase for each group; `parts` are the sizes of parts of
    partitioned ranks."""
    sizes = {
        rank: size
        for each in einsums.values()
        for rank, size in zip(each.problem.ranks, each.problem.sizes, strict=True)
        if rank != NO_RANK
    }
    proven = all(each.found.proof.complete for each in einsums.values())
    fused = any(len(group.einsums) > 1 for group in groups)
    what = "The fused mapping" if fused else "Each Einsum's mapping"
    shapes = ", ".join(f"{rank.upper()} = {size}" for rank, size in sizes.items())
    return {
        "name": f"{hardware.architecture.name}_{workload.name}_{objective}",
        "about": f"{what} of least {objective}, {'proven' if proven else 'not proven'}, for {shapes}.",
        "architecture": hardware.architecture.name,
        "workload": workload.name,
        **({"parameters": dict(parts)} if parts else {}),
        "einsums": {name: _plan_of(each.problem, each.best.nest) for name, each in einsums.items()},
        "phases": [_phase_of(group, einsums) for group in groups],
    }


def _phase_of(group: Group, einsums: Mapping[str, EinsumMap]) -> dict[str, Any]:
    outermost = einsums[group.einsums[0]].problem.memories[0]
    return {
        "name": " ".join(group.einsums),
        **({"loops": {outermost: [f"{rank}:{factor}" for rank, factor in group.loops]}} if group.loops else {}),
        "steps": [{einsums[name].problem.unit: [name]} for name in group.einsums],
    }


def _plan_of(problem: Problem, nest: Nest) -> dict[str, Any]:
    def tokens(loops: Sequence[tuple[str, int]]) -> list[str]:
        return [f"{rank}:{factor}" for rank, factor in loops]

    covered = Counter(dict.fromkeys(problem.ranks, 1))
    for level in nest:
        for rank, factor in (*level.temporal, *(loop for loops in level.spatial.values() for loop in loops)):
            covered[rank] *= factor
    imperfect = [rank for rank, size in zip(problem.ranks, problem.sizes, strict=True) if covered[rank] > size]
    return {
        "unit": problem.unit,
        "loops": {level.memory: tokens(level.temporal) for level in nest if level.temporal},
        "spatial": {axis: tokens(loops) for level in nest for axis, loops in level.spatial.items() if loops},
        "keep": {level.memory: list(level.keep) for level in nest},
        **({"imperfect": imperfect} if imperfect else {}),
    }
