"""The best design within each of several areas: candidates are priced once, and each budget takes the best that it allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.specs.choices import MODEL_AXIS
from dse.studies.candidates import Priced, Pricer
from dse.studies.points import column_of


@dataclass(frozen=True)
class Budgeted:
    """A row per budget and design that has a candidate within it: `budget_um2`, the chip, its area, and its means over the
    points. `overall` has one chip for all points; `by_axis` one for each value of the sweep's axis beside the models, over
    the models, or nothing where there is no such axis or several. `objective` is the column that decides, and `axis` the
    column of that axis; `best` marks the design that wins."""

    overall: pd.DataFrame
    by_axis: pd.DataFrame | None
    objective: str
    axis: str | None


def best_within(pricer: Pricer, places: NDArray[np.int64], priced: Priced) -> Budgeted:
    """The best candidates of one design by the first objective, then the others, latency, energy and area in turn."""
    objective = pricer.search.objectives[0].column
    overall = _best(pricer, places, priced)
    axes = [axis for axis in pricer.study.sweep if axis != MODEL_AXIS]
    if len(axes) != 1:
        return Budgeted(overall, None, objective, None)
    parts, column = [], axes[0]
    for value in pricer.study.sweep[axes[0]]:
        at = [number for number, point in enumerate(pricer.points) if point.values[axes[0]] == value]
        own = replace(priced, columns={name: values[:, at] for name, values in priced.columns.items()})
        frame = _best(pricer, places, own)
        column, shown = (axes[0], value) if isinstance(value, str) else next(iter(column_of(axes[0], value).items()))
        frame.insert(1, column, shown)
        parts.append(frame)
    return Budgeted(overall, pd.concat(parts, ignore_index=True), objective, column)


def rank_designs(parts: Sequence[Budgeted]) -> Budgeted:
    """Those of several designs together, with `best` and `behind`: the objective over that of the best at that place."""
    first = parts[0]
    overall = _ranked([part.overall for part in parts], first.objective, ["budget_um2"])
    frames = [part.by_axis for part in parts if part.by_axis is not None]
    by_axis = _ranked(frames, first.objective, [str(first.axis), "budget_um2"]) if frames else None
    return Budgeted(overall, by_axis, first.objective, first.axis)


def _best(pricer: Pricer, places: NDArray[np.int64], priced: Priced) -> pd.DataFrame:
    search = pricer.search
    table = pricer.table(places, priced)
    table = table[table["feasible"]].drop(columns="feasible")
    order = [*(each.column for each in search.objectives), "latency_s_geometric", "energy_pj_geometric", "area_um2"]
    table = table.sort_values(list(dict.fromkeys(order)), kind="stable")
    rows = [(budget, table[table["area_um2"] <= budget].head(1)) for budget in search.budgets]
    found = pd.concat([row for _, row in rows], ignore_index=True)
    found.insert(0, "budget_um2", [budget for budget, row in rows if len(row)])
    return found


def _ranked(frames: Sequence[pd.DataFrame], objective: str, keys: list[str]) -> pd.DataFrame:
    joined = pd.concat(frames, ignore_index=True)
    joined = joined.sort_values(keys, kind="stable", ignore_index=True)
    least = joined.groupby(keys, sort=False)[objective].transform("min")
    joined["behind"] = joined[objective] / least
    joined["best"] = joined[objective] == least
    return joined
