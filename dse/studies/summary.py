"""Headlines of a study: mean speedup and energy of each design over each baseline, beside the published means."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dse.specs.study import Study

KEYS = ("accounting", "design", "workload")


def relative_to(frame: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """The frame with columns `speedup` (baseline latency / latency) and `energy` (energy / the baseline's) per row."""
    points = ["accounting", *(column for column in frame.columns if column in _point_columns(frame))]
    base = frame[frame["design"] == baseline].set_index(points)[["latency_s", "energy_pj"]]
    joined = frame.join(base, on=points, rsuffix="_baseline")
    joined["speedup"] = joined["latency_s_baseline"] / joined["latency_s"]
    joined["energy"] = joined["energy_pj"] / joined["energy_pj_baseline"]
    return joined.drop(columns=["latency_s_baseline", "energy_pj_baseline"])


def _point_columns(frame: pd.DataFrame) -> list[str]:
    """Columns that tell points apart: the model, and what stands after the results."""
    start = list(frame.columns).index("memory_s") + 1 if "memory_s" in frame.columns else len(frame.columns)
    return [column for column in frame.columns if column in ("model", "seq_len")] + list(frame.columns[start:])


def summarize(study: Study, frame: pd.DataFrame) -> pd.DataFrame:
    """A row per accounting, design and baseline: arithmetic and geometric means over the points, the published mean
    where the study names one (NaN elsewhere)."""
    rows = []
    for baseline in study.baselines:
        compared = relative_to(frame, baseline)
        for (accounting, design), group in compared.groupby(["accounting", "design"], sort=False):
            if design == baseline:
                continue
            published = next((r for r in study.reference if (r.design, r.baseline) == (design, baseline)), None)
            rows.append(
                {
                    "accounting": accounting,
                    "design": design,
                    "baseline": baseline,
                    "speedup": group["speedup"].mean(),
                    "speedup_geomean": geometric_mean(group["speedup"]),
                    "speedup_published": published.speedup if published else np.nan,
                    "energy": group["energy"].mean(),
                    "energy_geomean": geometric_mean(group["energy"]),
                    "energy_published": published.energy if published else np.nan,
                }
            )
    return pd.DataFrame(rows)


def summarize_area(frame: pd.DataFrame) -> pd.DataFrame:
    """A row per accounting and design whose area is the same at every point: area in mm2."""
    rows = []
    for (accounting, design), group in frame.groupby(["accounting", "design"], sort=False):
        if group["area_um2"].nunique() == 1:
            rows.append({"accounting": accounting, "design": design, "area_mm2": group["area_um2"].iloc[0] / 1e6})
    return pd.DataFrame(rows)


def geometric_mean(values: pd.Series[float]) -> float:
    """exp of the mean logarithm."""
    return float(np.exp(np.log(values).mean()))
