"""Headlines of a study: mean speedup and energy of each design over each baseline, beside the published means."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dse.specs.choices import MODEL_AXIS
from dse.studies.budgets import Budgeted
from dse.studies.candidates import Priced
from dse.studies.convergence import RATIOS
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


def as_given(result: StudyResult) -> pd.DataFrame:
    """The designs as the study has them, a row each: area and objectives as the search puts the points together."""
    search = result.study.search
    assert search is not None
    assert result.given is not None
    given = result.given[result.given["accounting"] == search.accounting]
    given = given.assign(edp=given["latency_s"] * given["energy_pj"])
    rows = []
    for name, own in given.groupby("design", sort=False):
        columns = {
            metric: own[metric].to_numpy(dtype=float)[None]
            for metric in ("latency_s", "energy_pj", "dram_bytes", "edp")
        }
        area = own["area_um2"].to_numpy(dtype=float)[:1]
        priced = Priced(columns, area, np.zeros((1, len(own)), dtype=np.int64), (), np.zeros((1, len(own))))
        values = {each.column: float(priced.aggregated(each)[0]) for each in search.objectives}
        rows.append({"design": name, "area_um2": float(priced.area_um2[0]), **values})
    return pd.DataFrame(rows)


def budget_table(budgets: Budgeted) -> pd.DataFrame:
    """The best of each design within each budget, for reading: mm2, the objective, and how far it is behind the best."""
    frame = budgets.overall
    names = list(frame.columns)
    parameters = names[names.index("design") + 1 : names.index("area_um2")]
    shown = frame[["design", *parameters, budgets.objective, "energy_pj_geometric", "behind", "best"]].copy()
    shown.insert(0, "budget_mm2", frame["budget_um2"] / 1e6)
    shown.insert(2, "area_mm2", frame["area_um2"] / 1e6)
    return shown.loc[:, ~shown.columns.duplicated()]


def winners_table(budgets: Budgeted) -> pd.DataFrame:
    """The design that wins by budget in mm2, down, and by the sweep's axis, across; of several that are equal the first."""
    assert budgets.by_axis is not None
    best = budgets.by_axis[budgets.by_axis["best"]].drop_duplicates(["budget_um2", budgets.axis])
    best = best.assign(budget_mm2=best["budget_um2"] / 1e6)
    table = best.pivot(index="budget_mm2", columns=budgets.axis, values="design").fillna("")
    table = table[list(dict.fromkeys(budgets.by_axis[budgets.axis]))]
    table.columns = pd.Index([str(place) for place in table.columns])
    return table.reset_index()


def convergence_table(convergence: pd.DataFrame, enough: float = 0.95) -> pd.DataFrame:
    """How far each sampler came, and after how many trials it had so much of the front (0: never)."""
    rows = []
    for (design, sampler), own in convergence.groupby(["design", "sampler"], sort=False):
        row: dict[str, object] = {"design": design, "sampler": sampler, "trials": len(own)}
        for ratio in RATIOS:
            reached = own.loc[own[ratio] >= enough, "trial"]
            row[ratio] = own[ratio].iloc[-1]
            row[f"{enough:.0%} after" + (" (log)" if ratio.endswith("_log") else "")] = (
                int(reached.iloc[0]) if len(reached) else 0
            )
        rows.append(row)
    return pd.DataFrame(rows)


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
