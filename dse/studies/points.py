"""The points of a sweep: what a design's parameters are at each, and how its place is named and tabled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dse.specs.choices import MODEL_AXIS
from dse.specs.parameters import locate, resolve
from dse.specs.quantity import BANDWIDTH, FREQUENCY, INFORMATION, Quantity
from dse.specs.source import SpecError
from dse.specs.study import Design, Part, Study

Outcome = TypeVar("Outcome")

COLUMN_UNITS = {INFORMATION: ("_bytes", 8), BANDWIDTH: ("_bytes_per_s", 8), FREQUENCY: ("_hz", 1)}
"""Suffix of a swept parameter's column, and base units in one of it."""


@dataclass(frozen=True)
class Point:
    """One place of the sweep: a value per axis, as written (a model's name, or a quantity)."""

    values: Mapping[str, Any]

    def label(self) -> str:
        """The point as a person names it."""
        return ", ".join(
            f"{axis} {value if isinstance(value, str) else value.value}" for axis, value in self.values.items()
        )


def named(design: Design, point: Point, work: Callable[[], Outcome]) -> Outcome:
    """What `work` gives; a fault is reported with the design and the point. Raises SpecError."""
    try:
        return work()
    except SpecError as error:
        where = f" ({design.name} at {point.label()})"
        raise SpecError(*(line + where for line in error.lines)) from None


def choices_at(part: Part, point: Point) -> tuple[dict[str, str], dict[str, str]]:
    """Options and parameters of a mapping at a point: its own, and those of its table of choices."""
    options = dict(part.options)
    if part.choices is None:
        return options, {}
    at = tuple(value if isinstance(value := point.values[axis], str) else value.value for axis in part.choices.keys)
    row = part.choices.rows.get(at)
    if row is None:
        raise SpecError(f"{part.choices.path}:1: no row for {', '.join(map(str, at))}, which the study sweeps")
    parameters = {}
    for name, value in row.items():
        if name not in part.mapping_options:
            parameters[name] = value
        elif name not in options:
            options[name] = value
    return options, parameters


def parameters_at(
    study: Study,
    design: Design,
    part: Part,
    point: Point,
    chosen: Mapping[str, str],
    free: Mapping[str, Quantity] | None = None,
) -> dict[str, Quantity]:
    """Values of the parameters of a design's part at a point: the model's, the table's, the sweep's and those that a search
    leaves `free`, then the design's own settings, which may name any of those and the architecture's. Raises SpecError."""
    given: dict[str, Quantity] = {}
    if MODEL_AXIS in point.values:
        given.update({name: value.quantity({}) for name, value in study.models[point.values[MODEL_AXIS]].items()})
    for name, text in chosen.items():
        given[name] = locate(text, study.source, (name,)).quantity({})
    given.update({axis: value for axis, value in point.values.items() if axis != MODEL_AXIS})
    given.update(free or {})
    own = design.architecture.parameters
    written = {**own, **design.parameters}
    swept = {name: value for name, value in given.items() if name in own and name not in design.parameters}
    settings = resolve(written, {name: value for name, value in given.items() if name not in written}, swept)
    dimensions = part.parameter_dimensions
    for name, located in design.parameters.items():
        given[name] = settings[name]
        if name in dimensions:
            located.check_dimension(settings[name], dimensions[name])
    return {name: value for name, value in given.items() if name in dimensions}


def column_of(axis: str, value: Quantity) -> dict[str, Any]:
    """The column of an axis, and what it holds for a value: a plain number, the unit in the column's name."""
    suffix, size = COLUMN_UNITS.get(value.dimension, ("", 1))
    return {axis + suffix: value.value if size == 1 else value.value / size}


def axis_columns(points: Sequence[Point]) -> dict[str, list[Any]]:
    """The sweep's axes as columns of plain numbers and names."""
    columns: dict[str, list[Any]] = {}
    for point in points:
        for axis, value in point.values.items():
            own = {axis: value} if isinstance(value, str) else column_of(axis, value)
            for name, each in own.items():
                columns.setdefault(name, []).append(each)
    return columns
