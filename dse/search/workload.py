"""The best mapping of every Einsum of a workload, as one mapping that `dse evaluate` prices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import yaml

from dse.model.accounting import CORRECTED
from dse.model.binding import bind
from dse.model.evaluate import price
from dse.model.feasibility import indivisible
from dse.model.nest import product
from dse.model.result import Result
from dse.search.build import build_problem, units_for
from dse.search.each import EachSearch, search_all
from dse.search.explain import explain_none
from dse.search.fused import FusedSearch, Group, fused_size, fused_traffic
from dse.search.fusion import Fusion
from dse.search.mapper import Found, Proof, map_einsum
from dse.search.mapping_file import mapping_data
from dse.search.pool import Pool
from dse.search.problem import Constraints, Point, Problem
from dse.specs.architecture import Hardware
from dse.specs.mapping import Mapping as MappingSpec
from dse.specs.mapping import mapping_from
from dse.specs.mapspace import FREE, OBJECTIVES, MapspaceSpec, check_mapspace
from dse.specs.quantity import Quantity
from dse.specs.source import SpecError
from dse.specs.workload import Workload
from dse.wording import allowed


@dataclass(frozen=True)
class EinsumMap:
    """The best mapping of one Einsum: the unit it runs on, the problem solved, and what was found."""

    problem: Problem
    found: Found

    @property
    def best(self) -> Point:
        """The mapping of least objective."""
        return self.found.points[0]


@dataclass(frozen=True)
class WorkloadMap:
    """The best mapping of a workload: Einsum by Einsum one after another, or fused in groups.

    `mapping` is a mapping like any other; `result` its price; `data` what a mapping file of it says. Where fusion was
    searched, `proof` is of the whole and `unfused` the best mapping of each Einsum on its own.
    """

    objective: str
    einsums: Mapping[str, EinsumMap]
    mapping: MappingSpec
    data: Mapping[str, Any]
    result: Result
    groups: tuple[Group, ...]
    proof: Proof | None = None
    unfused: WorkloadMap | None = None

    @property
    def proven(self) -> bool:
        """Whether the search of every Einsum ended."""
        return all(each.found.proof.complete for each in self.einsums.values())

    @property
    def fused(self) -> bool:
        """Whether Einsums share loops or what stays in the buffer."""
        return any(len(group.einsums) > 1 for group in self.groups)

    def to_yaml(self) -> str:
        """The mapping as a file."""
        return yaml.safe_dump(dict(self.data), sort_keys=False, width=120, allow_unicode=True, default_flow_style=None)


def map_workload(
    workload: Workload,
    hardware: Hardware,
    spec: MapspaceSpec,
    given: Mapping[str, Quantity],
    objective: str,
    *,
    jobs: int = 1,
    progress: Callable[[str, float], None] = lambda name, share: None,
) -> WorkloadMap:
    """Map each Einsum to the unit and nest of least objective. Raises SpecError where one has no valid mapping.

    `given` sets parameters and ranks of the workload. With several `jobs`, Einsums are searched side by side; what is
    found does not depend on it.
    """
    problems = problems_of(workload, hardware, spec, given)
    return assemble(
        workload, hardware, spec, given, objective, problems, search_all(problems, objective, jobs, progress)
    )


def assemble(
    workload: Workload,
    hardware: Hardware,
    spec: MapspaceSpec,
    given: Mapping[str, Quantity],
    objective: str,
    problems: Sequence[Problem],
    found: Sequence[Found],
) -> WorkloadMap:
    """What the problems of a workload came to: of each Einsum the best unit, and all of it priced. Raises SpecError."""
    einsums: dict[str, EinsumMap] = {}
    for einsum in workload.cascade.computed:
        own = [EinsumMap(p, f) for p, f in zip(problems, found, strict=True) if p.einsum == einsum.name]
        valid = [each for each in own if each.found.points]
        if not valid:
            raise _none_valid(hardware, spec, einsum.name, [each.problem for each in own])
        ranked = OBJECTIVES[objective]
        einsums[einsum.name] = min(valid, key=lambda each: [each.best.costs[metric] for metric in ranked])
    groups = tuple(Group((name,), (), ()) for name in einsums)
    return _priced(workload, hardware, given, objective, einsums, groups)


def _priced(
    workload: Workload,
    hardware: Hardware,
    given: Mapping[str, Quantity],
    objective: str,
    einsums: Mapping[str, EinsumMap],
    groups: tuple[Group, ...],
) -> WorkloadMap:
    """Einsums with their nests as one mapping, priced."""
    parts = {part for split in workload.cascade.partition.values() for part in split[1:]}
    sizes = {name: int(given[name].value) for name in sorted(parts & set(given))}
    data = mapping_data(workload, hardware, objective, einsums, groups, sizes)
    mapping = mapping_from(data, f"the mapping found for {workload.name} on {hardware.architecture.name}")
    binding = bind(workload, hardware, mapping.plan(), given)
    return WorkloadMap(objective, einsums, mapping, data, price(binding, CORRECTED), groups)


def map_fused_workload(
    workload: Workload,
    hardware: Hardware,
    spec: MapspaceSpec,
    given: Mapping[str, Quantity],
    objective: str,
    *,
    jobs: int = 1,
    progress: Callable[[str, float], None] = lambda name, share: None,
) -> WorkloadMap:
    """Map a cascade over all ways to fuse it, or with the groups that are demanded, and beside it each Einsum on its own,
    as `unfused`. Raises SpecError where either has no valid mapping.

    Where the latter is one of those searched, it is the answer, not proven, of a search that is interrupted.
    """
    problems = problems_of(workload, hardware, spec, given)
    by_einsum = [[each for each in problems if each.einsum == einsum.name] for einsum in workload.cascade.computed]
    _check_one_width(workload, problems)
    for problem in problems:
        if problem.imperfect:
            key = next(each.key for each in reversed(spec.demands(problem.einsum)) if each.imperfect is not None)
            raise spec.source.error(
                (*key, "imperfect"), "fused Einsums are mapped with factors that divide; take it out"
            )
    fusion = Fusion(workload.cascade, _sizes(problems))
    demanded = _demanded_groups(spec, fusion)
    with Pool(jobs) as pool:
        search = FusedSearch(by_einsum, fusion, objective, pool, demanded=demanded)
        each = EachSearch(problems, objective, pool)

        @cache
        def unfused() -> WorkloadMap:
            apart = assemble(workload, hardware, spec, given, objective, problems, each.found(only_proven=True))
            if not apart.proven:
                raise KeyboardInterrupt
            return apart

        def known() -> dict[str, float]:
            if demanded is not None or fusion.waiting:
                return {}
            result = unfused().result
            energy, latency = float(result.energy_pj), float(result.latency_s)
            return {"energy": energy, "latency": latency, "edp": energy * latency, "dram": float(result.dram_bytes)}

        try:
            found = search.best(known, progress)
            if found is None:
                raise _none_fused(workload, hardware, spec, by_einsum)
            apart = unfused()
        except KeyboardInterrupt:
            if demanded is not None:
                raise
            pool.stop()
            apart = assemble(workload, hardware, spec, given, objective, problems, each.hurried())
            proof = Proof(fused_size(by_einsum, fusion), 0, {}, complete=False)
            stopped = {name: replace(own, found=replace(own.found, proof=proof)) for name, own in apart.einsums.items()}
            whole = _priced(workload, hardware, given, objective, stopped, apart.groups)
            return replace(whole, proof=proof, unfused=apart)
    einsums = {
        placed.problem.einsum: EinsumMap(placed.problem, Found([Point(placed.nest, {})], found.proof))
        for placed in found.placed
    }
    whole = _priced(workload, hardware, given, objective, einsums, found.groups)
    return replace(whole, proof=found.proof, unfused=apart)


def _none_fused(
    workload: Workload, hardware: Hardware, spec: MapspaceSpec, by_einsum: Sequence[Sequence[Problem]]
) -> SpecError:
    """Says which Einsum has no valid mapping, or that the groups have none."""
    for einsum, own in zip(workload.cascade.computed, by_einsum, strict=True):
        if not any(map_einsum(problem).points for problem in own):
            return _none_valid(hardware, spec, einsum.name, own)
    return spec.source.error(("fuse",), f"{workload.name} has no valid mapping in these groups")


def check_apart(spec: MapspaceSpec, what: str) -> None:
    """Refuse groups to be fused where each Einsum is mapped on its own. Raises SpecError."""
    if spec.groups:
        raise spec.source.error(("fuse",), f"{what} maps each Einsum on its own; take `fuse` out of the demands")


def _demanded_groups(spec: MapspaceSpec, fusion: Fusion) -> list[tuple[int, int]] | None:
    """The groups that are demanded, each as its first Einsum and the end, and every other Einsum alone. Raises SpecError."""
    if not spec.groups:
        return None
    taken: dict[int, int] = {}
    found = []
    for number, names in enumerate(spec.groups):
        places = [fusion.makers[name] for name in names]
        if places != list(range(places[0], places[0] + len(places))) or any(place in taken for place in places):
            order = ", ".join(einsum.name for einsum in fusion.einsums)
            raise spec.source.error(
                ("fuse", number), f"fuse: successive Einsums, each in one group at most, of {order}"
            )
        taken.update(dict.fromkeys(places, number))
        found.append((places[0], places[-1] + 1))
    return found + [(place, place + 1) for place in range(len(fusion.einsums)) if place not in taken]


def search_fronts(
    workload: Workload,
    hardware: Hardware,
    spec: MapspaceSpec,
    given: Mapping[str, Quantity],
    metrics: Sequence[str],
) -> dict[str, Found]:
    """The Pareto front of each Einsum over some metrics, over all units that can run it. Raises SpecError."""
    check_apart(spec, "a front")
    problems: dict[str, list[Problem]] = {}
    for problem in problems_of(workload, hardware, spec, given):
        problems.setdefault(problem.einsum, []).append(problem)
    found = {}
    for einsum, own in problems.items():
        found[einsum] = _merged([map_einsum(problem, metrics[0], metrics) for problem in own], metrics)
        if not found[einsum].points:
            raise _none_valid(hardware, spec, einsum, own)
    return found


def _merged(fronts: Sequence[Found], metrics: Sequence[str]) -> Found:
    """The front of several units' fronts, and their proofs together."""
    kept: list[tuple[tuple[float, ...], Point]] = []
    every = [(tuple(p.costs[metric] for metric in metrics), p) for front in fronts for p in front.points]
    for costs, point in sorted(every, key=lambda each: each[0]):
        if not any(all(a <= b * (1 + 1e-12) for a, b in zip(other, costs, strict=True)) for other, _ in kept):
            kept.append((costs, point))
    cut: Counter[str] = Counter()
    for front in fronts:
        cut.update(front.proof.cut)
    proofs = [front.proof for front in fronts]
    proof = Proof(sum(each.size for each in proofs), sum(each.priced for each in proofs), dict(sorted(cut.items())))
    return Found([point for _, point in kept], proof)


