"""Opening a result: parts add up exactly, arrays agree with single points, critical time is a split of the latency."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dse
from dse.model.accounting import CORRECTED, PRESETS, PUBLISHED, SWITCHES
from dse.model.feasibility import largest_divisor, nearest_divisors
from dse.model.result import GROUPINGS, Result


@pytest.fixture(params=["published", "corrected"])
def result(request: pytest.FixtureRequest) -> Result:
    return dse.evaluate("fusemax", "attention_1pass", model="BERT", seq_len="64K", accounting=request.param)


@pytest.mark.parametrize("by", GROUPINGS)
def test_energy_adds_up_to_the_total_exactly_in_any_order(result: Result, by: str) -> None:
    parts = result.to_frame(by)["energy_pj"].tolist()
    assert sum(parts) == result.energy_pj
    assert sum(reversed(parts)) == result.energy_pj
    assert math.fsum(parts) == result.energy_pj
    assert result.to_frame(by)["energy_pj"].sum() == result.energy_pj


def test_latency_and_traffic_add_up_by_einsum(result: Result) -> None:
    frame = result.to_frame("einsum")
    assert frame["latency_s"].sum() == result.latency_s
    assert frame["dram_bytes"].sum() == result.dram_bytes
    assert frame["utilization"][frame["unit"] == "2d"].sum() == pytest.approx(result.utilization("2d"), rel=1e-14)


def test_the_critical_time_of_each_einsum_is_the_slower_side_of_its_step(result: Result) -> None:
    """BERT at 64K: T = max(BQK+LM, RD+RNV+AV) + RM + max(SLN+SLD, PRM+SPD) + max(SLNV, SPNV) cycles a tile."""
    tiles = 64 * 12 * 256 * 256
    frame = result.to_frame("einsum").set_index("einsum")
    cycles = frame["latency_s"] * 940e6 / tiles
    assert {name: cycles[name] for name in ("RNV", "RD", "RM", "SLN", "SLD", "SLNV")} == pytest.approx(
        {"RNV": 64, "RD": 1, "RM": 1, "SLN": 7, "SLD": 1, "SLNV": 64}
    )
    assert cycles[["BQK", "LM", "PRM", "SPD", "SPNV"]].sum() == 0


def test_a_stall_is_a_part_of_the_latency() -> None:
    stalled = dse.evaluate("fusemax", "attention_1pass", mapping="fusemax_architecture", model="BERT", seq_len="64K")
    frame = stalled.to_frame("einsum").set_index("einsum")
    assert frame.loc["stall", "latency_s"] * 940e6 / (64 * 12 * 256 * 256) == pytest.approx(256)
    assert frame["latency_s"].sum() == stalled.latency_s


def test_a_phase_bound_by_memory_is_split_by_bytes_moved() -> None:
    slow = dse.evaluate("fusemax", "attention_1pass", model="BERT", seq_len="64K", bandwidth="1 GiB/s")
    assert slow.latency_s == slow.memory_s > slow.compute_s
    frame = slow.to_frame("einsum")
    np.testing.assert_allclose(frame["latency_s"] / slow.latency_s, frame["dram_bytes"] / slow.dram_bytes, atol=1e-15)


@pytest.mark.parametrize("accounting", PRESETS.values(), ids=PRESETS)
@pytest.mark.parametrize(
    ("architecture", "workload", "mapping"),
    [
        ("fusemax", "attention_1pass", "fusemax"),
        ("fusemax", "attention_1pass", "fusemax_architecture"),
        ("flat", "attention_1pass", "fusemax_cascade"),
        ("flat", "attention_3pass", "unfused"),
        ("flat", "attention_3pass", "flat"),
    ],
)
def test_a_million_points_at_once_cost_what_each_costs_alone(
    architecture: str, workload: str, mapping: str, accounting: object
) -> None:
    lengths, dims = np.array([1024, 2**14, 2**17, 2**20]), np.array([64, 128, 64, 128])
    options = {"mapping": mapping, "accounting": accounting}
    together = dse.evaluate(architecture, workload, seq_len=lengths, head_dim=dims, **options)
    assert np.all(together.feasible)
    for number, (length, dim) in enumerate(zip(lengths, dims, strict=True)):
        alone = dse.evaluate(architecture, workload, seq_len=int(length), head_dim=int(dim), **options)
        for name, value in alone.totals().items():
            assert np.broadcast_to(together.totals()[name], lengths.shape)[number] == pytest.approx(value, rel=1e-14), (
                name
            )


def test_points_that_cannot_exist_are_marked_and_the_rest_go_on() -> None:
    found = dse.evaluate(
        "fusemax", "attention_1pass", seq_len=np.array([1024, 1000, 2048]), buffer=8 * np.array([2**24, 2**24, 2**24])
    )
    assert found.feasible.tolist() == [True, False, True]
    assert found.latency_s[2] == dse.evaluate("fusemax", "attention_1pass", seq_len=2048).latency_s


def test_many_points_open_with_a_column_that_tells_them_apart() -> None:
    found = dse.evaluate("fusemax", "attention_1pass", seq_len=np.array([1024, 2048]))
    frame = found.to_frame("einsum")
    sums = frame.groupby("point")["energy_pj"].sum()
    assert sums.tolist() == found.energy_pj.tolist()
    assert len(found.to_frame()) == 2


def test_presets_turn_all_switches_on_or_off() -> None:
    """Leakage is counted by neither: it is an addition, no correction."""
    assert len(SWITCHES) == 9
    assert [switch for switch in SWITCHES if not getattr(PUBLISHED, switch)] == ["leakage"]
    assert not any(getattr(CORRECTED, switch) for switch in SWITCHES)
    assert [switch for switch in SWITCHES if getattr(PRESETS["leaking"], switch)] == ["leakage"]


def test_a_slow_memory_is_reported_not_ignored() -> None:
    notes = dse.evaluate("fusemax", "attention_1pass").notes()
    assert (
        "note: GLB takes 8.9 ns a cycle, the clock 1.06 ns: an access every clock keeps 9 banks busy, it has 32; "
        "this latency is not modelled"
    ) in notes
    between = dse.evaluate("fusemax", "attention_1pass", buffer="12 MiB").notes()
    assert (
        "note: the cost of GLB is interpolated between CACTI's capacities: half of such figures are within 5%"
        in between
    )


def test_public_names_give_plain_errors() -> None:
    with pytest.raises(
        dse.SpecError, match="unknown parameter 'row' of fusemax, attention_1pass and fusemax; did you mean 'rows'?"
    ):
        dse.evaluate("fusemax", "attention_1pass", row=4)
    with pytest.raises(dse.SpecError, match="buffer takes an amount of data"):
        dse.evaluate("fusemax", "attention_1pass", buffer="4 MHz")
    with pytest.raises(dse.SpecError, match="unknown model 'GPT'; allowed: BERT, T5, TrXL, XLM"):
        dse.evaluate("fusemax", "attention_1pass", model="GPT")
    with pytest.raises(dse.SpecError, match="unknown accounting 'paper'; allowed: corrected, leaking, published"):
        dse.evaluate("fusemax", "attention_1pass", accounting="paper")
    with pytest.raises(ValueError, match="by is one of einsum, component, action, found 'level'"):
        dse.evaluate("fusemax", "attention_1pass").to_frame("level")
    with pytest.raises(AttributeError, match="module 'dse' has no attribute 'nothing'"):
        dse.nothing  # noqa: B018


def test_the_largest_divisor_under_a_limit() -> None:
    for number, limit in [(12, 5), (12, 4), (12, 100), (7, 6), (1, 1), (360, 37), (2**40, 1000)]:
        naive = (
            max(d for d in range(1, min(number, 2000) + 1) if number % d == 0 and d <= limit) if number < 10**6 else 512
        )
        assert largest_divisor(number, limit) == naive
    found = largest_divisor(np.array([12, 360, 7]), np.array([5, 37, 6.9]))
    assert found.tolist() == [4, 36, 1]
    assert nearest_divisors(1024, 100) == "64 and 128"
