"""Technology: from the 45 nm of the tables to smaller nodes, for logic and for SRAM, each by its own rule.

Logic scales by measured factors (Stillmaker and Baas, "Scaling equations for the accurate prediction of CMOS device
performance", Integration 2017). SRAM has CACTI runs down to 22 nm; below that, its 22 nm figures scale.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from dse.components.sram import Sram
from dse.components.tables import ComponentError, Value, rows

BASE_NM = 45
"""The technology that the tables are for."""
SMALLEST_CACTI_NM = 22
"""Below this, CACTI has no runs."""


@cache
def _factors() -> dict[float, tuple[float, float]]:
    return {float(row["technology_nm"]): (float(row["area"]), float(row["energy"])) for row in rows("technology.csv")}


def check_technology(technology_nm: Value) -> None:
    """Raises ComponentError for a technology that the tables cannot be scaled to."""
    known = _factors()
    for node in np.unique(np.asarray(technology_nm, dtype=np.float64)).tolist():
        if node not in known:
            raise ComponentError(
                f"no technology of {node:g} nm; allowed: {', '.join(f'{each:g}' for each in known)} nm"
            )


def logic_factors(technology_nm: Value) -> tuple[Value, Value]:
    """Area and energy of logic relative to 45 nm; leakage is taken to scale as energy does. Raises ComponentError."""
    check_technology(technology_nm)
    area, energy = np.vectorize(_factors().__getitem__, otypes=[float, float])(np.asarray(technology_nm, dtype=float))
    return (float(area), float(energy)) if np.ndim(technology_nm) == 0 else (area, energy)


def sram_table_nm(technology_nm: Value) -> Value:
    """The technology whose CACTI runs stand for one."""
    return (
        np.maximum(technology_nm, SMALLEST_CACTI_NM)
        if np.ndim(technology_nm)
        else max(technology_nm, SMALLEST_CACTI_NM)
    )


def scaled_sram(macro: Sram, technology_nm: Value) -> Sram:
    """An SRAM of `sram_table_nm` in its own technology: below 22 nm area by t/22, energy by sqrt(t/22), leakage by
    0.79 sqrt(t/22); times stay."""
    small = np.minimum(technology_nm, SMALLEST_CACTI_NM) / SMALLEST_CACTI_NM
    below = np.asarray(technology_nm) < SMALLEST_CACTI_NM
    energy = np.sqrt(small)
    leakage = np.where(below, 0.79 * energy, 1.0)
    return replace(
        macro,
        area_um2=macro.area_um2 * small,
        read_pj=macro.read_pj * energy,
        write_pj=macro.write_pj * energy,
        leakage_mw=macro.leakage_mw * (leakage if np.ndim(technology_nm) else float(leakage)),
    )
