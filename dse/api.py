"""The Python interface behind `import dse`: specs by name or object, plain numbers or text for parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.cascade.interpreter import largest_array
from dse.cascade.parser import CascadeError
from dse.cascade.passes import PassReport, accumulations_over, analyze_rank, families
from dse.cascade.rewrite import Reduction
from dse.cascade.rewrite import reduce_passes as rewrite
from dse.cascade.verify import Trial, verify_cascade
from dse.model.accounting import PRESETS, Accounting
from dse.model.evaluate import evaluate as _evaluate
from dse.model.result import Result
from dse.search.mapper import METRICS, Found
from dse.search.workload import WorkloadMap, map_fused_workload, search_bounds, search_fronts
from dse.search.workload import map_workload as search_mappings
from dse.specs.architecture import Architecture, Hardware
from dse.specs.library import (
    default_mapping,
    default_mapspace,
    load_architecture,
    load_mapping,
    load_mapspace,
    load_models,
    load_workload,
    names,
)
from dse.specs.mapping import Mapping as MappingSpec
from dse.specs.mapspace import FREE, OBJECTIVES, MapspaceSpec
from dse.specs.quantity import COUNT, DIMENSION_NAMES, Quantity, QuantityError, number
from dse.specs.sizes import shapes_to_run
from dse.specs.source import SpecError
from dse.specs.study import load_study
from dse.specs.workload import Workload
from dse.wording import allowed

if TYPE_CHECKING:
    import pandas as pd

    from dse.studies.sensitivity import Analysis

MOST_ELEMENTS = 2**28
"""Largest array that `verify` makes: 2 GiB in float64."""


def evaluate(
    architecture: str | Architecture,
    workload: str | Workload,
    *,
    mapping: str | MappingSpec | None = None,
    model: str | None = None,
    accounting: str | Accounting = "corrected",
    parameters: Mapping[str, Any] | None = None,
    **more: Any,
) -> Result:
    """Price a workload on an architecture under a mapping.

    Specs are shipped names, paths or loaded objects; the default mapping is the shipped one for the two. `model` fills
    in workload parameters (`dse list models`). Every other keyword, and `parameters`, sets a parameter of the three, or
    an option of the mapping: text with a unit ("16 MiB", "64K"), a plain number, or an array with one entry per design point (in bits,
    bits per second or Hz where the parameter has a unit).

    Returns a Result: `.latency_s`, `.energy_pj`, `.dram_bytes`, `.area_um2`, `.to_frame(by=...)`, each of the shape of
    the design points. Raises SpecError for wrong input.

    >>> result = evaluate("chip.yaml", "mine.yaml", mapping="chip.mapping.yaml", buffer="8 MiB")  # doctest: +SKIP
    >>> result.to_frame(by="component")  # doctest: +SKIP
    """
    arch = load_architecture(architecture) if isinstance(architecture, str) else architecture
    work = load_workload(workload) if isinstance(workload, str) else workload
    chosen = mapping if mapping is not None else default_mapping(arch.name, work.name)
    plan = load_mapping(chosen) if isinstance(chosen, str) else chosen
    if isinstance(accounting, str):
        if accounting not in PRESETS:
            raise SpecError(f"unknown accounting {accounting!r}; {allowed(accounting, PRESETS)}")
        accounting = PRESETS[accounting]
    given: dict[str, Any] = dict(_model_parameters(model, work))
    choices: dict[str, str] = {}
    for name, value in {**(parameters or {}), **more}.items():
        if name in plan.options:
            choices[name] = str(value)
            continue
        try:
            given[name] = number(value) if isinstance(value, str) else value
        except QuantityError as error:
            raise SpecError(f"{name}: {error}") from None
    return _evaluate(arch, work, plan, given, choices, accounting)


def map_workload(
    architecture: str | Architecture,
    workload: str | Workload,
    *,
    objective: str = "energy",
    mapspace: str | MapspaceSpec | None = None,
    model: str | None = None,
    fuse: bool | None = None,
    jobs: int = 1,
    progress: Callable[[str, float], None] = lambda name, share: None,
    parameters: Mapping[str, Any] | None = None,
    **more: Any,
) -> WorkloadMap:
    """The mapping of least `objective` (energy, latency, edp or dram), proven: of each Einsum on its own, or with `fuse`
    of all together, over every way to fuse successive Einsums (by default where the mapspace demands groups).

    Ties are broken by energy, then latency, then capacity used. `mapspace` demands things of the mappings: a shipped
    name, a path, "free" for none; by default the shipped one for the two, if any. Other keywords, and `parameters`, set
    parameters of the architecture and the workload, and ranks, as in `evaluate`; each is one value.

    Returns a WorkloadMap: `.mapping` (give it to `evaluate`), `.result`, `.to_yaml()`, for each of `.einsums` its nest
    and proof, and `.groups` of fused ones; with `fuse` also `.unfused`, the best mapping without. Raises SpecError for
    wrong input, and where no mapping is valid, with the reason.

    >>> found = map_workload("three_level", "matmul", m=256, n=256, k=256)  # doctest: +SKIP
    >>> found.result.energy_pj, found.proven  # doctest: +SKIP
    """
    if objective not in OBJECTIVES:
        raise SpecError(f"unknown objective {objective!r}; {allowed(objective, OBJECTIVES)}")
    job = _mapping_job(architecture, workload, mapspace, model, {**(parameters or {}), **more})
    if not (bool(job[2].groups) if fuse is None else fuse):
        return search_mappings(*job, objective, jobs=jobs, progress=progress)
    return map_fused_workload(*job, objective, jobs=jobs, progress=progress)


def map_front(
    architecture: str | Architecture,
    workload: str | Workload,
    *,
    metrics: Sequence[str],
    mapspace: str | MapspaceSpec | None = None,
    model: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Found]:
    """The Pareto front of each Einsum's mappings over two or three metrics: energy (pJ), latency (s), dram (bytes of
    traffic), capacity (bytes used of the outermost bounded memory). Arguments as in `map_workload`.

    A point of the front is beaten by no mapping in all of them. Raises SpecError as `map_workload` does.
    """
    for metric in metrics:
        if metric not in METRICS:
            raise SpecError(f"unknown metric {metric!r}; {allowed(metric, METRICS)}")
    if not 2 <= len(set(metrics)) == len(metrics) <= 3:
        raise SpecError(f"a front is over two or three different metrics, found {', '.join(metrics)}")
    return search_fronts(
        *_mapping_job(architecture, workload, mapspace, model, {**(parameters or {}), **more}), metrics
    )


def map_bound(
    architecture: str | Architecture,
    workload: str | Workload,
    *,
    memory: str,
    model: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    fuse: bool = False,
    jobs: int = 1,
    progress: Callable[[str, float], None] = lambda name, share: None,
    **more: Any,
) -> dict[str, Found]:
    """Least DRAM traffic of each Einsum over the capacity of `memory`, for any mapping that holds its data there.

    With `fuse`, also of the whole cascade: one Einsum after another, and fused in any way that its passes allow. Each
    point has `costs["capacity"]` and `costs["dram"]` in bytes: with less capacity, no mapping into equal tiles has
    as little traffic (Huang et al., "Mind the Gap", ISCA 2024, call the curve a ski slope).
    """
    work, hardware, _, own = _mapping_job(architecture, workload, FREE.name, model, {**(parameters or {}), **more})
    return search_bounds(work, hardware, memory, own, fuse=fuse, jobs=jobs, progress=progress)


def _mapping_job(
    architecture: str | Architecture,
    workload: str | Workload,
    mapspace: str | MapspaceSpec | None,
    model: str | None,
    parameters: Mapping[str, Any],
) -> tuple[Workload, Hardware, MapspaceSpec, dict[str, Quantity]]:
    """What the mapper is asked: specs loaded, hardware in numbers, and the workload's own parameters. Raises SpecError."""
    arch = load_architecture(architecture) if isinstance(architecture, str) else architecture
    work = load_workload(workload) if isinstance(workload, str) else workload
    chosen = mapspace if mapspace is not None else default_mapspace(arch.name, work.name) or FREE.name
    spec = chosen if not isinstance(chosen, str) else FREE if chosen == FREE.name else load_mapspace(chosen)
    parts = [part for split in work.cascade.partition.values() for part in split[1:]]
    dimensions = {name: value.dimension for name, value in arch.resolve().values.items()}
    given: dict[str, Quantity] = dict(_model_parameters(model, work))
    known = [*arch.parameters, *work.parameters, *work.ranks, *parts]
    for name, value in parameters.items():
        if name not in known:
            raise SpecError(f"unknown parameter {name!r} of {arch.name} and {work.name}; {allowed(name, known)}")
        try:
            quantity = number(value) if isinstance(value, str) else Quantity(value, dimensions.get(name, COUNT))
        except QuantityError as error:
            raise SpecError(f"{name}: {error}") from None
        if quantity.dimension != dimensions.get(name, COUNT):
            raise SpecError(f"{name} takes {DIMENSION_NAMES[dimensions.get(name, COUNT)]}")
        if np.ndim(quantity.value):
            raise SpecError(f"{name}: the mapper takes one value, found {np.size(quantity.value)}")
        given[name] = quantity
    for part in parts:
        if part not in given:
            raise SpecError(f"{work.name} is partitioned: give {part} a size, e.g. --set {part}=256")
    hardware = arch.resolve({name: value for name, value in given.items() if name in arch.parameters})
    return work, hardware, spec, {name: value for name, value in given.items() if name not in arch.parameters}


