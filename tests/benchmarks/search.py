"""How fast searches price candidates. Not a test: run it as a program.

python tests/benchmarks/search.py
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from dse.specs.study import Study, load_study
from dse.studies.candidates import Pricer
from dse.studies.explore import explore
from dse.studies.run import accountings

CANDIDATES = 42_000
TRIALS = 2_000


def plain(design: str) -> Study:
    """The fair search with one design free, nothing settled and no bound."""
    study = load_study("iso_area_fair")
    assert study.search is not None
    search = replace(study.search, settle={}, at_most={}, ranges={design: study.search.ranges[design]})
    return replace(study, search=search)


def rows_per_second(design: str) -> float:
    """Rate of pricing rows, each a candidate at one model and length."""
    study = plain(design)
    assert study.search is not None
    pricer = Pricer(study, study.designs[design], study.search, accountings(study)[study.search.accounting])
    dice = np.random.default_rng(0)
    places = np.stack([dice.integers(0, len(each.values), CANDIDATES) for each in pricer.ranges], axis=1)
    start = time.perf_counter()
    pricer.price(places)
    return CANDIDATES * len(pricer.points) / (time.perf_counter() - start)


def trials_per_second(method: str) -> float:
    """Rate of Optuna's trials at one point, in memory."""
    study = plain("fusemax")
    assert study.search is not None
    one = {axis: values[:1] for axis, values in study.sweep.items()}
    study = replace(study, sweep=one, search=replace(study.search, method=method, trials=TRIALS))
    start = time.perf_counter()
    explore(study)
    return TRIALS / (time.perf_counter() - start)


if __name__ == "__main__":
    for design in ("flat", "fusemax"):
        print(f"exhaustive, {design}: {rows_per_second(design):,.0f} rows/s")
    for method in ("random", "tpe"):
        print(f"Optuna, {method}: {trials_per_second(method):,.0f} trials/s over {TRIALS:,} trials")
