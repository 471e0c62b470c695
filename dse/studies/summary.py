"""Headlines of a study: mean speedup and energy of each design over each baseline, beside the published means."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dse.specs.choices import MODEL_AXIS
from dse.studies.run import StudyResult

PRESETS_AS_PUBLISHED = ("published",)
"""Accountings whose means are compared with the published ones."""


def relative_to(result: StudyResult, baseline: str, frame: pd.DataFrame | None = None) -> pd.DataFrame:
    """The rows of a result, or others of its study, with columns `speedup` (baseline latency / latency) and `energy`
    (energy / the baseline's at that point)."""
    frame, points = result.frame if frame is None else frame, ["accounting", *result.axes]
    base = frame[frame["design"] == baseline].set_index(points)[["latency_s", "energy_pj"]]
    joined = frame.join(base.add_suffix("_baseline"), on=points)
    joined["speedup"] = joined["latency_s_baseline"] / joined["latency_s"]
    joined["energy"] = joined["energy_pj"] / joined["energy_pj_baseline"]
    return joined.drop(columns=["latency_s_baseline", "energy_pj_baseline"])


def summarize(result: StudyResult) -> pd.DataFrame:
    """A row per accounting, design and baseline: arithmetic and geometric means over the points, the published mean
    where the study names one (NaN elsewhere)."""
    published = {(entry.design, entry.baseline): entry for entry in result.study.reference}
    rows = []
    for baseline in result.study.baselines:
        compared = relative_to(result, baseline)
        for (accounting, design), group in compared[compared["design"] != baseline].groupby(
            ["accounting", "design"], sort=False
        ):
            row: dict[str, object] = {"accounting": accounting, "design": design, "baseline": baseline}
            for value in ("speedup", "energy"):
                row[value] = group[value].mean()
                row[f"{value}_geomean"] = geometric_mean(group[value])
                named = published.get((str(design), baseline)) if accounting in PRESETS_AS_PUBLISHED else None
                row[f"{value}_published"] = getattr(named, value, np.nan)
            rows.append(row)
    return pd.DataFrame(rows)


def summarize_area(result: StudyResult) -> pd.DataFrame:
    """A row per design whose area is known and the same at every point: mm2 under each accounting, and its ratio to the
    first baseline's."""
    known = result.frame[result.frame["area_um2"] > 0]
    areas = known.groupby(["design", "accounting"], sort=False)["area_um2"]
    fixed = areas.first()[areas.nunique() == 1] / 1e6
    table = fixed.unstack("accounting", sort=False)
    columns: dict[str, pd.Series[float]] = {}
    for accounting in result.study.accounting:
        if accounting not in table:
            continue
        columns[f"{accounting}_mm2"] = table[accounting]
        if result.study.baselines and result.study.baselines[0] in table.index:
            columns[f"{accounting}_relative"] = table[accounting] / table.loc[result.study.baselines[0]][accounting]
    return pd.DataFrame(columns).reset_index()


def geometric_mean(values: pd.Series[float]) -> float:
    """exp of the mean logarithm."""
    return float(np.exp(np.log(values).mean()))


def tabulate(rows: pd.DataFrame, part: str, value: str) -> pd.DataFrame:
    """What `value` comes to by part, a column for each design and accounting, and the total below."""
    named = rows.assign(column=rows["design"] + ", " + rows["accounting"])
    table = named.pivot_table(index=part, columns="column", values=value, aggfunc="sum", sort=False).fillna(0.0)
    table.columns.name = None
    table.loc["total"] = table.sum()
    return table.reset_index()


def compare(result: StudyResult, baseline: str) -> pd.DataFrame:
    """A search's best designs beside those that the study has: geometric means of speedup and energy over the models, by
    accounting, design and the other axes of the sweep."""
    keys = ["accounting", "design", *(axis for axis in result.axes if axis != MODEL_AXIS)]
    columns = {}
    for which, frame in (("given", result.given), ("searched", result.frame)):
        compared = relative_to(result, baseline, frame)
        groups = compared[compared["design"] != baseline].groupby(keys, sort=False)
        for value in ("speedup", "energy"):
            columns[f"{value}_{which}"] = groups[value].agg(geometric_mean)
    return pd.DataFrame(columns).reset_index()


def front_table(result: StudyResult) -> pd.DataFrame:
    """The candidates on a search's front in ascending order of its first objective: parameters and objectives."""
    assert result.explored is not None
    assert result.study.search is not None
    trials = result.explored.trials
    objectives = [objective.column for objective in result.study.search.objectives]
    front = trials[trials["on_front"]].sort_values(objectives)
    parameters = list(trials.columns[: trials.columns.get_loc("area_um2")])
    shown = list(dict.fromkeys([*parameters, *objectives, "area_um2", "energy_pj_geometric"]))
    return front[shown].drop_duplicates(subset=["design", *objectives]).reset_index(drop=True)
