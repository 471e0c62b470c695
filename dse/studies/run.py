"""A study -> one tidy DataFrame: each design priced at every point of the sweep, in as few model calls as its mapping's
options allow.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from dse.model.accounting import PRESETS, SWITCHES, Accounting
from dse.model.evaluate import evaluate
from dse.model.result import Result
from dse.search.workload import WorkloadMap, assemble, problems_of, search_all
from dse.specs.parameters import locate
from dse.specs.quantity import BANDWIDTH, DIMENSION_NAMES, FREQUENCY, INFORMATION, Quantity, QuantityError, number
from dse.specs.source import Source, SpecError, allowed
from dse.specs.study import MODEL_AXIS, Design, MapSearch, Study

Found = TypeVar("Found")

COLUMN_UNITS = {INFORMATION: ("_bytes", 8), BANDWIDTH: ("_bytes_per_s", 8), FREQUENCY: ("_hz", 1)}
"""Suffix of a swept parameter's column, and base units in one of it."""


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


@dataclass(frozen=True)
class Point:
    """One place of the sweep: a value per axis, as written (a model's name, or a quantity)."""

    values: Mapping[str, Any]

    def label(self) -> str:
        """The point as a person names it."""
        return ", ".join(
            f"{axis} {value if isinstance(value, str) else value.value}" for axis, value in self.values.items()
        )


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
    maps = _search_maps(study, points, jobs)
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
    axes = tuple(_axis_columns(points[:1]))
    swept = [column for column in axes if column not in (MODEL_AXIS, "seq_len")]
    columns = list(dict.fromkeys(column for frame in frames for column in frame.columns))
    joined = pd.concat([frame.reindex(columns=columns, fill_value=0) for frame in frames], ignore_index=True)
    joined = joined[[column for column in joined.columns if column not in swept] + swept]
    return StudyResult(study, axes, joined, pd.concat(breakdowns, ignore_index=True), maps)


def _search_maps(study: Study, points: Sequence[Point], jobs: int) -> dict[tuple[str, str], WorkloadMap]:
    """The best mapping of every design that searches for it, at every point, all problems in one go."""
    tasks, problems = [], {}
    for design in study.designs.values():
        search = design.mapping
        if not isinstance(search, MapSearch):
            continue
        for point in points:
            given = parameters_at(study, design, point, {})
            hardware = design.architecture.resolve(
                {name: value for name, value in given.items() if name in design.architecture.parameters}
            )
            own = {name: value for name, value in given.items() if name not in design.architecture.parameters}
            task = (design.workload, hardware, search.mapspace, own, search.objective)
            tasks.append((design.name, point, task))
            problems[design.name, point.label()] = _named(design, point, lambda task=task: problems_of(*task[:4]))  # type: ignore[misc]
    found: dict[tuple[str, str], WorkloadMap] = {}
    for objective in dict.fromkeys(task[4] for _, _, task in tasks):
        chosen = [(name, point, task) for name, point, task in tasks if task[4] == objective]
        flat = [each for name, point, _ in chosen for each in problems[name, point.label()]]
        solved = iter(search_all(flat, objective, jobs))
        for name, point, task in chosen:
            own_problems = problems[name, point.label()]
            results = [next(solved) for _ in own_problems]
            design = study.designs[name]
            found[name, point.label()] = _named(
                design,
                point,
                lambda task=task, p=own_problems, r=results: assemble(*task, p, r),  # type: ignore[misc]
            )
    return {(name, point.label()): found[name, point.label()] for name, point, _ in tasks}


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
        for position, (name, values) in enumerate(_axis_columns([point]).items()):
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
    for (options, names), members in groups.items():
        together = {
            name: Quantity(np.array([given[place][name].value for place in members]), given[members[0]][name].dimension)
            for name in names
        }
        result = evaluate(design.architecture, design.workload, design.mapping, together, dict(options), accounting)
        if not np.all(result.feasible):
            first = members[int(np.argmin(np.broadcast_to(result.feasible, (len(members),))))]
            _explain(design, points[first], given[first], dict(options), accounting)
        axes = _axis_columns([points[place] for place in members])
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
    design: Design, point: Point, given: Mapping[str, Quantity], options: dict[str, str], accounting: Accounting
) -> None:
    """Raise the error of a point that cannot exist, with its name."""
    _named(
        design,
        point,
        lambda: evaluate(design.architecture, design.workload, design.mapping, given, options, accounting),
    )
    raise AssertionError("a point that fails among many fails alone")


def _named(design: Design, point: Point, work: Callable[[], Found]) -> Found:
    """What `work` gives; a fault is reported with the design and the point. Raises SpecError."""
    try:
        return work()
    except SpecError as error:
        where = f" ({design.name} at {point.label()})"
        raise SpecError(*(line + where for line in error.lines)) from None


def choices_at(design: Design, point: Point) -> tuple[dict[str, str], dict[str, str]]:
    """Options and parameters of a design's mapping at a point: its own, and those of its table of choices."""
    options = dict(design.options)
    if design.choices is None:
        return options, {}
    at = tuple(value if isinstance(value := point.values[axis], str) else value.value for axis in design.choices.keys)
    row = design.choices.rows.get(at)
    if row is None:
        raise SpecError(f"{design.choices.path}:1: no row for {', '.join(map(str, at))}, which the study sweeps")
    parameters = {}
    for name, value in row.items():
        if name not in design.mapping_options:
            parameters[name] = value
        elif name not in options:
            options[name] = value
    return options, parameters


def parameters_at(study: Study, design: Design, point: Point, chosen: Mapping[str, str]) -> dict[str, Quantity]:
    """Values of a design's parameters at a point: the model's, the table's, the sweep's, then its own settings."""
    known = design.parameter_dimensions
    given: dict[str, Quantity] = {}
    if MODEL_AXIS in point.values:
        given.update(
            {
                name: value.quantity({})
                for name, value in study.models[point.values[MODEL_AXIS]].items()
                if name in known
            }
        )
    for name, text in chosen.items():
        given[name] = locate(text, study.source, (name,)).quantity({})
    given.update({axis: value for axis, value in point.values.items() if axis in known and axis != MODEL_AXIS})
    given.update({name: located.quantity({}) for name, located in design.parameters.items()})
    return given


def _axis_columns(points: Sequence[Point]) -> dict[str, list[Any]]:
    """The sweep's axes as columns of plain numbers and names, the unit in the column's name."""
    columns: dict[str, list[Any]] = {}
    for axis, value in points[0].values.items():
        if isinstance(value, str):
            columns[axis] = [point.values[axis] for point in points]
            continue
        suffix, size = COLUMN_UNITS.get(value.dimension, ("", 1))
        columns[axis + suffix] = [
            point.values[axis].value if size == 1 else point.values[axis].value / size for point in points
        ]
    return columns
