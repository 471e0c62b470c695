"""Searches that sample: Optuna's samplers ask for candidates in batches, which are priced together.

With a storage, any number of processes, here or on other machines, work on one search.
"""

from __future__ import annotations

import importlib.util
import math
import multiprocessing
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dse.specs.quantity import written
from dse.specs.source import SpecError
from dse.studies.candidates import Priced, Pricer
from dse.studies.storage import JOURNAL, PAUSE_S, Shared, close, create_or_join, reached
from dse.studies.tally import Progress, Tally

if TYPE_CHECKING:
    import optuna

BATCH = 50
"""Trials that are asked for, and priced, together."""
SHARED_BATCH = 10
"""Where others may ask too: at each, a database is asked for all that are under way."""
NEEDED = {"gp": "torch", "cmaes": "cmaes"}
"""Packages that samplers need and that are not installed with this one."""
GAUSSIAN = ("gp",)
"""Samplers that model the objectives' values, and not only their order."""
BATCHES = {"gp": 1, "random": 500, "qmc": 500, "grid": 500}
"""Where they are fewer, as each trial of a Gaussian process is worth more than the time to price it, or more, as the sampler
learns nothing from one."""
COMMON_SEED = ("grid", "qmc")
"""Samplers whose processes share one sequence of candidates, and so its seed."""
NO_VALUE = 1e30
"""What Optuna is told of a candidate that cannot be; its constraint says that it cannot."""


def sample(
    pricer: Pricer, wanted: int, *, storage: str | None = None, jobs: int = 1, progress: Progress = lambda status: None
) -> tuple[NDArray[np.int64], Priced]:
    """Candidates (n, ranges) that a sampler asks for, and their prices, until so many trials are done, those of earlier
    runs and of other processes on the same storage included. Raises SpecError where the storage cannot be used."""
    if pricer.search.method == "grid":
        wanted = min(wanted, pricer.search.sizes[pricer.design.name])
    if jobs > 1 and storage is None:
        with tempfile.TemporaryDirectory() as folder:
            return sample(pricer, wanted, storage=str(Path(folder) / f"search{JOURNAL}"), jobs=jobs, progress=progress)
    if storage is None:
        study = _in_memory(pricer)
        _work(pricer, study, None, wanted, progress)
        trials = study.get_trials(deepcopy=False)
    else:
        shared = _shared(pricer, storage)
        close(shared.backend)  # processes that are begun must not share its connections
        helpers = [
            multiprocessing.Process(target=_help, args=(pricer, storage, wanted), daemon=True) for _ in range(jobs - 1)
        ]
        for helper in helpers:
            helper.start()
        try:
            with reached(storage):
                _work(pricer, shared.study, shared, wanted, progress)
                trials = shared.finished()
        except BaseException:
            for helper in helpers:
                helper.terminate()
            raise
        finally:
            close(shared.backend)
            for helper in helpers:
                helper.join()
    places = np.array([[trial.params[each.name] for each in pricer.ranges] for trial in trials], dtype=np.int64)
    return places, pricer.price(places)


