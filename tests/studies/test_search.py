"""Searches: pricing of many candidates against one by one, exact fronts, samplers, storage, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dse
from dse.model.accounting import CORRECTED
from dse.specs.parameters import locate
from dse.specs.quantity import Quantity
from dse.specs.search import Range
from dse.specs.source import Source, SpecError
from dse.specs.study import Study, load_study, load_study_file
from dse.studies.candidates import Pricer
from dse.studies.explore import explore, run_search
from dse.studies.run import run_study, with_settings
from dse.studies.summary import compare, summarize

Write = Callable[[str, object], Path]


def data(**search: Any) -> dict[str, Any]:
    """A small search of two designs at two points."""
    return {
        "name": "small",
        "sweep": {"model": ["BERT", "XLM"], "seq_len": ["4K"]},
        "designs": {
            "flat": {"architecture": "flat", "workload": "attention_3pass", "mapping": "flat"},
            "fusemax": {"architecture": "fusemax", "workload": "attention_1pass", "mapping": "fusemax"},
        },
        "baselines": ["flat"],
        "search": {
            "parameters": {
                "flat": {
                    "rows": {"powers_of_two": [128, 256]},
                    "lanes": {"choices": [256, 1024]},
                    "av_stationary": {"choices": ["output", "weight"]},
                },
                "fusemax": {
                    "rows": {"powers_of_two": [64, 256]},
                    "buffer": {"multiples": ["8 MiB", "16 MiB", "4 MiB"]},
                },
            },
            "settle": {"flat": ["q_at", "qk_stationary"]},
            "objectives": [{"metric": "latency_s"}, {"metric": "area_um2"}],
            **search,
        },
    }


def small(write_spec: Write, **search: Any) -> Study:
    return load_study_file(write_spec("small.yaml", data(**search)))


def test_candidates_cost_what_each_costs_alone(write_spec: Write) -> None:
    """Every candidate at every point, every alternative that is settled: priced one by one, the least is kept."""
    study = small(write_spec)
    assert study.search is not None
    found = explore(study)
    assert found.method == {"flat": "all 8 candidates", "fusemax": "all 9 candidates"}
    assert len(found.trials) == 17
    for _, row in found.trials.iterrows():
        latencies, energies = [], []
        for model in ("BERT", "XLM"):
            point: dict[str, Any] = {"model": model, "seq_len": "4K", "rows": int(row["rows"])}
            if row["design"] == "fusemax":
                result = dse.evaluate("fusemax", "attention_1pass", buffer=int(row["buffer_bytes"]) * 8, **point)
                alone = [(float(result.latency_s), float(result.energy_pj), float(result.area_um2))]
            else:
                alone = []
                for q_at, stationary in itertools.product(("offchip", "onchip"), ("output", "input", "weight")):
                    options = {"q_at": q_at, "qk_stationary": stationary, "av_stationary": row["av_stationary"]}
                    result = dse.evaluate("flat", "attention_3pass", lanes=int(row["lanes"]), **options, **point)
                    alone.append((float(result.latency_s), float(result.energy_pj), float(result.area_um2)))
            latency, energy, area = min(alone)
            latencies.append(latency)
            energies.append(energy)
            assert row["area_um2"] == pytest.approx(area, rel=1e-12)
        assert row["latency_s_geometric"] == pytest.approx(np.sqrt(np.prod(latencies)), rel=1e-12)
        assert row["latency_s_arithmetic"] == pytest.approx(np.mean(latencies), rel=1e-12)
        assert row["latency_s_worst"] == pytest.approx(max(latencies), rel=1e-12)
        assert row["energy_pj_sum"] == pytest.approx(sum(energies), rel=1e-12)


def test_the_front_is_what_comparing_every_pair_gives(write_spec: Write) -> None:
    trials = explore(small(write_spec)).trials
    costs = trials[["latency_s_geometric", "area_um2"]].to_numpy()
    naive = [not any((other <= row).all() and (other < row).any() for other in costs) for row in costs]
    assert trials["on_front"].tolist() == naive
    assert 1 < sum(naive) < len(naive)


def test_the_best_priced_alone_is_what_the_search_says(write_spec: Write) -> None:
    study = small(write_spec, objectives=[{"metric": "latency_s"}], constraints={"area_um2": 330e6})
    result = run_search(study)
    assert result.explored is not None
    trials = result.explored.trials
    assert (trials.loc[trials["feasible"], "area_um2"] <= 330e6).all()
    for design, rows in result.frame.groupby("design"):
        own = trials[trials["feasible"] & (trials["design"] == design)]
        best = own.loc[own["latency_s_geometric"].idxmin()]
        assert np.exp(np.log(rows["latency_s"]).mean()) == pytest.approx(best["latency_s_geometric"], rel=1e-12)
        assert (rows["area_um2"] == rows["area_um2"].iloc[0]).all()
        assert rows["area_um2"].iloc[0] <= 330e6
    both = compare(result, "flat")
    plain = summarize(run_study(replace(study, search=None)))
    assert both["speedup_given"].iloc[0] == pytest.approx(plain["speedup_geomean"].iloc[0], rel=1e-12)


def test_the_published_comparison_and_what_more_lanes_do() -> None:
    """With 1,024 lanes for 256, 38.7 mm2 more, FuseMax's mean speedup falls from 6.723 to 3.89; 2,048 bring nothing more."""
    study = load_study("iso_area_published")
    found = {}
    for lanes in (256, 1024, 2048):
        result = run_study(with_settings(study, [f"flat.lanes={lanes}"]))
        row = summarize(result).iloc[0]
        area = result.frame[result.frame["design"] == "flat"]["area_um2"].iloc[0]
        found[lanes] = (row["speedup"], row["speedup_geomean"], area)
    assert found[256][:2] == pytest.approx((6.723, 6.462), abs=5e-4)
    assert found[1024][:2] == pytest.approx((3.886, 3.089), abs=5e-4)
    assert found[2048][:2] == found[1024][:2]
    assert found[1024][2] - found[256][2] == pytest.approx(38.7e6, rel=1e-3)


