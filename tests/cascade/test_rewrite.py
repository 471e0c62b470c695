"""Rewrites to fewer passes: what they arrive at, and that it computes the same."""

from __future__ import annotations

import numpy as np
import pytest

import dse
from dse.cascade.interpreter import execute
from dse.cascade.passes import analyze_rank
from dse.cascade.rewrite import reduce_passes
from dse.report.cascades import verdict
from dse.specs.library import load_workload
from dse.specs.workload import write_workload


@pytest.mark.parametrize(
    ("name", "rank", "before", "after"),
    [
        ("attention_3pass", "M", 3, 1),
        ("attention_3pass_deferral", "M", 2, 1),
        ("attention_unstable", "M", 2, 1),
        ("log_sum_exp", "V", 2, 1),
        ("cross_entropy", "V", 2, 1),
        ("layer_norm", "D", 3, 2),
        ("rms_norm", "D", 2, 2),
        ("cascade_1", "K", 2, 1),
        ("attention_2pass", "M", 2, 2),
        ("attention_causal", "M", 3, 2),
        ("encoder_layer", "M", 3, 1),
        ("attention_1pass", "M", 1, 1),
    ],
)
def test_passes_after_rewriting_and_the_same_result(name: str, rank: str, before: int, after: int, write_spec) -> None:  # type: ignore[no-untyped-def]
    workload = load_workload(name)
    assert analyze_rank(workload.cascade, rank).passes == before
    reduction = reduce_passes(workload.cascade, rank)
    assert len(reduction.left) == after - 1
    path = write_spec("reduced.yaml", write_workload(workload, reduction.cascade, f"{name}_reduced", "rewritten"))
    reduced = load_workload(str(path))
    assert dse.analyze_passes(reduced, rank).passes == after
    assert verdict(reduced, dse.verify(reduced))[0]


def test_the_steps_from_three_passes_to_one() -> None:
    reduction = dse.reduce_passes("attention_3pass")
    assert reduction.steps == (
        "AV: SD[b,h,p] moves out of the sum over m: 2 passes over M",
        "GM becomes the maximum so far, and SD, AVN are corrected as it grows: 1 pass over M",
    )
    assert reduction.left == ()
    assert str(reduction.cascade["RSD"]) == "RSD[b,h,p,m+1] = RSD[b,h,p,m] * PGM[b,h,p,m] + SN[b,h,m,p]"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("rms_norm", "Y leaves with every d, so it waits for values made of all of them"),
        ("layer_norm", "Y leaves with every d, so it waits for values made of all of them"),
        ("attention_2pass", "no rule corrects mul of CN for a GM[b,h,p] that is not final"),
        (
            "attention_causal",
            "a filter leaves points out, which no rule carries over to a running value",
        ),
    ],
)
def test_a_barrier_that_stays_says_why(name: str, reason: str) -> None:
    (left,) = dse.reduce_passes(name).left
    assert left.endswith(reason)


SOFTMAX = [
    "GM[p] = max_m(X[m,p])",
    "SN[m,p] = exp(X[m,p] - GM[p])",
]
MOMENTS = ["S[p] = X[m,p]", "U[p] = S[p] / M", "C[m,p] = X[m,p] - U[p]", "V[p] = C[m,p] * C[m,p]"]


@pytest.mark.parametrize(
    "einsums",
    [
        [*SOFTMAX, "Z[p] = SN[m,p] * relu(SN[m,p])"],
        [*SOFTMAX, "Z[p] = SN[m,p] * (SN[m,p] + 1)"],
        [*SOFTMAX, "Z[p] = SN[m,p] * SN[m,p]"],
        [*SOFTMAX, "Z[q] = SN[m,q]"],
        [*SOFTMAX, "Z[p] = SN[m,p] * X[m,p]"],
        [*SOFTMAX, "Z[p] = SN[m,p] where p <= 1"],
        [SOFTMAX[0] + " where p <= 1", SOFTMAX[1], "Z[p] = SN[m,p]"],
        [SOFTMAX[0], SOFTMAX[1] + " where p <= 1", "Z[p] = SN[m,p]"],
        MOMENTS,
        [*MOMENTS[:3], MOMENTS[3] + " where p <= 1"],
        [MOMENTS[0] + " where p <= 1", *MOMENTS[1:]],
        [MOMENTS[0], MOMENTS[1] + " where p <= 1", *MOMENTS[2:]],
        [*SOFTMAX, "SD[p] = SN[m,p]", "Z[p] = SN[m,p] / SD[p] * X[m,p] where p <= 1"],
        [*SOFTMAX, "SD[p] = SN[m,p]", "A[m,p] = SN[m,p] / SD[p] where p <= 1", "Z[p] = A[m,p] * X[m,p]"],
        [*SOFTMAX, "SD[p] = SN[m,p]", "A[m,p] = SN[m,p] / SD[p]", "Z[q] = A[m,q] * X[m,q]"],
        [*SOFTMAX, "SD[p] = SN[m,p]", "Z[p] = X[m,p] / (SN[m,p] / SD[p] + 1)"],
        [*SOFTMAX, "SD[p] = SN[m,p]", "Z[p] = SN[m,p] * SD[p] * SD[p] + X[m,p]"],
        [*SOFTMAX, "SD[p] = SN[m,p]", "Z = SN[m,p] / SD[p] * X[m,p]"],
    ],
    ids="; ".join,
)
def test_whatever_is_rewritten_computes_what_it_did(einsums: list[str], write_spec) -> None:  # type: ignore[no-untyped-def]
    ranks = {"M": 7, "P": 4, **({"Q": 4} if "q]" in einsums[-1] else {})}
    spec = {"name": "w", "ranks": ranks, "inputs": ["X[m,p]"], "einsums": einsums}
    cascade = load_workload(str(write_spec("w.yaml", spec))).cascade
    reduced = reduce_passes(cascade, "M").cascade
    inputs = {"X": np.random.default_rng(0).normal(size=(7, 4))}
    (output,) = cascade.outputs
    expected = execute(cascade, ranks, inputs)[output]
    assert execute(reduced, ranks, inputs)[output] == pytest.approx(expected, rel=1e-12)


def test_a_part_of_a_rank_is_not_rewritten() -> None:
    with pytest.raises(dse.SpecError, match="M0 is a part of a rank; passes are reduced over"):
        dse.reduce_passes("attention_1pass", "M0")
