"""A study's search: every design's free parameters, by enumeration or with Optuna, and the best of each as a design."""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.search.front import pareto_rows
from dse.specs.choices import ChoiceTable
from dse.specs.parameters import locate
from dse.specs.quantity import BANDWIDTH, COUNT, FREQUENCY, INFORMATION, LENGTH, Quantity
from dse.specs.search import Search
from dse.specs.source import Source, SpecError
from dse.specs.study import Design, Study
from dse.studies.budgets import Budgeted, best_within, rank_designs
from dse.studies.candidates import Priced, Pricer
from dse.studies.convergence import converge
from dse.studies.run import StudyResult, accountings, run_study

if TYPE_CHECKING:
    import optuna

SMALL_SPACE = 100_000
"""Candidates that `method: auto` enumerates."""
BATCH = 50
"""Trials that are asked for, and priced, together."""
NEEDED = {"gp": "torch", "cmaes": "cmaes"}
"""Packages that samplers need and that are not installed with this one."""
GAUSSIAN = ("gp",)
"""Samplers that model the objectives' values, and not only their order."""
BATCHES = {"gp": 1}
"""Where they are fewer: each trial of a Gaussian process is worth more than the time to price it."""
NO_VALUE = 1e30
"""What Optuna is told of a candidate that cannot be; its constraint says that it cannot."""
Progress = Callable[[str, int, int], None]


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
    progress: Progress = lambda name, done, of: None,
) -> Explored:
    """Search the space of every design that the study frees. Raises SpecError where no candidate of a design can be."""
    search = study.search
    assert search is not None
    accounting = accountings(study)[search.accounting]
    for sampler in (search.method, *search.compare):
        _check_installed(sampler)
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
            places, priced = _sample(pricer, trials or search.trials, storage, progress)
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
    progress: Progress = lambda name, done, of: None,
) -> StudyResult:
    """Search a study and price the best of each design at every point, beside the designs as the study has them."""
    explored = explore(study, trials=trials, storage=storage, progress=progress)
    given = run_study(replace(study, search=None), advance).frame
    return replace(run_study(explored.winners, advance), explored=explored, given=given)


def compare_samplers(pricer: Pricer, exact: pd.DataFrame, progress: Progress) -> pd.DataFrame:
    """How near each sampler that the search compares comes to the front of all candidates, trial by trial."""
    search, columns = pricer.search, _columns(pricer.search)
    frames = []
    for sampler, trials in search.compare.items():
        own = Pricer(pricer.study, pricer.design, replace(search, method=sampler), pricer.accounting)

        def named(name: str, done: int, of: int, sampler: str = sampler) -> None:
            progress(f"{name}, {sampler}", done, of)

        places, priced = _sample(own, trials, None, named)
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
    return study.source.error(
        ("search", "parameters", name), f"no candidate of {name} has tiles that divide and fit at every point"
    )


