"""The Python interface behind `import dse`: specs by name or object, plain numbers or text for parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dse.cascade.interpreter import largest_array
from dse.cascade.parser import CascadeError
from dse.cascade.passes import PassReport, accumulations_over, analyze_rank, families
from dse.cascade.rewrite import Reduction
from dse.cascade.rewrite import reduce_passes as rewrite
from dse.cascade.verify import Trial, verify_cascade
from dse.model.accounting import PRESETS, Accounting
from dse.model.evaluate import evaluate as _evaluate
from dse.model.result import Result
from dse.specs.architecture import Architecture
from dse.specs.library import default_mapping, load_architecture, load_mapping, load_models, load_workload, names
from dse.specs.mapping import Mapping as MappingSpec
from dse.specs.quantity import Quantity, QuantityError, number
from dse.specs.sizes import shapes_to_run
from dse.specs.source import SpecError, allowed
from dse.specs.study import load_study
from dse.specs.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

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


def run_study(study: str, **overrides: Any) -> pd.DataFrame:
    """Run a study by name or path and return its results, one row per accounting, design and point.

    Each override is `DESIGN__PARAMETER=VALUE`, e.g. `flat__lanes=1024`. Raises SpecError for wrong input.
    """
    from dse.studies.run import run_study as price
    from dse.studies.run import with_settings

    settings = [f"{name.replace('__', '.', 1)}={value}" for name, value in overrides.items()]
    return price(with_settings(load_study(study), settings)).frame


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
