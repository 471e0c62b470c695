"""Parts of a design put together: one after the other on the same chip, so that times, energies and traffic add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pandas as pd

ADDED = ("latency_s", "energy_pj", "dram_bytes", "compute_s", "memory_s", "operations", "mappings", "priced")
"""Columns of results that add up over parts, beside the cycles of each unit."""


@dataclass(frozen=True)
class Tables:
    """What pricing gives, in the order of the points: totals, and rows by Einsum and by component of each."""

    totals: pd.DataFrame
    einsums: pd.DataFrame
    components: pd.DataFrame


def put_together(parts: Sequence[tuple[str, Tables]], axes: Sequence[str]) -> Tables:
    """One design's tables from those of its parts, by name; all rows have the columns `axes`."""
    if len(parts) == 1:
        return parts[0][1]
    whole = parts[0][1].totals[list(axes)].copy()
    frames = [tables.totals for _, tables in parts]
    latency = sum(frame["latency_s"] for frame in frames)
    for column in dict.fromkeys(column for frame in frames for column in frame.columns):
        present = [frame for frame in frames if column in frame]
        if column in ADDED or column.startswith("cycles_"):
            whole[column] = sum(frame[column] for frame in present)
        elif column.startswith("util_"):
            whole[column] = sum(frame[column] * frame["latency_s"] for frame in present) / latency
        elif column == "proven":
            whole[column] = reduce(lambda one, other: one & other, (frame[column] for frame in present))
        elif column not in whole:
            whole[column] = present[0][column]
    einsums, components = [], []
    for name, tables in parts:
        own = tables.einsums.copy()
        shares = (tables.totals["latency_s"] / latency).to_numpy()
        places = own.groupby(list(axes), sort=False).ngroup().to_numpy() if axes else np.zeros(len(own), dtype=int)
        own["utilization"] = own["utilization"] * shares[places]
        own.insert(len(axes), "part", name)
        einsums.append(own)
        components.append(tables.components)
    summed = pd.concat(components).groupby([*axes, "component"], sort=False, as_index=False)
    areas = summed["area_um2"].first()["area_um2"]
    return Tables(whole, _by_point(einsums, axes), summed.sum(numeric_only=True).assign(area_um2=areas))


def _by_point(frames: Sequence[pd.DataFrame], axes: Sequence[str]) -> pd.DataFrame:
    """Rows of several frames, point by point in the order of the first."""
    order = {
        key: number for number, key in enumerate(dict.fromkeys(map(tuple, frames[0][list(axes)].to_numpy().tolist())))
    }
    joined = pd.concat(frames, ignore_index=True)
    places = [order[tuple(key)] for key in joined[list(axes)].to_numpy().tolist()]
    return (
        joined.assign(_place=places).sort_values("_place", kind="stable").drop(columns="_place").reset_index(drop=True)
    )