def search_bounds(
    workload: Workload,
    hardware: Hardware,
    memory: str,
    given: Mapping[str, Quantity],
    *,
    fuse: bool = False,
    jobs: int = 1,
    progress: Callable[[str, float], None] = lambda name, share: None,
) -> dict[str, Found]:
    """Least DRAM traffic over the capacity of a memory, by Einsum: a front with all that is inside the memory taken away,
    so that it alone holds data on chip. With `fuse`, also of all Einsums, one after another and fused in any way. Raises
    SpecError for an unknown memory."""
    found, alone = {}, {}
    problems = problems_of(workload, hardware, FREE, given)
    for problem in problems:
        if problem.einsum in found:
            continue
        if memory not in problem.memories[1:]:
            continue
        last = problem.levels[problem.memories.index(memory)]
        whole = replace(last, capacity=UNBOUNDED, axes=(), seconds={})
        levels = (replace(problem.levels[0], axes=()), whole)
        alone[problem.einsum] = replace(problem, levels=levels, constraints=Constraints())
        found[problem.einsum] = map_einsum(alone[problem.einsum], "dram", ("capacity", "dram"))
    for problem in problems:
        if problem.einsum not in found:
            inner = problem.memories[1:]
            raise SpecError(
                f"--bound: {problem.unit} has no {memory!r} inside {problem.memories[0]}; {allowed(memory, inner)}"
            )
    if fuse:
        order = [alone[einsum.name] for einsum in workload.cascade.computed]
        _check_one_width(workload, order)
        fusion = Fusion(workload.cascade, _sizes(order))
        found |= {
            UNFUSED: _in_turn(list(found.values())),
            FUSED: fused_traffic(order, fusion, jobs=jobs, progress=progress),
        }
    return found


