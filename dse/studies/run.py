"""A study -> one tidy DataFrame: each design priced at every point of the sweep, in as few model calls as its mapping's
options allow.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dse.model.accounting import PRESETS, SWITCHES, Accounting
from dse.model.evaluate import evaluate
from dse.model.result import Result
from dse.specs.choices import MODEL_AXIS
from dse.specs.mapping import Mapping as MappingSpec
from dse.specs.parameters import locate
from dse.specs.quantity import DIMENSION_NAMES, Quantity, QuantityError, number
from dse.specs.source import Source, SpecError, allowed
from dse.specs.study import Design, MapSearch, Study
from dse.studies.points import Point, axis_columns, choices_at, named, parameters_at

if TYPE_CHECKING:
    from dse.search.workload import WorkloadMap


@dataclass(frozen=True)
class StudyResult:
    """`frame` has a row per accounting, design and point; `breakdown` a row per Einsum of each.

    `axes` are the columns that tell points apart; `maps` the mappings that were searched, by design and point.
    """

    study: Study
    axes: tuple[str, ...]
    frame: pd.DataFrame
    breakdown: pd.DataFrame
    maps: Mapping[tuple[str, str], WorkloadMap]


def accountings(study: Study) -> dict[str, Accounting]:
    """The study's accountings by name. Raises SpecError for an unknown preset or switch."""
    found: dict[str, Accounting] = {}
    for position, (name, switches) in enumerate(study.accounting.items()):
        if switches is None:
            if name not in PRESETS:
                raise study.source.error(
                    ("accounting", position),
                    f"unknown accounting {name!r}; {allowed(name, PRESETS)}, or switches by name",
                )
            found[name] = PRESETS[name]
            continue
        for switch in switches:
            if switch not in SWITCHES:
                raise study.source.error(
                    ("accounting", name, switch), f"unknown switch {switch!r}; {allowed(switch, SWITCHES)}"
                )
        found[name] = Accounting(name, **switches)
    return found


def with_settings(study: Study, settings: Sequence[str]) -> Study:
    """The study with parameters of its designs set: each setting is `DESIGN.PARAMETER=VALUE`. Raises SpecError."""
    designs = dict(study.designs)
    for text in settings:
        left, equals, value = text.partition("=")
        name, dot, parameter = left.strip().partition(".")
        source = Source(f"--set {text}")
        if not equals or not dot:
            raise SpecError(f"--set {text}: expected DESIGN.PARAMETER=VALUE; designs: {', '.join(designs)}")
        if name not in designs:
            raise SpecError(f"--set {text}: unknown design {name!r}; {allowed(name, designs)}")
        design = designs[name]
        if parameter in design.mapping_options:
            if value not in design.mapping_options[parameter]:
                raise SpecError(
                    f"--set {text}: {parameter} has no choice {value!r}; {allowed(value, design.mapping_options[parameter])}"
                )
            designs[name] = replace(design, options={**design.options, parameter: value})
            continue
        dimensions = design.parameter_dimensions
        if parameter not in dimensions:
            known = {*dimensions, *design.mapping_options}
            raise SpecError(f"--set {text}: {name} has no parameter {parameter!r}; {allowed(parameter, known)}")
        if parameter in study.sweep:
            raise SpecError(f"--set {text}: {parameter} is swept by {study.name}; change its sweep instead")
        try:
            given = number(value)
        except QuantityError as error:
            raise SpecError(f"--set {text}: {error}") from None
        if given.dimension != dimensions[parameter]:
            raise SpecError(f"--set {text}: {parameter} takes {DIMENSION_NAMES[dimensions[parameter]]}")
        designs[name] = replace(
            design, parameters={**design.parameters, parameter: locate(value, source, (parameter,))}
        )
    return replace(study, designs=designs)


