"""Many candidates of a design at once: parameters free, mapping options settled, all points of the sweep in one call."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.model.accounting import Accounting
from dse.model.evaluate import area_by_component, component_tables, evaluate
from dse.specs.quantity import Quantity
from dse.specs.search import MEANS, Objective, Range, Search
from dse.specs.source import SpecError
from dse.specs.study import Design, MapSearch, Study
from dse.studies.points import Point, choices_at, parameters_at

ROWS_AT_ONCE = 1 << 16
"""Rows (a candidate at a point) that one call prices."""
SETTLED = ("latency_s", "energy_pj")
"""What decides between alternatives at a point where the objective does not: less of the first, then of the second."""


@dataclass(frozen=True)
class Priced:
    """Candidates by point: `columns` (candidates, points) by metric, infinite where a candidate cannot be; `area_um2` by
    candidate; `options` the alternatives settled on, as places in `combinations`; `power_w` (candidates, points) the least
    mean power of any alternative, infinite where none was priced."""

    columns: Mapping[str, NDArray[np.float64]]
    area_um2: NDArray[np.float64]
    options: NDArray[np.int64]
    combinations: Sequence[Mapping[str, str]]
    power_w: NDArray[np.float64]

    @property
    def feasible(self) -> NDArray[np.bool_]:
        """Candidates that can be at every point."""
        return np.asarray(np.isfinite(self.columns["latency_s"]).all(axis=1) & np.isfinite(self.area_um2))

    def aggregated(self, objective: Objective) -> NDArray[np.float64]:
        """An objective of each candidate."""
        if objective.metric == "area_um2":
            return self.area_um2
        return over_points(self.columns[objective.metric], objective.mean)


def over_points(values: NDArray[np.float64], mean: str) -> NDArray[np.float64]:
    """Values by point (..., points) put together over the points: by one of `MEANS`."""
    with np.errstate(divide="ignore", invalid="ignore"):
        match mean:
            case "geometric":
                return np.asarray(np.exp(np.log(values).mean(axis=-1)))
            case "arithmetic":
                return np.asarray(values.mean(axis=-1))
            case "sum":
                return np.asarray(values.sum(axis=-1))
    return np.asarray(values.max(axis=-1))


class Pricer:
    """Prices candidates of one design of a study, given as places in the ranges of its free parameters: (n, ranges)."""

    def __init__(self, study: Study, design: Design, search: Search, accounting: Accounting) -> None:
        if len(design.parts) > 1 or isinstance(design.parts[0].mapping, MapSearch):
            raise study.source.error(
                ("search", "parameters", design.name),
                f"{design.name}: a search takes designs of one part with a mapping",
            )
        self.study, self.design, self.search, self.accounting = study, design, search, accounting
        self.part = design.parts[0]
        self.refused: SpecError | None = None
        self.ranges: tuple[Range, ...] = search.ranges[design.name]
        self.points = [
            Point(dict(zip(study.sweep, values, strict=True))) for values in itertools.product(*study.sweep.values())
        ]
        settled = search.settle.get(design.name, ())
        self.settled = {name: tuple(self.part.mapping_options[name]) for name in settled}
        first = search.objectives[0].metric
        self.decides = (
            (first, *SETTLED) if first not in ("area_um2", *SETTLED) else tuple(dict.fromkeys((first, *SETTLED)))
        )
        if first == "area_um2":
            self.decides = SETTLED

    def values(self, places: NDArray[np.int64]) -> dict[str, Quantity]:
        """Free parameters that are quantities, as arrays over the candidates."""
        found = {}
        for column, each in enumerate(self.ranges):
            if not each.is_option:
                values = np.array([value.value for value in each.values if isinstance(value, Quantity)])
                dimension = next(value.dimension for value in each.values if isinstance(value, Quantity))
                found[each.name] = Quantity(values[places[:, column]], dimension)
        return found

    def areas(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """Area of each candidate's chip in um2, infinite where the tables have no such component; where they have none for
        any, `refused` says which."""
        own = self.design.architecture.parameters
        settings = self.settings(places, self.points[0])
        hardware = self.design.architecture.resolve({name: value for name, value in settings.items() if name in own})
        try:
            tables, exists = component_tables(hardware, self.accounting)
        except SpecError as error:
            self.refused = error
            return np.full(len(places), np.inf)
        area = sum(area_by_component(hardware, tables, self.accounting).values())
        return np.where(np.broadcast_to(exists, len(places)), np.broadcast_to(area, len(places)), np.inf)

    def settings(self, places: NDArray[np.int64], point: Point) -> dict[str, Quantity]:
        """Values of all parameters at a point, as arrays over the candidates or as single numbers."""
        _, chosen = choices_at(self.part, point) if self.part.choices and not self.settled else ({}, {})
        return parameters_at(self.study, self.design, self.part, point, chosen, self.values(places))

    def price(self, places: NDArray[np.int64]) -> Priced:
        """Every candidate at every point, options settled; those outside the bounds on area are not priced, and alternatives
        over that on power are none."""
        areas = self.areas(places)
        count = len(self.points)
        combinations = self.combinations(places)
        names = ("latency_s", "energy_pj", "dram_bytes", "edp")
        columns = {name: np.full((len(places), count), np.inf) for name in names}
        options = np.zeros((len(places), count), dtype=np.int64)
        power = np.full((len(places), count), np.inf)
        allowed = np.flatnonzero(np.isfinite(areas) & self.allows(areas))
        step = max(1, ROWS_AT_ONCE // count)
        for start in range(0, len(allowed), step):
            rows = allowed[start : start + step]
            together = self.together(places[rows])
            for number, combination in enumerate(combinations):
                chosen = self.matching(places[rows], combination)
                if not chosen.any():
                    continue
                found = self.evaluated(together, combination, len(rows))
                own = np.where(chosen[:, None], _mean_power(found), np.inf)
                power[rows] = np.minimum(power[rows], own)
                within = chosen[:, None] & (own <= self.search.at_most.get("power_w", np.inf))
                found = {name: np.where(within, values, np.inf) for name, values in found.items()}
                better = self.better(found, {name: columns[name][rows] for name in names})
                for name in names:
                    columns[name][rows] = np.where(better, found[name], columns[name][rows])
                options[rows] = np.where(better, number, options[rows])
        return Priced(columns, areas, options, combinations, power)

    def allows(self, areas: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Where chips of these areas are within the bounds."""
        most = self.search.at_most.get("area_um2", np.inf)
        return np.asarray((areas <= most) & (areas >= self.search.least_area_um2))

    def combinations(self, places: NDArray[np.int64]) -> list[dict[str, str]]:
        """Alternatives of the mapping that are to be priced: of settled options all, of sampled ones those asked for."""
        sampled = {
            each.name: [str(each.values[place]) for place in np.unique(places[:, column])]
            for column, each in enumerate(self.ranges)
            if each.is_option
        }
        names = [*self.settled, *sampled]
        every = itertools.product(*self.settled.values(), *sampled.values())
        return [{**self.part.options, **dict(zip(names, chosen, strict=True))} for chosen in every]

    def matching(self, places: NDArray[np.int64], combination: Mapping[str, str]) -> NDArray[np.bool_]:
        """Candidates whose sampled options are those of a combination."""
        found = np.ones(len(places), dtype=bool)
        for column, each in enumerate(self.ranges):
            if each.is_option:
                found &= places[:, column] == each.values.index(combination[each.name])
        return found

    def together(self, places: NDArray[np.int64]) -> dict[str, Quantity]:
        """Parameters of all candidates at all points, one array entry each, points innermost."""
        by_point = [self.settings(places, point) for point in self.points]
        found = {}
        for name in by_point[0]:
            values = [np.broadcast_to(each[name].value, len(places)) for each in by_point]
            found[name] = Quantity(np.stack(values, axis=1).ravel(), by_point[0][name].dimension)
        return found

    def evaluated(
        self, together: Mapping[str, Quantity], options: Mapping[str, str], count: int
    ) -> dict[str, NDArray[np.float64]]:
        """Metrics of candidates by point under some options, infinite where they cannot be."""
        mapping = self.part.mapping
        assert not isinstance(mapping, MapSearch)
        shape = (count, len(self.points))
        try:
            result = evaluate(self.design.architecture, self.part.workload, mapping, together, options, self.accounting)
        except SpecError:
            if count * len(self.points) > 1:
                raise
            return {name: np.full(shape, np.inf) for name in ("latency_s", "energy_pj", "dram_bytes", "edp")}
        fits = np.broadcast_to(result.feasible, count * len(self.points)).reshape(shape)
        found = {
            name: np.where(
                fits, np.broadcast_to(getattr(result, name), count * len(self.points)).reshape(shape), np.inf
            )
            for name in ("latency_s", "energy_pj", "dram_bytes")
        }
        with np.errstate(invalid="ignore"):
            found["edp"] = found["latency_s"] * found["energy_pj"]
        return found

    def better(
        self, one: Mapping[str, NDArray[np.float64]], other: Mapping[str, NDArray[np.float64]]
    ) -> NDArray[np.bool_]:
        """Where one alternative is better than another, by what decides in turn."""
        found = np.zeros(one["latency_s"].shape, dtype=bool)
        equal = np.ones_like(found)
        for name in self.decides:
            found |= equal & (one[name] < other[name])
            equal &= one[name] == other[name]
        return found

    def table(self, places: NDArray[np.int64], priced: Priced) -> pd.DataFrame:
        """A row per candidate: its parameters, area, and every metric's means over the points."""
        from dse.studies.points import column_of

        columns: dict[str, Any] = {"design": np.full(len(places), self.design.name)}
        for column, each in enumerate(self.ranges):
            if each.is_option:
                columns[each.name] = [each.values[place] for place in places[:, column]]
            else:
                held = [
                    next(iter(column_of(each.name, value).items()))
                    for value in each.values
                    if isinstance(value, Quantity)
                ]
                columns[held[0][0]] = np.array([value for _, value in held])[places[:, column]]
        columns["area_um2"] = priced.area_um2
        for metric in ("latency_s", "energy_pj", "dram_bytes", "edp"):
            for mean in MEANS:
                objective = Objective(metric, mean)
                columns[objective.column] = priced.aggregated(objective)
        columns["feasible"] = priced.feasible
        return pd.DataFrame(columns)


def _mean_power(found: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Watts, where pJ are spent in seconds; infinite where a candidate cannot be."""
    with np.errstate(invalid="ignore"):
        watts = found["energy_pj"] * 1e-12 / found["latency_s"]
    return np.asarray(np.where(np.isfinite(watts), watts, np.inf))