def run_study(study: str, **overrides: Any) -> pd.DataFrame:
    """Run a study by name or path and return its results, one row per accounting, design and point.

    Each override is `DESIGN__PARAMETER=VALUE`, e.g. `flat__lanes=1024`. Raises SpecError for wrong input.
    """
    from dse.studies.run import run_study as price
    from dse.studies.run import with_settings

    settings = [f"{name.replace('__', '.', 1)}={value}" for name, value in overrides.items()]
    return price(with_settings(load_study(study), settings)).frame


def analyze_sensitivity(study: str, **overrides: Any) -> Analysis:
    """What the uncertain assumptions of a study with a `sensitivity:` block do to its headlines; overrides as in
    `run_study`.

    Returns `.indices` (first and total order of each headline and factor, with 95 % bounds), `.distribution` (nominal,
    median, 5 % and 95 % of each headline) and `.samples`. Raises SpecError for wrong input.
    """
    from dse.studies.run import with_settings
    from dse.studies.sensitivity import run_sensitivity

    settings = [f"{name.replace('__', '.', 1)}={value}" for name, value in overrides.items()]
    loaded = with_settings(load_study(study), settings)
    if loaded.sensitivity is None:
        raise SpecError(f"{loaded.name} has no sensitivity: block")
    analysis = run_sensitivity(loaded).analysis
    assert analysis is not None
    return analysis