def run_study(study: Study, advance: Callable[[str], None] = lambda step: None, jobs: int = 1) -> StudyResult:
    """Price every design of a study; `advance` is called with a name after each step. Mappings that are to be searched
    are, `jobs` at a time. Raises SpecError."""
    points = [Point(dict(zip(study.sweep, values, strict=True))) for values in itertools.product(*study.sweep.values())]
    frames, breakdowns = [], []
    maps: Mapping[tuple[str, str], WorkloadMap] = {}
    if any(isinstance(design.mapping, MapSearch) for design in study.designs.values()):
        from dse.studies.maps import search_maps

        maps = search_maps(study, points, jobs)
    for accounting_name, accounting in accountings(study).items():
        for design in study.designs.values():
            if isinstance(design.mapping, MapSearch):
                own = [maps[design.name, point.label()] for point in points]
                frame, breakdown = _price_maps(study, design, points, own, accounting)
            else:
                frame, breakdown = _price_design(study, design, points, accounting)
            for table in (frame, breakdown):
                table.insert(0, "design", design.name)
                table.insert(1, "accounting", accounting_name)
                table.insert(2, "workload", design.workload.name)
            frames.append(frame)
            breakdowns.append(breakdown)
            advance(f"{design.name}, {accounting_name}")
    axes = tuple(axis_columns(points[:1]))
    swept = [column for column in axes if column not in (MODEL_AXIS, "seq_len")]
    columns = list(dict.fromkeys(column for frame in frames for column in frame.columns))
    joined = pd.concat([frame.reindex(columns=columns, fill_value=0) for frame in frames], ignore_index=True)
    if "proven" in joined:
        joined["proven"] = joined["proven"].astype(bool)
    joined = joined[[column for column in joined.columns if column not in swept] + swept]
    return StudyResult(study, axes, joined, pd.concat(breakdowns, ignore_index=True), maps)


def _price_maps(
    study: Study, design: Design, points: Sequence[Point], maps: Sequence[WorkloadMap], accounting: Accounting
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Totals and Einsums of a design whose mapping was searched, with the size of each proof."""
    frames, breakdowns = [], []
    for point, best in zip(points, maps, strict=True):
        given = parameters_at(study, design, point, {})
        result = evaluate(design.architecture, design.workload, best.mapping, given, {}, accounting)
        frame, breakdown = result.to_frame(), result.to_frame(by="einsum")
        proofs = [each.found.proof for each in best.einsums.values()]
        frame["proven"] = best.proven
        frame["mappings"] = float(sum(proof.size for proof in proofs))
        frame["priced"] = sum(proof.priced for proof in proofs)
        for position, (name, values) in enumerate(axis_columns([point]).items()):
            frame.insert(position, name, values)
            breakdown.insert(position, name, values * len(breakdown))
        frames.append(frame)
        breakdowns.append(breakdown)
    return pd.concat(frames, ignore_index=True), pd.concat(breakdowns, ignore_index=True)


def _price_design(
    study: Study, design: Design, points: Sequence[Point], accounting: Accounting
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Totals and Einsums of a design at every point, in the order of the points."""
    chosen = [choices_at(design, point) for point in points]
    given = [parameters_at(study, design, point, own) for point, (_, own) in zip(points, chosen, strict=True)]
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, (options, _) in enumerate(chosen):
        groups.setdefault((tuple(sorted(options.items())), tuple(sorted(given[place]))), []).append(place)
    frames, breakdowns = [], []
    mapping = design.mapping
    assert not isinstance(mapping, MapSearch)
    for (options, names), members in groups.items():
        together = {
            name: Quantity(np.array([given[place][name].value for place in members]), given[members[0]][name].dimension)
            for name in names
        }
        result = evaluate(design.architecture, design.workload, mapping, together, dict(options), accounting)
        if not np.all(result.feasible):
            first = members[int(np.argmin(np.broadcast_to(result.feasible, (len(members),))))]
            _explain(design, mapping, points[first], given[first], dict(options), accounting)
        axes = axis_columns([points[place] for place in members])
        frame, breakdown = _per_point(result, len(members))
        at = breakdown.pop("point").to_numpy()
        for position, (name, values) in enumerate(axes.items()):
            frame.insert(position, name, values)
            breakdown.insert(position, name, np.asarray(values)[at])
        frame.index = pd.Index(members)
        breakdown.index = pd.Index(np.array(members)[at])
        frames.append(frame)
        breakdowns.append(breakdown)
    return _in_order(frames), _in_order(breakdowns)


def _per_point(result: Result, count: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Totals and Einsums of `count` points, also where all of them cost the same because nothing swept matters."""
    frame, breakdown = result.to_frame(), result.to_frame(by="einsum")
    if result.shape:
        return frame.drop(columns="feasible"), breakdown
    copies = [breakdown.assign(point=number) for number in range(count)]
    return pd.concat([frame] * count, ignore_index=True), pd.concat(copies, ignore_index=True)


def _in_order(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The rows of all frames by the place of their point."""
    return pd.concat(frames).sort_index(kind="stable").reset_index(drop=True)


def _explain(
    design: Design,
    mapping: MappingSpec,
    point: Point,
    given: Mapping[str, Quantity],
    options: dict[str, str],
    accounting: Accounting,
) -> None:
    """Raise the error of a point that cannot exist, with its name."""
    named(
        design,
        point,
        lambda: evaluate(design.architecture, design.workload, mapping, given, options, accounting),
    )
    raise AssertionError("a point that fails among many fails alone")