def _help(pricer: Pricer, storage: str, wanted: int) -> None:
    """What a process does that works on a search beside the one that was asked."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    shared = _shared(pricer, storage)
    _work(pricer, shared.study, shared, wanted, lambda status: None)
    close(shared.backend)


def _work(pricer: Pricer, study: optuna.Study, shared: Shared | None, wanted: int, progress: Progress) -> None:
    """Ask for candidates, price them and tell what they came to, until enough are done."""
    space: dict[str, optuna.distributions.BaseDistribution] = _distributions(pricer)
    batch = BATCHES.get(pricer.search.method, BATCH)
    if shared is not None:
        batch = min(batch, SHARED_BATCH)
    tally = Tally(pricer, wanted)
    while True:
        if shared is not None:
            tally = _counted(pricer, shared, wanted)
        progress(tally.status())
        if tally.done >= wanted:
            return
        number = min(batch, wanted - tally.done if shared is None else shared.left(wanted))
        if number <= 0:
            time.sleep(PAUSE_S)
            continue
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # of infinite values, which are meant
            asked = [study.ask(space) for _ in range(number)]
        if shared is not None:
            asked = shared.within(asked, wanted)
        if not asked:
            continue
        with nullcontext() if shared is None else shared.alive(asked):
            places = np.array([[trial.params[each.name] for each in pricer.ranges] for trial in asked], dtype=np.int64)
            priced = pricer.price(places)
            values, violations = tally.add_priced(priced), _violations(pricer, priced)
            for trial, own, violation in zip(asked, values, violations.tolist(), strict=True):
                attributes = {"violation": violation} if violation > 0 else {}
                if shared is not None:
                    shared.tell(trial, _told(own, pricer.search.method), attributes)
                    continue
                for name, value in attributes.items():
                    trial.set_user_attr(name, value)
                study.tell(trial, _told(own, pricer.search.method))


def _counted(pricer: Pricer, shared: Shared, wanted: int) -> Tally:
    """What all processes have done."""
    tally, trials = Tally(pricer, wanted), shared.finished()
    values = np.array([trial.values for trial in trials], dtype=float).reshape(len(trials), len(tally.objectives))
    if pricer.search.method in GAUSSIAN:
        values = np.exp(values)
    tally.add(values, np.array(["violation" not in trial.user_attrs for trial in trials], dtype=bool))
    return tally


def _distributions(pricer: Pricer) -> dict[str, optuna.distributions.BaseDistribution]:
    """Each free parameter as a place among its values."""
    import optuna

    return {each.name: optuna.distributions.IntDistribution(0, len(each.values) - 1) for each in pricer.ranges}


def _told(values: NDArray[np.float64], method: str) -> list[float]:
    """What Optuna is told of a candidate's objectives. A Gaussian process hears their logarithms, since it takes them to be
    spread evenly and they span orders of magnitude, and infinity where a candidate cannot be, which it takes for the worst
    that it has seen; a large number would drown all others."""
    if method in GAUSSIAN:
        return [math.log(value) if np.isfinite(value) else math.inf for value in values.tolist()]
    return [value if np.isfinite(value) else NO_VALUE for value in values.tolist()]


def _violations(pricer: Pricer, priced: Priced) -> NDArray[np.float64]:
    """By how much a candidate breaks its bounds, as a share of them: at most 0 where it can be."""
    search, area = pricer.search, np.where(np.isfinite(priced.area_um2), priced.area_um2, NO_VALUE)
    over = area / search.at_most.get("area_um2", np.inf) - 1
    over = np.maximum(over, 1 - area / search.least_area_um2 if search.least_area_um2 else -1.0)
    watts = priced.power_w.max(axis=1)
    over = np.maximum(over, np.where(np.isfinite(watts), watts, 0.0) / search.at_most.get("power_w", np.inf) - 1)
    return np.where(priced.feasible, np.minimum(over, 0.0), np.maximum(over, 1e-9))


def _in_memory(pricer: Pricer) -> optuna.Study:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        sampler=_sampler(pricer, pricer.search.seed), directions=["minimize"] * len(pricer.search.objectives)
    )
    _enqueue_published(pricer, study)
    return study


def _shared(pricer: Pricer, storage: str) -> Shared:
    """The study of a storage, with a sampler of this process's own. Raises SpecError."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    search = pricer.search
    described = {
        "space": {
            each.name: [value if isinstance(value, str) else written(value) for value in each.values]
            for each in pricer.ranges
        },
        "objectives": [objective.column for objective in search.objectives],
        "at_most": dict(search.at_most),
        "at_least": search.least_area_um2,
        "settle": list(pricer.settled),
        "accounting": search.accounting,
        "points": [point.label() for point in pricer.points],
        "parameters": {label: each.expression.text for label, each in pricer.design.parameters.items()},
        "scale": "logarithm" if search.method in GAUSSIAN else "as it is",
    }
    shared = create_or_join(storage, f"{pricer.study.name}.{pricer.design.name}", len(search.objectives), described)
    shared.study.sampler = _sampler(pricer, search.seed if search.method in COMMON_SEED else shared.seed(search.seed))
    if shared.new:
        _enqueue_published(pricer, shared.study)
    return shared


def _sampler(pricer: Pricer, seed: int) -> optuna.samplers.BaseSampler:
    import optuna

    search = pricer.search

    def constraints(trial: optuna.trial.FrozenTrial) -> Sequence[float]:
        return (float(trial.user_attrs.get("violation", 0.0)),)

    samplers = optuna.samplers
    made: Mapping[str, Callable[[], Any]] = {
        "auto": lambda: samplers.TPESampler(seed=seed, constraints_func=constraints, multivariate=True),
        "tpe": lambda: samplers.TPESampler(seed=seed, constraints_func=constraints, multivariate=True),
        "gp": lambda: samplers.GPSampler(seed=seed, constraints_func=constraints),
        "nsgaii": lambda: samplers.NSGAIISampler(seed=seed, constraints_func=constraints),
        "nsgaiii": lambda: samplers.NSGAIIISampler(seed=seed, constraints_func=constraints),
        "cmaes": lambda: samplers.CmaEsSampler(seed=seed),
        "qmc": lambda: samplers.QMCSampler(seed=seed, scramble=True),
        "grid": lambda: _grid(pricer, seed),
        "random": lambda: samplers.RandomSampler(seed=seed),
    }
    with warnings.catch_warnings(action="ignore"):
        sampler: optuna.samplers.BaseSampler = made[search.method]()
    return sampler


def check_installed(sampler: str) -> None:
    """Refuse a sampler before anything is priced where its package is not there. Raises SpecError."""
    package = NEEDED.get(sampler)
    if package is not None and importlib.util.find_spec(package) is None:
        raise SpecError(f"the sampler {sampler} needs the package {package}: pip install '{package}'")


LARGEST_GRID = 1 << 20
"""Candidates that a grid may have: Optuna lists and shuffles all of them first."""


def _grid(pricer: Pricer, seed: int) -> optuna.samplers.BaseSampler:
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
    return Grid({each.name: list(range(len(each.values))) for each in pricer.ranges}, seed=seed)


def _enqueue_published(pricer: Pricer, study: optuna.Study) -> None:
    """Let the design as it stands be the first trial, where the ranges hold it; a grid comes to it by itself."""
    if pricer.search.method == "grid":
        return
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
