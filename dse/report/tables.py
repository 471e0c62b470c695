"""Tables for a person (rich), a spreadsheet (CSV) or a program (JSON): the same rows, three renderings.

A table is a list of rows, each a mapping of column names to values; a data frame gives one with `rows_of`.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

Rows = Sequence[Mapping[str, Any]]

FORMATS = ("table", "csv", "json")
LONGEST_UNBROKEN = 40
"""Text longer than this is folded to the terminal's width."""


def rows_of(frame: pd.DataFrame) -> Rows:
    """The rows of a data frame, with Python's own numbers, and None for what is missing."""
    plain = frame.astype(object).where(frame.notna(), None)
    return [{str(name): value for name, value in row.items()} for row in plain.to_dict(orient="records")]


def as_text(rows: Rows, kind: str) -> str:
    """The table as CSV or as JSON (a list of objects; a missing value is null)."""
    if kind == "json":
        return json.dumps(list(rows), indent=2, default=lambda value: value.item()) + "\n"
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_table(rows: Rows, digits: int = 4) -> Table:
    """The table for a terminal: numbers to a few digits, aligned, missing values left empty."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in rows[0] if rows else ():
        cells = [row[column] for row in rows]
        numeric = not any(isinstance(cell, str) and cell for cell in cells)
        wide = not numeric and max(len(str(cell)) for cell in cells) > LONGEST_UNBROKEN
        table.add_column(
            Text(column), justify="right" if numeric else "left", no_wrap=not wide, max_width=100 if wide else None
        )
    for row in rows:
        table.add_row(*(Text(format_number(value, digits)) for value in row.values()))
    return table


def format_number(value: Any, digits: int = 4) -> str:
    """A cell: text as it is, integers whole below ten million, other numbers to `digits`, what is missing empty."""
    if value is None or isinstance(value, str):
        return value or ""
    number = float(value)
    if math.isnan(number):
        return ""
    if abs(number) < 1e7 and number == int(number):
        return str(int(number))
    return f"{number:.{digits}g}"
