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
from numpy.typing import NDArray

from dse.model.accounting import PRESETS, SWITCHES, Accounting
from dse.model.evaluate import evaluate
from dse.model.result import Result
from dse.specs.choices import MODEL_AXIS
from dse.specs.parameters import locate
from dse.specs.quantity import DIMENSION_NAMES, Quantity, QuantityError, number
from dse.specs.source import Source, SpecError
from dse.specs.study import Design, MapSearch, Part, Study
from dse.studies.parts import Tables, put_together
from dse.studies.points import Point, axis_columns, choices_at, named, parameters_at
from dse.wording import allowed

if TYPE_CHECKING:
    from dse.search.workload import WorkloadMap
    from dse.studies.explore import Explored
    from dse.studies.sensitivity import Analysis


@dataclass(frozen=True)
class StudyResult:
    """`frame` has a row per accounting, design and point; `breakdown` a row per Einsum of each, `components` one per
    component.

    `axes` are the columns that tell points apart; `maps` the mappings that were searched, by design, part and point. Of a
    search, the designs are the best that were `explored`, and `given` are the rows of those that the study has; of a
    sensitivity, `analysis` is what its assumptions do to its headlines.
    """

    study: Study
    axes: tuple[str, ...]
    frame: pd.DataFrame
    breakdown: pd.DataFrame
    components: pd.DataFrame
    maps: Mapping[tuple[str, str, str], WorkloadMap]
    explored: Explored | None = None
    given: pd.DataFrame | None = None
    analysis: Analysis | None = None


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
            parts = [
                replace(part, options={**part.options, parameter: value}) if parameter in part.mapping_options else part
                for part in design.parts
            ]
            designs[name] = replace(design, parts=tuple(parts))
            continue
        dimensions = design.parameter_dimensions
        if parameter not in dimensions:
            known = {*dimensions, *design.mapping_options}
            raise SpecError(f"--set {text}: {name} has no parameter {parameter!r}; {allowed(parameter, known)}")
        if study.search is not None and parameter in {each.name for each in study.search.ranges.get(name, ())}:
            raise SpecError(f"--set {text}: {study.name} searches {parameter}; change its search instead")
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
    maps: Mapping[tuple[str, str, str], WorkloadMap] = {}
    if any(isinstance(part.mapping, MapSearch) for design in study.designs.values() for part in design.parts):
        from dse.studies.maps import search_maps

        maps = search_maps(study, points, jobs)
    axes = tuple(axis_columns(points[:1]))
    priced: list[Tables] = []
    for accounting_name, accounting in accountings(study).items():
        for design in study.designs.values():
            parts = []
            for part in design.parts:
                if isinstance(part.mapping, MapSearch):
                    own = [maps[design.name, part.name, point.label()] for point in points]
                    parts.append((part.name, _price_maps(study, design, part, points, own, accounting)))
                else:
                    parts.append((part.name, _price_part(study, design, part, points, accounting)))
            tables = put_together(parts, axes)
            for table in (tables.totals, tables.einsums, tables.components):
                table.insert(0, "design", design.name)
                table.insert(1, "accounting", accounting_name)
                table.insert(2, "workload", design.workload)
            priced.append(tables)
            advance(f"{design.name}, {accounting_name}")
    frames = [tables.totals for tables in priced]
    swept = [column for column in axes if column not in (MODEL_AXIS, "seq_len")]
    columns = list(dict.fromkeys(column for frame in frames for column in frame.columns))
    joined = pd.concat([frame.reindex(columns=columns, fill_value=0) for frame in frames], ignore_index=True)
    if "proven" in joined:
        joined["proven"] = joined["proven"].astype(bool)
    joined = joined[[column for column in joined.columns if column not in swept] + swept]
    einsums = pd.concat([tables.einsums for tables in priced], ignore_index=True)
    components = pd.concat([tables.components for tables in priced], ignore_index=True)
    return StudyResult(study, axes, joined, einsums, components, maps)


def _price_maps(
    study: Study,
    design: Design,
    part: Part,
    points: Sequence[Point],
    maps: Sequence[WorkloadMap],
    accounting: Accounting,
) -> Tables:
    """A part whose mapping was searched, with the size of each proof."""
    found = []
    for point, best in zip(points, maps, strict=True):
        given = parameters_at(study, design, part, point, {})
        result = evaluate(design.architecture, part.workload, best.mapping, given, {}, accounting)
        tables = _per_point(result, [point])
        proofs = [each.found.proof for each in best.einsums.values()]
        tables.totals["proven"] = best.proven
        tables.totals["mappings"] = float(sum(proof.size for proof in proofs))
        tables.totals["priced"] = sum(proof.priced for proof in proofs)
        found.append(tables)
    return _joined(found, [np.array([place]) for place in range(len(points))])


def _price_part(study: Study, design: Design, part: Part, points: Sequence[Point], accounting: Accounting) -> Tables:
    """A part at every point, in the order of the points."""
    chosen = [choices_at(part, point) for point in points]
    given = [parameters_at(study, design, part, point, own) for point, (_, own) in zip(points, chosen, strict=True)]
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, (options, _) in enumerate(chosen):
        groups.setdefault((tuple(sorted(options.items())), tuple(sorted(given[place]))), []).append(place)
    mapping = part.mapping
    assert not isinstance(mapping, MapSearch)
    found = []
    for (options, names), members in groups.items():
        together = {
            name: Quantity(np.array([given[place][name].value for place in members]), given[members[0]][name].dimension)
            for name in names
        }
        result = evaluate(design.architecture, part.workload, mapping, together, dict(options), accounting)
        if not np.all(result.feasible):
            first = members[int(np.argmin(np.broadcast_to(result.feasible, (len(members),))))]
            own = given[first]

            def alone(own: Mapping[str, Quantity] = own, options: Any = options) -> Result:
                return evaluate(design.architecture, part.workload, mapping, own, dict(options), accounting)

            named(design, points[first], alone)
            raise AssertionError("a point that fails among many fails alone")
        found.append(_per_point(result, [points[place] for place in members]))
    return _joined(found, [np.array(members) for members in groups.values()])


def _per_point(result: Result, points: Sequence[Point]) -> Tables:
    """The tables of some points, also where all of them cost the same because nothing swept matters."""
    frames = []
    for by in (None, "einsum", "component"):
        frame = result.to_frame(by)
        if by is None:
            at = np.arange(len(points))
            frame = frame.drop(columns="feasible") if result.shape else pd.concat([frame] * len(points))
        elif result.shape:
            at = frame.pop("point").to_numpy()
        else:
            at = np.repeat(np.arange(len(points)), len(frame))
            frame = pd.concat([frame] * len(points))
        for position, (name, values) in enumerate(axis_columns(points).items()):
            frame.insert(position, name, np.asarray(values)[at])
        frame.index = pd.Index(at)
        frames.append(frame)
    return Tables(*frames)


def _joined(groups: Sequence[Tables], places: Sequence[NDArray[np.int64]]) -> Tables:
    """The rows of all groups of points by the place of each point."""
    joined = []
    for name in ("totals", "einsums", "components"):
        frames = []
        for tables, members in zip(groups, places, strict=True):
            frame = getattr(tables, name)
            frame.index = pd.Index(members[frame.index.to_numpy()])
            frames.append(frame)
        joined.append(pd.concat(frames).sort_index(kind="stable").reset_index(drop=True))
    return Tables(*joined)
