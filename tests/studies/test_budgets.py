"""Searches within several areas: against a search of each budget, and of each length, alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dse
from dse.specs.source import SpecError
from dse.specs.study import Study, load_study, load_study_file
from dse.studies.explore import explore, run_search
from dse.studies.summary import as_given, budget_table, winners_table

from .test_search import data

Write = Callable[[str, object], Path]
BUDGETS = [270e6, 300e6, 340e6, 400e6, 500e6]


def small(write_spec: Write, lengths: list[str], **search: Any) -> Study:
    one = {"objectives": [{"metric": "latency_s"}], "constraints": {"area_um2": BUDGETS}}
    written = data(**{**one, **search})
    written["sweep"]["seq_len"] = lengths
    return load_study_file(write_spec("small.yaml", written))


def test_each_budget_has_the_best_that_a_search_of_it_alone_finds(write_spec: Write) -> None:
    budgets = explore(small(write_spec, ["4K", "16K"])).budgets
    assert budgets is not None
    assert set(budgets.overall["budget_um2"]) == set(BUDGETS)
    for budget, rows in budgets.overall.groupby("budget_um2"):
        alone = explore(small(write_spec, ["4K", "16K"], constraints={"area_um2": 3e9})).trials
        alone = alone[alone["feasible"] & (alone["area_um2"] <= budget)]
        least = alone.groupby("design")["latency_s_geometric"].min()
        assert rows.set_index("design")["latency_s_geometric"].to_dict() == least.to_dict()
        assert (rows["area_um2"] <= budget).all()
        assert rows["behind"].tolist() == (rows["latency_s_geometric"] / least.min()).tolist()
        assert rows.loc[rows["best"], "design"].tolist() == least.index[least == least.min()].tolist()
    assert budgets.overall["best"].sum() >= len(BUDGETS)


def test_each_length_has_the_best_that_a_search_of_it_alone_finds(write_spec: Write) -> None:
    budgets = explore(small(write_spec, ["4K", "16K"])).budgets
    assert budgets is not None
    assert budgets.by_axis is not None
    assert budgets.axis == "seq_len"
    for text, length in (("4K", 4096), ("16K", 16384)):
        own = explore(small(write_spec, [text])).budgets
        assert own is not None
        rows = budgets.by_axis[budgets.by_axis["seq_len"] == length].drop(columns="seq_len").reset_index(drop=True)
        pd.testing.assert_frame_equal(rows, own.overall)


def test_winners_priced_alone_are_what_the_table_says(write_spec: Write) -> None:
    budgets = explore(small(write_spec, ["4K"])).budgets
    assert budgets is not None
    fusemax = budgets.overall[budgets.overall["design"] == "fusemax"]
    assert len(fusemax) == len(BUDGETS)
    for row in fusemax.to_dict("records"):
        chip = {"rows": int(row["rows"]), "buffer": int(row["buffer_bytes"]) * 8}
        alone = [
            dse.evaluate("fusemax", "attention_1pass", model=model, seq_len="4K", **chip) for model in ("BERT", "XLM")
        ]
        latencies, energies = ([float(getattr(each, name)) for each in alone] for name in ("latency_s", "energy_pj"))
        assert np.exp(np.mean(np.log(latencies))) == pytest.approx(row["latency_s_geometric"], rel=1e-12)
        assert sum(energies) == pytest.approx(row["energy_pj_sum"], rel=1e-12)
        assert float(alone[0].area_um2) == pytest.approx(row["area_um2"], rel=1e-12)
        assert float(alone[0].area_um2) <= row["budget_um2"]


def test_a_design_larger_than_a_budget_is_not_in_it_and_the_results_are_of_the_largest(write_spec: Write) -> None:
    study = small(write_spec, ["4K"], constraints={"area_um2": [1000, 250e6, 400e6]})
    result = run_search(study)
    assert result.explored is not None
    budgets = result.explored.budgets
    assert budgets is not None
    assert set(budgets.overall["budget_um2"]) == {250e6, 400e6}
    largest = budgets.overall[budgets.overall["budget_um2"] == 400e6].set_index("design")
    for design, rows in result.frame.groupby("design"):
        assert rows["area_um2"].iloc[0] == largest.loc[design, "area_um2"]
    table = budget_table(budgets)
    assert table["budget_mm2"].tolist() == (budgets.overall["budget_um2"] / 1e6).tolist()
    winners = winners_table(budgets)
    assert winners.columns.tolist() == ["budget_mm2", "4096"]
    assert winners["budget_mm2"].tolist() == [250, 400]


def test_designs_as_given_are_put_together_as_candidates_are(write_spec: Write) -> None:
    """FuseMax's ranges hold the chip that the study has, so one of its candidates is the same point."""
    result = run_search(small(write_spec, ["4K"], objectives=[{"metric": "edp", "mean": "worst"}]))
    assert result.explored is not None
    given = as_given(result).set_index("design").loc["fusemax"]
    trials = result.explored.trials
    same = trials[(trials["design"] == "fusemax") & (trials["rows"] == 256) & (trials["buffer_bytes"] == 16 * 2**20)]
    assert len(same) == 1
    assert given["edp_worst"] == pytest.approx(same["edp_worst"].iloc[0], rel=1e-12)
    assert given["area_um2"] == pytest.approx(same["area_um2"].iloc[0], rel=1e-12)


