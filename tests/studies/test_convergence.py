"""Samplers against a front that is known exactly, and what a search may compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dse.specs.source import SpecError
from dse.specs.study import Study, load_study, load_study_file
from dse.studies.convergence import RATIOS, converge
from dse.studies.explore import explore
from dse.studies.sampling import NEEDED, NO_VALUE, _told
from dse.studies.summary import convergence_table

from .test_search import data

Write = Callable[[str, object], Path]


def small(write_spec: Write, **search: Any) -> Study:
    return load_study_file(write_spec("small.yaml", data(**search)))


@pytest.fixture(scope="module")
def shipped() -> pd.DataFrame:
    """All candidates of the shipped study, with the trials of two samplers beside them as `attrs`."""
    study = load_study("search_convergence")
    assert study.search is not None
    assert {"tpe": 2000, "nsgaii": 2000}.items() <= study.search.compare.items()
    explored = explore(replace(study, search=replace(study.search, compare={"tpe": 200, "nsgaii": 500})))
    trials = explored.trials
    trials.attrs["convergence"] = explored.convergence
    return trials


def naive_front(costs: list[tuple[float, float]]) -> list[bool]:
    """Each row against all that none has beaten so far, one comparison at a time."""
    kept: list[tuple[float, float]] = []
    for x, y in costs:
        if not any(a <= x and b <= y and (a, b) != (x, y) for a, b in kept):
            kept = [(a, b) for a, b in kept if not (x <= a and y <= b and (a, b) != (x, y))] + [(x, y)]
    return [cost in set(kept) for cost in costs]


def test_the_front_of_36_864_candidates_is_exact(shipped: pd.DataFrame) -> None:
    assert len(shipped) == 36_864
    can_be = shipped[shipped["feasible"]]
    costs = [(x, y) for x, y in can_be[["latency_s_geometric", "area_um2"]].to_numpy().tolist()]
    assert can_be["on_front"].tolist() == naive_front(costs)
    assert can_be["on_front"].sum() == 25
    assert not shipped.loc[~shipped["feasible"], "on_front"].any()


@pytest.mark.parametrize(("sampler", "within"), [("tpe", 200), ("nsgaii", 500)])
def test_samplers_reach_95_percent_of_the_exact_front(shipped: pd.DataFrame, sampler: str, within: int) -> None:
    """Asked for within 2,000 trials; of logarithms, which see the whole front, and so of the objectives too."""
    frame = shipped.attrs["convergence"]
    own = frame[frame["sampler"] == sampler]
    assert own["trial"].tolist() == list(range(1, within + 1))
    for ratio in RATIOS:
        assert own[ratio].is_monotonic_increasing
        assert 0.95 <= own[ratio].iloc[-1] <= 1.0


def test_a_grid_finds_all_of_the_front_once_it_is_through(write_spec: Write) -> None:
    """8 candidates of FLAT and 9 of FuseMax: trials beyond that are not made, none is made twice, the last reaches 1."""
    explored = explore(small(write_spec, method="exhaustive", compare={"grid": 60}))
    assert explored.convergence is not None
    last = explored.convergence.groupby("design")[["trial", *RATIOS]].last()
    assert last["trial"].to_dict() == {"flat": 8, "fusemax": 9}
    assert last[list(RATIOS)].to_numpy() == pytest.approx(1.0, rel=1e-12)
    before = explored.convergence.groupby("design")["hypervolume_ratio"].first()
    assert (before < 1).all()
    sampled = explore(small(write_spec, method="grid", trials=60)).trials
    own = sampled[sampled["design"] == "fusemax"]
    assert len(own) == len(own[["rows", "buffer_bytes"]].drop_duplicates()) == 9


def test_a_share_is_of_the_hypervolume_up_to_a_tenth_beyond_the_front() -> None:
    """The front (1, 4), (2, 2), (4, 1) up to (4.4, 4.4), computed by hand: 1.0*0.4 + 2.0*2.4 + 0.4*3.4 = 6.56."""
    exact = pd.DataFrame({"x": [1.0, 2.0, 4.0, 4.0], "y": [4.0, 2.0, 1.0, 9.0]})
    tried = pd.DataFrame({"x": [np.inf, 2.0, 4.0], "y": [np.inf, 2.0, 1.0]})
    found = converge(exact, tried)
    assert found["trial"].tolist() == [1, 2, 3]
    assert found["hypervolume_ratio"].tolist() == pytest.approx([0.0, 2.4**2 / 6.56, (2.4**2 + 0.4) / 6.56])
    logs = np.log(np.array([4.4, 4.4]) / np.array([2.0, 2.0])).prod()
    whole = np.log(2) * np.log(1.1) + np.log(2) * np.log(2.2) + np.log(1.1) * np.log(4.4)
    assert found["hypervolume_ratio_log"].iloc[1] == pytest.approx(logs / whole)


def test_the_summary_says_after_how_many_trials_enough_was_reached() -> None:
    ratios = {"hypervolume_ratio": [0.5, 0.96, 1.0], "hypervolume_ratio_log": [0.1, 0.2, 0.3]}
    frame = pd.DataFrame({"design": "flat", "sampler": "tpe", "trial": [1, 2, 3], **ratios})
    row = convergence_table(frame).iloc[0]
    assert row.to_dict() == {
        "design": "flat", "sampler": "tpe", "trials": 3, "hypervolume_ratio": 1.0, "95% after": 2,
        "hypervolume_ratio_log": 0.3, "95% after (log)": 0,
    }  # fmt: skip


def test_cmaes_searches_one_objective(write_spec: Write) -> None:
    pytest.importorskip("cmaes", reason="the sampler cmaes needs the package cmaes")
    one = [{"metric": "latency_s"}]
    exact = explore(small(write_spec, objectives=one)).trials
    found = explore(small(write_spec, objectives=one, method="cmaes", trials=60))
    assert found.method["fusemax"] == "60 of 9 candidates, cmaes"
    least = [each[each["feasible"]].groupby("design")["latency_s_geometric"].min() for each in (exact, found.trials)]
    assert least[0]["fusemax"] == least[1]["fusemax"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"compare": {"annealing": 9}}, r"small.yaml:\d+: unknown sampler 'annealing'; allowed: cmaes, gp, grid"),
        ({"compare": {"auto": 9}}, "unknown sampler 'auto'"),
        ({"compare": {"tpe": 0}}, "trials is 1 or more, found 0"),
        ({"compare": {"cmaes": 9}}, "cmaes takes one objective; fronts are compared of two"),
        ({"compare": {"tpe": 9}, "method": "auto"}, "the front of all candidates: give method: exhaustive"),
        ({"compare": {"tpe": 9}, "objectives": [{"metric": "edp"}]}, "compared of two objectives, found 1"),
        ({"method": "cmaes"}, "cmaes takes one objective, found 2"),
    ],
)
def test_comparisons_that_cannot_be_are_refused(write_spec: Write, change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        small(write_spec, **{"method": "exhaustive", **change})


def test_what_gaussian_processes_are_told() -> None:
    """Logarithms, and infinity where a candidate cannot be; other samplers, which order alone matters to, the values."""
    values = np.array([np.e**2, np.inf])
    assert _told(values, "gp") == [pytest.approx(2.0, rel=1e-15), np.inf]
    assert _told(values, "tpe") == [float(np.e**2), NO_VALUE]


def test_a_sampler_whose_package_is_missing_is_refused_first(
    write_spec: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NEEDED, "gp", "no_such_package")
    for change in ({"method": "gp"}, {"method": "exhaustive", "compare": {"gp": 20}}):
        with pytest.raises(SpecError, match="the sampler gp needs the package no_such_package: pip install"):
            explore(small(write_spec, **change))
