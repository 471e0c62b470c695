"""The shipped cascades: passes and why, live footprints, operations, and that each computes what it says.

Source of the pass counts: Nayak et al., MICRO 2024, Table I and section III; of the others, see each workload.
"""

from __future__ import annotations

import numpy as np
import pytest

import dse
from dse.cascade.interpreter import execute
from dse.cascade.operations import count_operations
from dse.cascade.passes import analyze_rank
from dse.cascade.verify import TOLERANCE
from dse.report.cascades import least_buffer_bytes, verdict
from dse.specs.library import load_workload, names
from dse.specs.sizes import shapes_to_run

PASSES = {
    "attention_3pass": ("M", 3),
    "attention_3pass_deferral": ("M", 2),
    "attention_2pass": ("M", 2),
    "attention_2pass_deferral": ("M", 2),
    "attention_1pass": ("M", 1),
    "flash_attention": ("M", 1),
    "split_kv": ("M", 1),
    "attention_unstable": ("M", 2),
    "attention_causal": ("M", 3),
    "attention_sliding_window": ("M", 3),
    "cascade_1": ("K", 2),
    "cascade_2": ("K", 1),
    "cascade_3": ("K", 1),
    "rms_norm": ("D", 2),
    "layer_norm": ("D", 3),
    "norms": ("D", 5),
    "log_sum_exp": ("V", 2),
    "cross_entropy": ("V", 2),
    "matmul": ("K", 1),
    "matmul_int8": ("K", 1),
    "conv": ("C", 1),
    "conv_int8": ("C", 1),
    "depthwise": ("R", 1),
    "ffn": ("D", 1),
    "linear_layers": ("D", 1),
    "encoder_layer": ("M", 3),
}


@pytest.mark.parametrize(("name", "rank", "passes"), [(name, *expected) for name, expected in PASSES.items()])
def test_passes_are_those_of_the_taxonomy(name: str, rank: str, passes: int) -> None:
    report = dse.analyze_passes(name, rank)
    assert report.passes == passes
    assert [barrier.number for barrier in report.barriers] == list(range(2, passes + 1))


def test_every_shipped_workload_is_looked_at() -> None:
    assert set(names("workloads")) == set(PASSES)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "attention_3pass",
            [
                "pass 2 starts at SN: it reads QK[b,h,m,p] again, but GM[b,h,p] needs every m",
                "pass 3 starts at A: it reads SN[b,h,m,p] again, but SD[b,h,p] needs every m",
            ],
        ),
        (
            "attention_2pass",
            [
                "pass 2 starts at CN: it reads SLN[b,h,m1,m0,p] again, but PRM[b,h,m1,p] waits for GM[b,h,p], "
                "which needs every m1,m0"
            ],
        ),
        ("rms_norm", ["pass 2 starts at Y: it reads X[t,d] again, but R[t] waits for SQ[t], which needs every d"]),
        ("cascade_1", ["pass 2 starts at Z: it reads A[k] again, but Y needs every k"]),
    ],
)
def test_barriers_are_said_in_words(name: str, lines: list[str]) -> None:
    assert [str(barrier) for barrier in dse.analyze_passes(name).barriers] == lines


def test_einsums_of_a_pass_and_traversals_of_a_tile() -> None:
    three = dse.analyze_passes("attention_3pass")
    assert dict(three.einsums) == {"QK": 1, "GM": 1, "SN": 2, "SD": 2, "A": 3, "AV": 3}
    assert {name: three.tensors[name] for name in ("K", "QK", "SN", "A", "V")} == {
        "K": 1,
        "QK": 2,
        "SN": 2,
        "A": 1,
        "V": 1,
    }
    assert dict(dse.analyze_passes("attention_1pass").traversals) == {"M0": 2}


@pytest.mark.parametrize(
    ("name", "live"),
    [
        ("attention_3pass", {"QK": "M", "SN": "M", "A": "1", "K": "1", "V": "1"}),
        ("attention_2pass", {"SLN": "M", "LM": "M1", "BQK": "1", "A": "1"}),
        ("attention_1pass", {"BQK": "1", "SLN": "1", "RM": "1", "SLNV": "1"}),
        ("split_kv", {"BQK": "1", "SLN": "1", "LM": "M1", "SLD": "M1", "SLNV": "M1"}),
        ("cascade_1", {"A": "K", "B": "1"}),
    ],
)
def test_what_must_stay_live(name: str, live: dict[str, str]) -> None:
    found = dse.analyze_passes(name).footprints
    assert {tensor: str(found[tensor]) for tensor in live} == live


@pytest.mark.parametrize(
    ("name", "moved"),
    [
        ("attention_3pass", {"QK": "2*M", "SN": "2*M", "A": "0", "K": "0"}),
        ("attention_2pass", {"SLN": "2*M", "LM": "2*M1"}),
        ("cascade_1", {"A": "K", "B": "0"}),
        ("attention_1pass", {"BQK": "0", "RM": "0"}),
    ],
)
def test_what_spilling_a_live_fiber_moves(name: str, moved: dict[str, str]) -> None:
    """A tensor that is made is written once and read again; an input is only read again."""
    found = dse.analyze_passes(name).spills
    assert {tensor: str(found[tensor]) for tensor in moved} == moved