@pytest.mark.parametrize("method", ["random", "tpe", "nsgaii", "qmc"])
def test_samplers_find_the_front_of_a_small_space(write_spec: Write, method: str) -> None:
    exact = explore(small(write_spec)).trials
    sampled = explore(small(write_spec, method=method, trials=60, seed=3))
    assert sampled.method["flat"] == f"60 of 8 candidates, {method}"
    front = {
        tuple(row) for row in exact.loc[exact["on_front"], ["latency_s_geometric", "area_um2"]].to_numpy().tolist()
    }
    found = sampled.trials
    own = {tuple(row) for row in found.loc[found["on_front"], ["latency_s_geometric", "area_um2"]].to_numpy().tolist()}
    assert own <= front
    assert len(own) >= len(front) - 1


def test_the_same_seed_gives_the_same_trials(write_spec: Write) -> None:
    study = small(write_spec, method="tpe", trials=55, seed=7)
    pd.testing.assert_frame_equal(explore(study).trials, explore(study).trials)


def test_the_published_point_is_the_first_trial(write_spec: Write) -> None:
    trials = explore(small(write_spec, method="random", trials=5)).trials
    first = trials[trials["design"] == "flat"].iloc[0]
    assert (first["rows"], first["lanes"], first["av_stationary"]) == (256, 256, "output")


def test_a_search_goes_on_where_it_stopped(write_spec: Write, tmp_path: Path) -> None:
    """Finished trials are there, none is counted twice, and the run ends with the number asked for."""
    storage = f"sqlite:///{tmp_path / 'search.db'}"
    study = small(write_spec, method="random", seed=1)
    first = explore(study, trials=20, storage=storage).trials
    again = explore(study, trials=50, storage=storage).trials
    for design in ("flat", "fusemax"):
        before, after = (each[each["design"] == design].reset_index(drop=True) for each in (first, again))
        assert (len(before), len(after)) == (20, 50)
        pd.testing.assert_frame_equal(before.drop(columns="on_front"), after.head(20).drop(columns="on_front"))
    same = explore(study, trials=50, storage=storage).trials
    assert len(same) == 100
    elsewhere = replace(study, sweep={**study.sweep, "model": ("BERT",)})
    with pytest.raises(SpecError, match=r"small.flat is there with another search \(not the same: points\)"):
        explore(elsewhere, trials=60, storage=storage)
    wider = data(method="random")
    wider["search"]["parameters"]["flat"]["lanes"] = {"choices": [256, 512, 1024]}
    with pytest.raises(SpecError, match=r"another search \(not the same: space of lanes\)"):
        explore(load_study_file(write_spec("small.yaml", wider)), trials=60, storage=storage)
    other = small(write_spec, method="random", objectives=[{"metric": "energy_pj"}])
    with pytest.raises(
        SpecError, match=r"small.flat is there with another search \(not the same: objectives\); nothing was"
    ):
        explore(other, trials=60, storage=storage)
    assert len(explore(study, trials=50, storage=storage).trials) == 100