def _model_parameters(model: str | None, workload: Workload) -> Mapping[str, Any]:
    if model is None:
        return {}
    models = load_models()
    if model not in models:
        raise SpecError(f"unknown model {model!r}; {allowed(model, models)}")
    return {name: located.quantity({}) for name, located in models[model].items() if name in workload.parameters}


def analyze_passes(workload: str | Workload, rank: str | None = None) -> PassReport:
    """Passes that a cascade must make over a rank, whatever the mapping: barriers, live footprints, passes by Einsum.

    `rank` is a rank or a part of one; by default the one with the most passes, and among equals the one that most
    Einsums reduce or accumulate over. Raises SpecError for an unknown rank.
    """
    work = load_workload(workload) if isinstance(workload, str) else workload
    reports = {name: analyze_rank(work.cascade, name) for name in families(work.cascade)}
    if rank is None:
        return max(reports.values(), key=lambda report: (report.passes, accumulations_over(work.cascade, report.rank)))
    parts = [part for split in work.cascade.partition.values() for part in split]
    if rank not in reports and rank not in parts:
        raise SpecError(f"{work.name} has no rank {rank!r}; {allowed(rank, [*reports, *parts])}")
    return reports.get(rank) or analyze_rank(work.cascade, rank)


def reduce_passes(workload: str | Workload, rank: str | None = None) -> Reduction:
    """Rewrite a workload's cascade until no rule takes another pass over a rank away; `rank` as in `analyze_passes`."""
    work = load_workload(workload) if isinstance(workload, str) else workload
    chosen = analyze_passes(work, rank).rank
    if chosen not in families(work.cascade):
        raise SpecError(f"{chosen} is a part of a rank; passes are reduced over {', '.join(families(work.cascade))}")
    return rewrite(work.cascade, chosen)


def verify(workload: str | Workload, **sizes: Any) -> list[Trial]:
    """Run a workload's cascade on numbers and compare it with the reference that it names.

    Each keyword sets a parameter, a rank or a part of one (`seq_len="1K"`, `M0=128`); ranks left open are 15 at most.
    Raises SpecError where the workload names no reference.
    """
    work = load_workload(workload) if isinstance(workload, str) else workload
    if work.reference is None:
        raise work.source.error((), f"{work.name} names no reference; add e.g. 'reference: AV = attention(Q, K, V)'")
    parts = [part for split in work.cascade.partition.values() for part in split[1:]]
    given: dict[str, Quantity] = {}
    for name, value in sizes.items():
        known = [*work.parameters, *work.ranks, *parts]
        if name not in known:
            raise SpecError(f"unknown parameter {name!r} of {work.name}; {allowed(name, known)}")
        try:
            given[name] = number(value)
        except QuantityError as error:
            raise SpecError(f"{name}: {error}") from None
    shapes, small = shapes_to_run(work, given), shapes_to_run(work, {})
    largest = largest_array(work.cascade, shapes)
    if largest > MOST_ELEMENTS:
        raise SpecError(
            f"{work.name} at these sizes makes an array of {largest:,} elements; at most {MOST_ELEMENTS:,} are run, so "
            f"set smaller sizes"
        )
    shipped = load_workload(work.name).cascade if work.name in names("workloads") else None
    like = shipped if shipped != work.cascade else None
    try:
        return verify_cascade(work.cascade, work.reference, shapes, small, like)
    except CascadeError as error:
        raise work.source.error(("einsums",), str(error)) from None
