"""How every figure looks: fonts, sizes, and one colour for each design wherever it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

DESIGN_COLOURS = {
    "unfused": "#999999",
    "flat": "#E69F00",
    "fusemax_cascade": "#56B4E9",
    "fusemax_architecture": "#009E73",
    "fusemax": "#0072B2",
}
"""Okabe and Ito's palette, which readers with any common colour blindness tell apart."""

OTHER_COLOURS = ("#D55E00", "#CC79A7", "#F0E442", "#000000", "#8C6BB1", "#66C2A5", "#A6761D", "#1B7837")

DESIGN_LABELS = {
    "unfused": "Unfused",
    "flat": "FLAT",
    "fusemax_cascade": "+Cascade",
    "fusemax_architecture": "+Architecture",
    "fusemax": "FuseMax (+Binding)",
}

COLUMN_LABELS = {
    "latency_s": "Latency (s)",
    "energy_pj": "Energy (pJ)",
    "dram_bytes": "DRAM traffic (B)",
    "area_um2": "Area (um2)",
    "compute_s": "Compute time (s)",
    "memory_s": "Memory time (s)",
    "seq_len": "Sequence length (tokens)",
}

_RC = {
    "font.size": 9,
    "axes.titlesize": 9,
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


def colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for each design: its own where it has one, else the next of the others."""
    others = [name for name in names if name not in DESIGN_COLOURS]
    return {
        **DESIGN_COLOURS,
        **{name: OTHER_COLOURS[number % len(OTHER_COLOURS)] for number, name in enumerate(others)},
    }


def label(name: str) -> str:
    """A design or a column as a person reads it."""
    return DESIGN_LABELS.get(name) or COLUMN_LABELS.get(name) or name.replace("_", " ")


def length_label(tokens: float) -> str:
    """A sequence length as 4K or 1M where it is one."""
    for size, suffix in ((2**20, "M"), (2**10, "K")):
        if tokens >= size and tokens % size == 0:
            return f"{int(tokens // size)}{suffix}"
    return f"{tokens:g}"