def test_candidates_that_cannot_be_are_infinite_not_priced(write_spec: Write) -> None:
    study = small(write_spec, constraints={"area_um2": 2e8})
    assert study.search is not None
    pricer = Pricer(study, study.designs["fusemax"], study.search, CORRECTED)
    places = np.array([[0, 0], [2, 2]])
    priced = pricer.price(places)
    assert priced.area_um2[0] < 2e8 < priced.area_um2[1]
    assert priced.feasible.tolist() == [True, False]
    assert np.isinf(priced.columns["latency_s"][1]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "annealing"}, r"small.yaml:\d+: unknown method 'annealing'; allowed: auto"),
        ({"parameters": {"flat": {"row": {"choices": [1]}}}}, "unknown parameter 'row' of flat; did you mean 'rows'"),
        ({"parameters": {"chip": {}}}, "unknown design 'chip'"),
        ({"parameters": {"flat": {"rows": {"choices": []}}}}, "rows: the range is empty"),
        ({"parameters": {"flat": {"rows": {"powers_of_two": [512, 64]}}}}, "the range is empty: 512 is more than 64"),
        ({"parameters": {"flat": {"rows": {"integers": [1, 100000]}}}}, "100,000 values; a parameter has at most"),
        ({"parameters": {"flat": {"rows": {"choices": [64, 64]}}}}, "a value stands there twice"),
        ({"parameters": {"flat": {"rows": {}}}}, "one of powers_of_two, multiples, integers, choices, found none"),
        ({"parameters": {"flat": {"buffer": {"choices": [64]}}}}, "takes an amount of data"),
        ({"parameters": {"flat": {"q_at": {"choices": ["here"]}}}}, "unknown choice 'here' of q_at"),
        ({"parameters": {"flat": {"seq_len": {"choices": [1024]}}}}, "seq_len is swept, or flat fixes it"),
        ({"settle": {"flat": ["p_at"]}}, "unknown option 'p_at' of flat's mapping"),
        ({"settle": {"flat": ["av_stationary"]}}, "av_stationary is sampled; it cannot be settled too"),
        ({"objectives": []}, "name one metric or more"),
        ({"objectives": [{"metric": "speed"}]}, "unknown metric 'speed'"),
        ({"objectives": [{"metric": "edp"}, {"metric": "edp"}]}, "one stands there twice"),
        ({"constraints": {"power": 3}}, "unknown constraint 'power'; did you mean 'power_w'"),
        ({"constraints": {"power_w": [3]}}, r"small.yaml:\d+: "),
        (
            {"constraints": {"area_um2": {"most": 3e8}}},
            "area_um2: a number, a list of budgets, or {least: ..., most: ...}",
        ),
        ({"constraints": {"area_um2": {"least": 4e8, "most": 3e8}}}, "is nothing"),
        ({"constraints": {"area_um2": 0}}, "area_um2 is at most a number above 0"),
        ({"trials": 0}, "trials is 1 or more"),
    ],
)
def test_searches_that_cannot_be_are_refused(write_spec: Write, change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        small(write_spec, **change)


def test_a_bound_that_nothing_meets_names_the_closest_miss(write_spec: Write) -> None:
    with pytest.raises(SpecError, match=r"small.yaml:\d+: no flat has at most 1,000 um2; the smallest has \d+"):
        explore(small(write_spec, constraints={"area_um2": 1000}))


def test_a_storage_that_cannot_be_reached_is_named(write_spec: Write) -> None:
    with pytest.raises(SpecError, match="--storage sqlite:////nowhere/at/all.db: cannot be used: "):
        explore(small(write_spec, method="random"), trials=5, storage="sqlite:////nowhere/at/all.db")


def test_trials_ask_for_samples(write_spec: Write) -> None:
    assert explore(small(write_spec), trials=10).method["flat"] == "10 of 8 candidates, auto"
    with pytest.raises(
        SpecError, match="--trials and --storage are of a search that samples; small prices all candidates"
    ):
        explore(small(write_spec, method="exhaustive"), trials=10)


def test_what_is_searched_cannot_be_set(write_spec: Write) -> None:
    with pytest.raises(SpecError, match="--set flat.rows=64: small searches rows"):
        with_settings(small(write_spec), ["flat.rows=64"])


@pytest.mark.parametrize("length", [1024, 4096])
def test_the_largest_tile_that_fits_is_the_fastest_on_the_chip_that_wins(length: int) -> None:
    """FLAT's rows per tile are found, not searched: on 512 x 128 PEs, 2,048 lanes and 32 MiB no other number is faster."""
    study = load_study("iso_area_fair")
    assert study.search is not None
    chip = {"rows": "512", "cols": "128", "lanes": "2048", "buffer": "32 MiB"}
    design = study.designs["flat"]
    design = replace(design, parameters={name: locate(value, Source("chip"), (name,)) for name, value in chip.items()})
    lengths = tuple(each for each in study.sweep["seq_len"] if each.value == length)
    one = replace(study, sweep={"model": ("BERT", "XLM"), "seq_len": lengths})
    tiles = tuple(Quantity(2**power) for power in range((length // 128).bit_length()))
    latencies = []
    for ranges, places in [((Range("tiles", tiles),), np.arange(len(tiles))[:, None]), ((), np.zeros((1, 0), int))]:
        settled = ("qk_at", "a_at", "qk_stationary", "av_stationary")
        search = replace(study.search, ranges={"flat": ranges}, at_most={}, settle={"flat": settled})
        latencies.append(Pricer(one, design, search, CORRECTED).price(places).columns["latency_s"].min(axis=0))
    assert latencies[0].tolist() == latencies[1].tolist()


def test_one_candidate_alone_that_cannot_be_is_infinite_too(write_spec: Write) -> None:
    """A buffer of 512 KiB as wide as 256 columns is in no table: among others or alone, at one point or two."""
    parameters = {"fusemax": {"buffer": {"choices": ["512 KiB", "8 MiB"]}}}
    study = small(write_spec, parameters=parameters, settle={})
    assert study.search is not None
    pricer = Pricer(study, study.designs["fusemax"], study.search, CORRECTED)
    both, alone = pricer.price(np.array([[0], [1]])), pricer.price(np.array([[0]]))
    assert both.feasible.tolist() == [False, True]
    assert np.isinf(alone.area_um2[0])
    assert np.isinf(alone.columns["latency_s"]).all()
    with pytest.raises(SpecError, match="no SRAM of 524,288 bytes at 4096 bit"):
        explore(small(write_spec, parameters={"fusemax": {"buffer": {"choices": ["512 KiB"]}}}, settle={}))


def test_a_bound_on_power_leaves_what_takes_no_more_at_any_point(write_spec: Write) -> None:
    """Power is energy over time; of alternatives that are settled, those within the bound may be taken."""
    free = small(write_spec)
    assert free.search is not None
    pricer = Pricer(free, free.designs["fusemax"], free.search, CORRECTED)
    places = np.array(list(itertools.product(*(range(len(each.values)) for each in pricer.ranges))))
    priced = pricer.price(places)
    watts = (priced.columns["energy_pj"] * 1e-12 / priced.columns["latency_s"]).max(axis=1)
    np.testing.assert_allclose(priced.power_w.max(axis=1), watts, rtol=1e-12)
    bound = float(np.sort(watts)[1])
    held = small(write_spec, constraints={"power_w": bound * (1 + 1e-9)})
    assert held.search is not None
    bounded = Pricer(held, held.designs["fusemax"], held.search, CORRECTED).price(places)
    assert bounded.feasible.tolist() == (watts <= bound * (1 + 1e-9)).tolist()
    one = data(constraints={"power_w": bound / 1e6})
    del one["search"]["parameters"]["flat"], one["search"]["settle"]
    study = load_study_file(write_spec("small.yaml", one))
    with pytest.raises(SpecError, match=rf"no fusemax takes at most {bound / 1e6:g} W at every point; the least is"):
        explore(study)


def test_chips_of_equal_area_within_a_tolerance(write_spec: Write) -> None:
    every = explore(small(write_spec)).trials
    found = explore(small(write_spec, constraints={"area_um2": {"least": 250e6, "most": 400e6}})).trials
    within = every["area_um2"].between(250e6, 400e6) & every["feasible"]
    assert within.any()
    assert found["feasible"].tolist() == within.tolist()
    with pytest.raises(SpecError, match="no flat is between 1,000,000,000,000 and 2,000,000,000,000 um2; they go from"):
        explore(small(write_spec, constraints={"area_um2": {"least": 1e12, "most": 2e12}}))
    sampled = explore(
        small(write_spec, constraints={"area_um2": {"least": 250e6, "most": 400e6}}, method="tpe", trials=40)
    )
    best = sampled.trials[sampled.trials["feasible"]]
    assert best["area_um2"].between(250e6, 400e6).all()
    assert set(best["design"]) == {"flat", "fusemax"}
