"""A study's search: every design's free parameters, by enumeration or with Optuna, and the best of each as a design."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.search.front import pareto_rows
from dse.specs.choices import ChoiceTable
from dse.specs.parameters import locate
from dse.specs.quantity import written
from dse.specs.search import Search
from dse.specs.source import Source, SpecError
from dse.specs.study import Design, Study
from dse.studies.budgets import Budgeted, best_within, rank_designs
from dse.studies.candidates import Priced, Pricer
from dse.studies.convergence import converge
from dse.studies.run import StudyResult, accountings, run_study
from dse.studies.sampling import check_installed, sample
from dse.studies.tally import Progress, Status, Tally

SMALL_SPACE = 100_000
"""Candidates that `method: auto` enumerates."""


@dataclass(frozen=True)
class Explored:
    """What a search found: `trials` has a row per candidate, with `on_front`; `winners` the best design of each, as a
    study; `method` how each design's space was searched; `budgets` the best of each within each budget, where the search
    has several; `convergence` how samplers come near the exact front, where it compares some."""

    trials: pd.DataFrame
    winners: Study
    method: Mapping[str, str]
    budgets: Budgeted | None = None
    convergence: pd.DataFrame | None = None


def explore(
    study: Study,
    *,
    trials: int | None = None,
    storage: str | None = None,
    jobs: int = 1,
    progress: Progress = lambda status: None,
) -> Explored:
    """Search the space of every design that the study frees. Raises SpecError where no candidate of a design can be."""
    search = study.search
    assert search is not None
    accounting = accountings(study)[search.accounting]
    for sampler in (search.method, *search.compare):
        check_installed(sampler)
    tables, methods, designs = [], {}, dict(study.designs)
    budgets: list[Budgeted] = []
    convergence: list[pd.DataFrame] = []
    if search.method == "exhaustive" and (trials is not None or storage is not None):
        raise SpecError(f"--trials and --storage are of a search that samples; {study.name} prices all candidates")
    for name in search.ranges:
        pricer = Pricer(study, study.designs[name], search, accounting)
        size = search.sizes[name]
        enumerated = search.method == "exhaustive" or (
            search.method == "auto" and size <= SMALL_SPACE and storage is None and trials is None
        )
        if enumerated:
            places, priced = _enumerate(pricer, size, progress)
            methods[name] = f"all {size:,} candidates"
        else:
            places, priced = sample(pricer, trials or search.trials, storage=storage, jobs=jobs, progress=progress)
            methods[name] = f"{len(places):,} of {size:,} candidates, {search.method}"
        table = pricer.table(places, priced)
        if not table["feasible"].any():
            raise _none_feasible(pricer, priced)
        if search.budgets:
            budgets.append(best_within(pricer, places, priced))
        if search.compare:
            convergence.append(compare_samplers(pricer, table, progress))
        tables.append(table)
        designs[name] = winner(pricer, places, priced, _best(search, table))
    joined = pd.concat(tables, ignore_index=True)
    joined["on_front"] = _on_front(search, joined)
    return Explored(
        joined,
        replace(study, designs=designs),
        methods,
        rank_designs(budgets) if budgets else None,
        pd.concat(convergence, ignore_index=True) if convergence else None,
    )


def run_search(
    study: Study,
    advance: Callable[[str], None] = lambda step: None,
    *,
    trials: int | None = None,
    storage: str | None = None,
    jobs: int = 1,
    progress: Progress = lambda status: None,
) -> StudyResult:
    """Search a study and price the best of each design at every point, beside the designs as the study has them."""
    explored = explore(study, trials=trials, storage=storage, jobs=jobs, progress=progress)
    given = run_study(replace(study, search=None), advance).frame
    return replace(run_study(explored.winners, advance), explored=explored, given=given)


def compare_samplers(pricer: Pricer, exact: pd.DataFrame, progress: Progress) -> pd.DataFrame:
    """How near each sampler that the search compares comes to the front of all candidates, trial by trial."""
    search, columns = pricer.search, _columns(pricer.search)
    frames = []
    for sampler, trials in search.compare.items():
        own = Pricer(pricer.study, pricer.design, replace(search, method=sampler), pricer.accounting)

        def named(status: Status, sampler: str = sampler) -> None:
            progress(replace(status, design=f"{status.design}, {sampler}"))

        places, priced = sample(own, trials, progress=named)
        tried = own.table(places, priced)
        frame = converge(exact.loc[exact["feasible"], columns], tried[columns].where(tried["feasible"], np.inf))
        frame.insert(0, "design", pricer.design.name)
        frame.insert(1, "sampler", sampler)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _columns(search: Search) -> list[str]:
    return [objective.column for objective in search.objectives]


def _best(search: Search, table: pd.DataFrame) -> int:
    """The candidate of least first objective, then the others in turn, then least latency, energy and area."""
    ranked = [*_columns(search), "latency_s_geometric", "energy_pj_geometric", "area_um2"]
    rows = table[table["feasible"]]
    return int(rows.sort_values(list(dict.fromkeys(ranked)), kind="stable").index[0])


def _on_front(search: Search, table: pd.DataFrame) -> NDArray[np.bool_]:
    found = np.zeros(len(table), dtype=bool)
    feasible = np.flatnonzero(table["feasible"])
    found[feasible] = pareto_rows(table.iloc[feasible][_columns(search)].to_numpy(dtype=float))
    return found


def _none_feasible(pricer: Pricer, priced: Priced) -> SpecError:
    """Says which bound no candidate of a design meets, and the closest miss."""
    study, name = pricer.study, pricer.design.name
    bound = pricer.search.at_most.get("area_um2")
    least = float(priced.area_um2.min())
    if least == np.inf and pricer.refused is not None:
        return pricer.refused
    if bound is not None and least > bound:
        return study.source.error(
            ("search", "constraints", "area_um2"),
            f"no {name} has at most {bound:,.0f} um2; the smallest has {least:,.0f}",
        )
    if pricer.search.least_area_um2 > 0 and not pricer.allows(priced.area_um2).any():
        lowest, largest = pricer.search.least_area_um2, float(priced.area_um2[np.isfinite(priced.area_um2)].max())
        return study.source.error(
            ("search", "constraints", "area_um2"),
            f"no {name} is between {lowest:,.0f} and {bound:,.0f} um2; they go from {least:,.0f} to {largest:,.0f}",
        )
    watts, needed = pricer.search.at_most.get("power_w"), float(priced.power_w.max(axis=1).min())
    if watts is not None and watts < needed < np.inf:
        return study.source.error(
            ("search", "constraints", "power_w"),
            f"no {name} takes at most {watts:g} W at every point; the least is {needed:.4g} W",
        )
    return study.source.error(
        ("search", "parameters", name), f"no candidate of {name} has tiles that divide and fit at every point"
    )


def _enumerate(pricer: Pricer, size: int, progress: Progress) -> tuple[NDArray[np.int64], Priced]:
    shape = [len(each.values) for each in pricer.ranges]
    places = np.stack(np.unravel_index(np.arange(size), shape), axis=1).astype(np.int64)
    parts, tally = [], Tally(pricer, size)
    step = max(1, 4096 // len(pricer.points)) * 8
    for start in range(0, size, step):
        parts.append(pricer.price(places[start : start + step]))
        tally.add_priced(parts[-1])
        progress(tally.status())
    return places, _together(parts)


def _together(parts: Sequence[Priced]) -> Priced:
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    combinations = list(parts[0].combinations)
    options = []
    for part in parts:
        for each in part.combinations:
            if each not in combinations:
                combinations.append(each)
        places = np.array([combinations.index(each) for each in part.combinations], dtype=np.int64)
        options.append(places[part.options])
    area, power = (np.concatenate([getattr(part, name) for part in parts]) for name in ("area_um2", "power_w"))
    return Priced(columns, area, np.concatenate(options), combinations, power)


def winner(pricer: Pricer, places: NDArray[np.int64], priced: Priced, row: int) -> Design:
    """A candidate as a design: its parameters set, and the alternatives settled on at each point as a table of choices."""
    design, part = pricer.design, pricer.part
    source = Source(f"the best {design.name}")
    parameters = dict(design.parameters)
    options = dict(part.options)
    for place, each in zip(places[row].tolist(), pricer.ranges, strict=True):
        value = each.values[place]
        if isinstance(value, str):
            options[each.name] = value
        else:
            parameters[each.name] = locate(written(value), source, (each.name,))
    choices = part.choices
    if pricer.settled:
        rows: dict[tuple[str | int, ...], Mapping[str, str]] = {}
        for number, point in enumerate(pricer.points):
            key = tuple(value if isinstance(value, str) else value.value for value in point.values.values())
            chosen = priced.combinations[priced.options[row, number]]
            rows[key] = {name: chosen[name] for name in pricer.settled}
        choices = ChoiceTable(source.path, tuple(pricer.study.sweep), rows)
        options = {name: value for name, value in options.items() if name not in pricer.settled}
    return replace(design, parts=(replace(part, options=options, choices=choices),), parameters=parameters)
