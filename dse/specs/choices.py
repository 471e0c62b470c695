"""A table of choices: options and parameters of a design's mapping that depend on the point, as a CSV beside a study."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from dse.specs.parameters import locate
from dse.specs.quantity import COUNT, Dimension
from dse.specs.source import Key, Source, SpecError, read_csv, show_path
from dse.wording import allowed

MODEL_AXIS = "model"
"""The axis of a sweep whose values are names of models."""


@dataclass(frozen=True)
class ChoiceTable:
    """Options and parameters of a mapping that depend on the point: rows by the values of the key columns."""

    path: str
    keys: tuple[str, ...]
    rows: Mapping[tuple[str | int, ...], Mapping[str, str]]


def load_choices(
    path: Path,
    axes: tuple[str, ...],
    dimensions: Mapping[str, Dimension],
    options: Mapping[str, Collection[str]],
    source: Source,
    key: Key,
) -> ChoiceTable:
    """Read a table of choices. `axes` are the sweep's, `dimensions` those of the design's parameters, `options` what its
    mapping offers. Raises SpecError with file and line."""
    shown = show_path(path)
    columns, records = read_csv(path, source, key)
    keys = tuple(column for column in columns if column in axes)
    if not keys:
        raise SpecError(f"{shown}:1: no column is an axis of the sweep; allowed: {', '.join(axes)}")
    names = {*dimensions, *options}
    for column in columns:
        if column not in keys and column not in names:
            raise SpecError(f"{shown}:1: unknown column {column!r}; {allowed(column, {*axes, *names})}")
    rows: dict[tuple[str | int, ...], Mapping[str, str]] = {}
    for line, row in records:
        at = tuple(
            _key_value(axis, row[axis], dimensions.get(axis, COUNT), Source(shown, {(): (shown, line)}))
            for axis in keys
        )
        if at in rows:
            raise SpecError(f"{shown}:{line}: a second row for {', '.join(map(str, at))}")
        rows[at] = {column: row[column] for column in columns if column not in keys}
        for column, value in rows[at].items():
            if column in options:
                alternatives = options[column]
                if value not in alternatives:
                    raise SpecError(f"{shown}:{line}: {column} has no choice {value!r}; {allowed(value, alternatives)}")
            else:
                locate(value, Source(shown, {(): (shown, line)}), (column,)).quantity({}, dimensions[column])
    return ChoiceTable(shown, keys, rows)


def _key_value(axis: str, text: str, dimension: Dimension, source: Source) -> str | int:
    return text if axis == MODEL_AXIS else locate(text, source, (axis,)).quantity({}, dimension).value