UNFUSED, FUSED = "all, one by one", "all, fused"
"""Names of the bounds of a whole cascade."""


def _check_one_width(workload: Workload, problems: Sequence[Problem]) -> None:
    """Refuse to fuse Einsums whose values differ in width. Raises SpecError."""
    widths = {problem.einsum: problem.word_bytes * 8 for problem in problems}
    if len(set(widths.values())) > 1:
        shown = ", ".join(f"{name} {bits:g}" for name, bits in widths.items())
        raise workload.source.error(("types",), f"fused Einsums have values of one width; found bits: {shown}")


def _in_turn(fronts: Sequence[Found]) -> Found:
    """Traffic of Einsums one after another, over the capacity that the largest of them has."""
    curves = [[(point.costs["capacity"], point.costs["dram"]) for point in front.points] for front in fronts]
    sizes = sorted({size for curve in curves for size, _ in curve if size >= max(other[0][0] for other in curves)})
    points = [
        Point(
            (), {"capacity": size, "dram": sum(min(moved for own, moved in curve if own <= size) for curve in curves)}
        )
        for size in sizes
    ]
    proofs = [front.proof for front in fronts]
    return Found(points, Proof(math.prod(each.size for each in proofs), sum(each.priced for each in proofs), {}))


def _sizes(problems: Sequence[Problem]) -> dict[str, int]:
    return {rank: size for each in problems for rank, size in zip(each.ranks, each.sizes, strict=True)}