def test_the_shipped_frontier_asks_for_ten_to_1500_mm2() -> None:
    search = load_study("iso_area_frontier").search
    assert search is not None
    assert (search.budgets[0], search.budgets[-1], search.at_most["area_um2"]) == (10e6, 1500e6, 1500e6)
    assert search.sizes == dict.fromkeys(("unfused", "flat", "fusemax_cascade", "fusemax"), 2520)


def test_on_small_chips_flat_wins_and_on_large_ones_fusemax() -> None:
    """BERT at 1K within 100 and 1,500 mm2 of the shipped frontier, on chips near the winners (checked with all)."""
    study = load_study("iso_area_frontier")
    assert study.search is not None
    keep = {"rows": (256, 512, 1024), "cols": (64, 256), "lanes": (256, 512), "buffer": (2**23, 2**24)}
    ranges = {
        name: tuple(
            replace(each, values=tuple(value for value in each.values if not isinstance(value, str) and value.value in keep[each.name]))
            for each in own
        )
        for name, own in study.search.ranges.items()
    }  # fmt: skip
    settle = {"flat": ("qk_stationary", "av_stationary")}
    search = replace(study.search, ranges=ranges, settle=settle, budgets=(100e6, 1500e6))
    lengths = tuple(each for each in study.sweep["seq_len"] if each.value == 1024)
    explored = explore(replace(study, search=search, sweep={"model": ("BERT",), "seq_len": lengths}))
    assert explored.budgets is not None
    best = explored.budgets.overall[explored.budgets.overall["best"]].groupby("budget_um2")["design"].agg(list)
    assert best.to_dict() == {100e6: ["flat"], 1500e6: ["fusemax"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"constraints": {"area_um2": []}}, r"small.yaml:\d+: area_um2: no budget"),
        ({"constraints": {"area_um2": [2e8, 1e8]}}, "area_um2: budgets ascend, found 100000000.0 after 200000000.0"),
        ({"constraints": {"area_um2": [1e8, 1e8]}}, "budgets ascend"),
        ({"constraints": {"area_um2": [-1, 1e8]}}, "area_um2 is at most a number above 0, found -1"),
        ({"constraints": {"area_um2": ["much"]}}, "much"),
        ({"objectives": [{"metric": "area_um2"}]}, "that of the first objective, which cannot be area"),
    ],
)
def test_budgets_that_cannot_be_are_refused(write_spec: Write, change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        small(write_spec, ["4K"], **change)


def test_a_budget_that_no_design_meets_names_the_closest_miss(write_spec: Write) -> None:
    with pytest.raises(SpecError, match="no flat has at most 2,000 um2; the smallest has"):
        explore(small(write_spec, ["4K"], constraints={"area_um2": [1000, 2000]}))