def test_passes_and_footprints_are_told_apart() -> None:
    """Split keys and values make one pass, and their partials grow with M all the same."""
    buffers = {}
    for name in ("attention_3pass", "attention_1pass", "split_kv"):
        workload, report = load_workload(name), dse.analyze_passes(name)
        buffers[name] = [least_buffer_bytes(workload, report, length, 256, 256) for length in (2**16, 2**20)]
    assert buffers["attention_3pass"] == [2**16 * 512, 2**20 * 512]
    assert buffers["attention_1pass"] == [512, 512]
    assert buffers["split_kv"] == [2**8 * 512, 2**12 * 512]


def test_operations_by_einsum_and_what_deferral_saves() -> None:
    counts = {
        name: {each.einsum: (each.operation, str(each.count)) for each in count_operations(load_workload(name).cascade)}
        for name in ("attention_3pass", "attention_3pass_deferral", "attention_1pass")
    }
    assert counts["attention_3pass"]["QK"] == ("multiply-add", "B*E*H*M*P")
    assert counts["attention_3pass"]["SN"] == ("subtract-exp", "B*H*M*P")
    assert counts["attention_3pass"]["A"] == ("divide", "B*H*M*P")
    assert counts["attention_3pass_deferral"]["AV"] == ("divide", "B*F*H*P")
    assert counts["attention_1pass"]["BQK"] == ("multiply-add", "B*E*H*M*P")
    assert counts["attention_1pass"]["PRM"] == ("subtract-exp", "B*H*M1*P")


@pytest.mark.parametrize("name", names("workloads"))
def test_every_shipped_cascade_computes_its_reference(name: str) -> None:
    workload = load_workload(name)
    trials = dse.verify(name)
    assert len(trials) == 5
    right, sentence = verdict(workload, trials)
    assert right, sentence
    assert all(trial.error <= TOLERANCE for trial in trials if trial.passed)


def test_the_unstable_softmax_overflows_where_the_stable_ones_do_not() -> None:
    for name in (
        "attention_unstable",
        "attention_3pass",
        "attention_2pass",
        "attention_1pass",
        "flash_attention",
        "split_kv",
    ):
        (large,) = [trial for trial in dse.verify(name) if trial.inputs == "large"]
        assert large.overflows == (name == "attention_unstable")


@pytest.mark.parametrize("part", [1, 2, 3, 4, 6, 12])
def test_the_size_of_a_tile_changes_nothing(part: int) -> None:
    assert all(trial.passed for trial in dse.verify("attention_1pass", M0=part))


@pytest.mark.parametrize(
    ("workload", "old", "new", "first"),
    [
        ("attention_1pass", "exp(BQK[b,h,m1,m0,p] - RM[b,h,m1+1,p])", "exp(BQK[b,h,m1,m0,p] - RM[b,h,m1,p])", "SLN"),
        ("attention_1pass", "RD[b,h,m1,p] * PRM[b,h,m1,p]", "RD[b,h,m1,p] * LM[b,h,m1,p]", "SPD"),
        ("attention_3pass", "max_m(QK[b,h,m,p])", "QK[b,h,m,p]", "GM"),
        ("layer_norm", "S[t] / D", "S[t] / T", "MU"),
    ],
)
def test_a_broken_cascade_is_refused_at_its_first_wrong_tensor(
    workload: str, old: str, new: str, first: str, write_spec
) -> None:  # type: ignore[no-untyped-def]
    from dse.specs.library import library_folder

    text = (library_folder("workloads") / f"{workload}.yaml").read_text()
    assert old in text
    path = write_spec("broken.yaml", text.replace(old, new))
    trials = dse.verify(str(path))
    assert {trial.differs for trial in trials if not trial.passed} == {first}
    assert not verdict(load_workload(str(path)), trials)[0]


def test_running_all_tensors_and_only_the_output_agree() -> None:
    for name in ("attention_1pass", "flash_attention", "cascade_3"):
        workload = load_workload(name)
        shapes = shapes_to_run(workload, {})
        dice = np.random.default_rng(1)
        inputs = {
            a.tensor: 1 + dice.random([shapes[i.variables[0].upper()] for i in a.indices])
            for a in workload.cascade.inputs
        }
        output = workload.cascade.outputs[0]
        np.testing.assert_array_equal(
            execute(workload.cascade, shapes, inputs)[output],
            execute(workload.cascade, shapes, inputs, only=output)[output],
        )


def test_a_part_and_a_rank_are_analysed_by_name() -> None:
    assert analyze_rank(load_workload("attention_1pass").cascade, "M0").passes == 2
    with pytest.raises(dse.SpecError, match="attention_1pass has no rank 'Z'; allowed:"):
        dse.analyze_passes("attention_1pass", "Z")
    with pytest.raises(KeyError):
        analyze_rank(load_workload("matmul").cascade, "Z")


@pytest.mark.parametrize("part", [0, -3, 1.5, 5])
def test_a_tile_that_does_not_divide_is_refused(part: float) -> None:
    with pytest.raises(dse.SpecError, match=f"M = 12 does not divide by M0 = {part}"):
        dse.verify("attention_1pass", M0=part)


def test_arrays_past_memory_are_refused_before_they_are_made() -> None:
    with pytest.raises(
        dse.SpecError, match="makes an array of 1,099,511,627,776 elements; at most 268,435,456 are run"
    ):
        dse.verify("attention_3pass", batch=1, heads=1, seq_len="1M")


def test_ranks_of_different_meaning_have_different_small_sizes() -> None:
    """So that a rank taken for another one shows: layer_norm with S/T for S/D is refused above."""
    shapes = shapes_to_run(load_workload("encoder_layer"), {})
    assert shapes["P"] == shapes["M"]
    assert shapes["D"] == shapes["G"]
    assert len({shapes[rank] for rank in "BHPEDS"}) == 6