UNBOUNDED = 2.0**60
"""Elements that no tile comes to: a bounded memory in name only."""


def problems_of(
    workload: Workload, hardware: Hardware, spec: MapspaceSpec, given: Mapping[str, Quantity]
) -> list[Problem]:
    """What is to be solved: each Einsum on each unit that can run it. Raises SpecError."""
    check_mapspace(spec, workload, hardware.architecture)
    values = {**given, **workload.parameter_values(given)}
    for rank, parts in workload.cascade.partition.items():
        for part in parts[1:]:
            if part in values and not (isinstance(values[part].value, int) and values[part].value >= 1):
                raise SpecError(f"{part} is a whole number of 1 or more, found {values[part].value}")
        whole, inner = values[rank].value, product(values[part].value for part in parts[1:] if part in values)
        if whole % inner:
            raise workload.source.error(("partition", rank), indivisible(whole, inner, rank, " x ".join(parts[1:])))
    return [
        build_problem(workload, hardware, einsum, unit, spec, values)
        for einsum in workload.cascade.computed
        for unit in units_for(workload, hardware, einsum, spec)
    ]


def _none_valid(hardware: Hardware, spec: MapspaceSpec, einsum: str, problems: Sequence[Problem]) -> SpecError:
    """Says why an Einsum has no valid mapping, unit by unit."""
    reasons = "; ".join(f"on {problem.unit}, {explain_none(problem)}" for problem in problems)
    source = spec.source if spec.source.places else hardware.architecture.source
    return source.error((), f"{einsum} has no valid mapping: {reasons}")