def _enumerate(pricer: Pricer, size: int, progress: Progress) -> tuple[NDArray[np.int64], Priced]:
    shape = [len(each.values) for each in pricer.ranges]
    places = np.stack(np.unravel_index(np.arange(size), shape), axis=1).astype(np.int64)
    parts = []
    step = max(1, 4096 // len(pricer.points)) * 8
    for start in range(0, size, step):
        parts.append(pricer.price(places[start : start + step]))
        progress(pricer.design.name, min(size, start + step), size)
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
    return Priced(columns, np.concatenate([part.area_um2 for part in parts]), np.concatenate(options), combinations)


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


def written(value: Quantity) -> str:
    """A quantity as a spec says it."""
    size, unit = {
        COUNT: (1, ""), INFORMATION: (1, " bit"), FREQUENCY: (1, " Hz"), BANDWIDTH: (8, " B/s"), LENGTH: (1, " nm"),
    }[value.dimension]  # fmt: skip
    number = value.value / size if size > 1 else value.value
    return f"{int(number) if float(number).is_integer() else number!r}{unit}"


# ---- Optuna


def _sample(pricer: Pricer, wanted: int, storage: str | None, progress: Progress) -> tuple[NDArray[np.int64], Priced]:
    """Candidates that a sampler asks for, in batches, until so many trials are done, those of earlier runs included."""
    study = _optuna_study(pricer, storage)
    import optuna

    if pricer.search.method == "grid":
        wanted = min(wanted, pricer.search.sizes[pricer.design.name])
    done = [trial for trial in study.get_trials(deepcopy=False) if trial.state == optuna.trial.TrialState.COMPLETE]
    if not done and pricer.search.method != "grid":  # a grid comes to it by itself, and only once
        _enqueue_published(pricer, study)
    count = len(done)
    space: dict[str, optuna.distributions.BaseDistribution] = {
        each.name: optuna.distributions.IntDistribution(0, len(each.values) - 1) for each in pricer.ranges
    }
    batch = BATCHES.get(pricer.search.method, BATCH)
    while count < wanted:
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # of infinite values, which are meant
            asked = [study.ask(space) for _ in range(min(batch, wanted - count))]
        places = np.array([[trial.params[each.name] for each in pricer.ranges] for trial in asked], dtype=np.int64)
        priced = pricer.price(places)
        values = np.stack([priced.aggregated(objective) for objective in pricer.search.objectives], axis=1)
        for trial, own, violation in zip(asked, values, _violations(pricer, priced), strict=True):
            if violation > 0:
                trial.set_user_attr("violation", float(violation))
            study.tell(trial, _told(own, pricer.search.method))
        count += len(asked)
        progress(pricer.design.name, count, wanted)
    finished = [trial for trial in study.get_trials(deepcopy=False) if trial.state == optuna.trial.TrialState.COMPLETE]
    places = np.array([[trial.params[each.name] for each in pricer.ranges] for trial in finished], dtype=np.int64)
    return places, pricer.price(places)


def _told(values: NDArray[np.float64], method: str) -> list[float]:
    """What Optuna is told of a candidate's objectives. A Gaussian process hears their logarithms, since it takes them to be
    spread evenly and they span orders of magnitude, and infinity where a candidate cannot be, which it takes for the worst
    that it has seen; a large number would drown all others."""
    if method in GAUSSIAN:
        return [math.log(value) if np.isfinite(value) else math.inf for value in values.tolist()]
    return [value if np.isfinite(value) else NO_VALUE for value in values.tolist()]


def _violations(pricer: Pricer, priced: Priced) -> NDArray[np.float64]:
    """By how much a candidate breaks its bounds: at most 0 where it can be."""
    bound = pricer.search.at_most.get("area_um2", np.inf)
    over = np.where(np.isfinite(priced.area_um2), priced.area_um2, NO_VALUE) / bound - 1
    over = np.where(np.isfinite(bound), over, -1.0)
    return np.where(priced.feasible, np.minimum(over, 0.0), np.maximum(over, 1e-9))


def _optuna_study(pricer: Pricer, storage: str | None) -> optuna.Study:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    search, name = pricer.search, f"{pricer.study.name}.{pricer.design.name}"
    space = {
        each.name: [value if isinstance(value, str) else written(value) for value in each.values]
        for each in pricer.ranges
    }
    described = {
        "space": space,
        "objectives": _columns(search),
        "at_most": dict(search.at_most),
        "settle": list(pricer.settled),
        "accounting": search.accounting,
        "points": [point.label() for point in pricer.points],
        "parameters": {label: each.expression.text for label, each in pricer.design.parameters.items()},
    }
    try:
        study = optuna.create_study(
            storage=storage,
            sampler=_sampler(pricer),
            study_name=name,
            directions=["minimize"] * len(search.objectives),
            load_if_exists=storage is not None,
        )
        known = study.user_attrs.get("search")
        if known is None:
            study.set_user_attr("search", described)
    except SpecError:
        raise
    except Exception as error:  # whatever the database's driver raises
        if storage is None:
            raise
        raise SpecError(f"--storage {storage}: cannot be used: {str(error).splitlines()[0]}") from None
    if known is not None and known != described:
        differs = [part for part in described if known.get(part) != described[part]]
        raise SpecError(
            f"--storage {storage}: {name} is there with another search (its {' and '.join(differs)} differ); nothing was "
            "changed; give another storage, or the study another name"
        )
    return study


def _sampler(pricer: Pricer) -> optuna.samplers.BaseSampler:
    import optuna

    search = pricer.search

    def constraints(trial: optuna.trial.FrozenTrial) -> Sequence[float]:
        return (float(trial.user_attrs.get("violation", 0.0)),)

    samplers = optuna.samplers
    made: Mapping[str, Callable[[], Any]] = {
        "auto": lambda: samplers.TPESampler(seed=search.seed, constraints_func=constraints, multivariate=True),
        "tpe": lambda: samplers.TPESampler(seed=search.seed, constraints_func=constraints, multivariate=True),
        "gp": lambda: samplers.GPSampler(seed=search.seed, constraints_func=constraints),
        "nsgaii": lambda: samplers.NSGAIISampler(seed=search.seed, constraints_func=constraints),
        "nsgaiii": lambda: samplers.NSGAIIISampler(seed=search.seed, constraints_func=constraints),
        "cmaes": lambda: samplers.CmaEsSampler(seed=search.seed),
        "qmc": lambda: samplers.QMCSampler(seed=search.seed, scramble=True),
        "grid": lambda: _grid(pricer),
        "random": lambda: samplers.RandomSampler(seed=search.seed),
    }
    with warnings.catch_warnings(action="ignore"):
        sampler: optuna.samplers.BaseSampler = made[search.method]()
    return sampler


def _check_installed(sampler: str) -> None:
    """Refuse a sampler before anything is priced where its package is not there. Raises SpecError."""
    package = NEEDED.get(sampler)
    if package is not None and importlib.util.find_spec(package) is None:
        raise SpecError(f"the sampler {sampler} needs the package {package}: pip install '{package}'")


LARGEST_GRID = 1 << 20
"""Candidates that a grid may have: Optuna lists and shuffles all of them first."""


def _grid(pricer: Pricer) -> optuna.samplers.BaseSampler:
    """All candidates in a random order, each once."""
    import optuna

    class Grid(optuna.samplers.GridSampler):
        """A grid that does not stop a loop of Optuna's after its last trial, since there is none."""

        def after_trial(self, *args: Any, **kwargs: Any) -> None:
            pass

    size = pricer.search.sizes[pricer.design.name]
    if size > LARGEST_GRID:
        raise SpecError(
            f"method grid: {pricer.design.name} has {size:,} candidates; a grid has at most {LARGEST_GRID:,}; allowed: "
            "exhaustive, or random"
        )
    return Grid({each.name: list(range(len(each.values))) for each in pricer.ranges}, seed=pricer.search.seed)


def _enqueue_published(pricer: Pricer, study: optuna.Study) -> None:
    """Let the design as it stands be the first trial, where the ranges hold it."""
    point = pricer.points[0]
    none = np.zeros((1, len(pricer.ranges)), dtype=np.int64)
    fixed = replace(pricer.search, ranges={**pricer.search.ranges, pricer.design.name: ()})
    plain = Pricer(pricer.study, pricer.design, fixed, pricer.accounting).settings(none[:, :0], point)
    hardware = pricer.design.architecture.resolve(
        {name: value for name, value in plain.items() if name in pricer.design.architecture.parameters}
    )
    places = {}
    for each in pricer.ranges:
        if each.is_option:
            now: Any = pricer.part.options.get(each.name, next(iter(pricer.part.mapping_options[each.name])))
        else:
            now = hardware.values.get(each.name, plain.get(each.name))
        same = [place for place, value in enumerate(each.values) if value == now]
        if not same:
            return
        places[each.name] = same[0]
    study.enqueue_trial(places)
