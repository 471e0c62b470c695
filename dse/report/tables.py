"""Tables for a person (rich), a spreadsheet (CSV) or a program (JSON): the same rows, three renderings."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from rich.table import Table

FORMATS = ("table", "csv", "json")
LONGEST_UNBROKEN = 40
"""Text longer than this is folded to the terminal's width."""


def as_text(frame: pd.DataFrame, kind: str) -> str:
    """The table as CSV or as JSON (a list of objects; a missing value is null)."""
    if kind == "csv":
        return frame.to_csv(index=False, lineterminator="\n")
    records = frame.astype(object).where(frame.notna(), None).to_dict(orient="records")
    return json.dumps(records, indent=2, default=lambda value: value.item()) + "\n"


def as_table(frame: pd.DataFrame, digits: int = 4) -> Table:
    """The table for a terminal: numbers to a few digits, aligned, missing values left empty."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in frame.columns:
        numeric = pd.api.types.is_numeric_dtype(frame[column])
        wide = not numeric and frame[column].astype(str).str.len().max() > LONGEST_UNBROKEN
        table.add_column(
            Text(str(column)), justify="right" if numeric else "left", no_wrap=not wide, max_width=100 if wide else None
        )
    for row in frame.itertuples(index=False):
        table.add_row(*(Text(format_number(value, digits)) for value in row))
    return table


def format_number(value: object, digits: int = 4) -> str:
    """A cell: integers whole below ten million, floats to `digits`, NaN empty."""
    if isinstance(value, str):
        return value
    number = float(value)  # type: ignore[arg-type]
    if math.isnan(number):
        return ""
    if abs(number) < 1e7 and number == int(number):
        return str(int(number))
    return f"{number:.{digits}g}"
