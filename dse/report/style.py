"""How every figure looks: fonts, sizes, and one colour for each design wherever it is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dse.specs.study import Design

if TYPE_CHECKING:
    import pandas as pd

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#56B4E9", "#D55E00", "#CC79A7", "#999999", "#F0E442", "#000000")
"""Okabe and Ito's colours, which readers with any common colour blindness tell apart: for designs."""

EINSUM_PALETTE = ("#332288", "#88CCEE", "#44AA99", "#DDCC77", "#CC6677", "#AA4499", "#117733", "#882255", "#999933")
"""Tol's muted colours: for Einsums, never mistaken for a design."""

COLUMN_LABELS = {
    "latency_s": "Latency (s)",
    "dram_bytes": "DRAM traffic (B)",
    "compute_s": "Compute time (s)",
    "memory_s": "Memory time (s)",
    "seq_len": "Sequence length (tokens)",
    "operations": "Operations",
    "design": "Design",
    "accounting": "Accounting",
    "component": "Component",
    "einsum": "Einsum",
    "part": "Part",
    "model": "Model",
    "rows": "Rows of the array",
}

_RC = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titley": 1.02,  # else each draw looks for room above every panel
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.dpi": 150,
    "savefig.dpi": 150,
    "pdf.fonttype": 42,
}


def rc() -> Any:
    """Settings for `matplotlib.rc_context`."""
    return dict(_RC)


def colours(designs: Mapping[str, Design]) -> dict[str, str]:
    """A colour for each design: the one its study gives, else the next of the palette that none has."""
    given = {name: design.colour for name, design in designs.items() if design.colour}
    free = [colour for colour in PALETTE if colour not in given.values()] or list(PALETTE)
    others = [name for name in designs if name not in given]
    return {**given, **{name: free[number % len(free)] for number, name in enumerate(others)}}


MEANS = {
    "geometric": "geometric mean over the points",
    "arithmetic": "mean over the points",
    "sum": "sum over the points",
    "worst": "worst of the points",
}
"""How columns of a search's candidates put points together."""

SHOWN_UNITS = {"area_um2": (1e-6, "Area (mm2)"), "energy_pj": (1e-12, "Energy (J)")}
"""Columns that a person reads in another unit: by what their values are multiplied, and the label then."""


def label(column: str) -> str:
    """A column as a person reads it, with its unit."""
    metric, _, mean = column.rpartition("_")
    if mean in MEANS and (metric in COLUMN_LABELS or metric in SHOWN_UNITS):
        return f"{label(metric)}, {MEANS[mean]}"
    return SHOWN_UNITS.get(column, (1, ""))[1] or COLUMN_LABELS.get(column) or column.replace("_", " ")


def shown(frame: pd.DataFrame) -> pd.DataFrame:
    """A table in the units that `label` names."""
    sizes: dict[str, float] = {}
    for name, (size, _) in SHOWN_UNITS.items():
        sizes |= {column: size for column in (name, *(f"{name}_{mean}" for mean in MEANS)) if column in frame}
    return frame.assign(**{column: frame[column] * size for column, size in sizes.items()})


def ink_on(colour: str) -> str:
    """Black or white, whichever is read more easily on a colour (relative luminance, WCAG 2.1)."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "black" if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else "white"


def plain(text: str) -> str:
    """Text that a figure shows as it is written, dollar signs included."""
    return text.replace("$", r"\$")


def tick(value: float) -> str:
    """A number on an axis: 4K or 1M where it is one."""
    for size, suffix in ((2**20, "M"), (2**10, "K")):
        if value >= size and value % size == 0:
            return f"{int(value // size)}{suffix}"
    return f"{value:g}"


def bytes_tick(size: float) -> str:
    """A number of bytes on an axis: 64 KiB."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size:g} B"
