"""The reference tables that ship with the package: primitives (with a rule for their width) and SRAM runs.

Each row names its source; nothing outside this folder holds an energy or an area.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

Value = Any
"""A float or an array of floats that broadcasts over design points."""


class ComponentError(ValueError):
    """A component that the tables cannot give: says what was asked and what is available."""


@dataclass(frozen=True)
class Primitive:
    """One row of primitives.csv: energy (pJ), area (um2) and leakage (mW; 0 where no source gives it) at a reference width, and the power of its width."""

    width_bits: float
    exponent: float
    energy: float
    area: float
    leakage: float
    source: str

    def energy_pj(self, width_bits: Value) -> Value:
        """Energy per action in pJ at another width."""
        return self.energy * (width_bits / self.width_bits) ** self.exponent

    def area_um2(self, width_bits: Value) -> Value:
        """Area in um2 at another width."""
        return self.area * (width_bits / self.width_bits) ** self.exponent

    def leakage_mw(self, width_bits: Value) -> Value:
        """Leakage in mW at another width."""
        return self.leakage * (width_bits / self.width_bits) ** self.exponent


def rows(name: str) -> list[dict[str, str]]:
    """The rows of a table in `data/`."""
    text = files("dse.components").joinpath("data", name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@cache
def primitives() -> dict[str, Primitive]:
    """Every row of primitives.csv by name."""
    return {
        row["primitive"]: Primitive(
            float(row["width_bits"]),
            float(row["width_exponent"]),
            float(row["energy_pj"]),
            float(row["area_um2"]),
            float(row["leakage_mw"]),
            row["source"],
        )
        for row in rows("primitives.csv")
    }


@cache
def sram_runs() -> dict[tuple[int, int, int, int], NDArray[np.float64]]:
    """CACTI runs by (technology nm, width bits, banks, ports); columns capacity_bytes, then those of `SRAM_COLUMNS`."""
    runs: dict[tuple[int, int, int, int], list[list[float]]] = {}
    for row in rows("sram.csv"):
        key = (int(row["technology_nm"]), int(row["width_bits"]), int(row["banks"]), int(row["ports"]))
        runs.setdefault(key, []).append([float(row[column]) for column in ("capacity_bytes", *SRAM_COLUMNS)])
    return {key: np.array(sorted(values)) for key, values in runs.items()}


SRAM_COLUMNS = ("area_um2", "read_pj", "write_pj", "leakage_mw", "access_ns", "cycle_ns")
