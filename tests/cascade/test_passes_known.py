"""The analysis of passes, and the enumeration, on cascades whose passes are known."""

from __future__ import annotations

import pytest

from dse.cascade.parser import CascadeError
from dse.cascade.passes import analyze_rank
from tests.cascade.known_cascades import KNOWN, RUNNING
from tests.cascade.pass_enumeration import fewest_passes
from tests.cascade.random_cascades import LENGTH, TILES, build


@pytest.mark.parametrize("name", KNOWN)
def test_known_cascades(name: str) -> None:
    cascade, passes = KNOWN[name]
    report = analyze_rank(cascade, "M")
    assert (report.passes, len(report.barriers)) == (passes, max(0, passes - 1))
    assert [fewest_passes(cascade, "M", length) for length in (LENGTH + 1, LENGTH + 2)] == [passes, passes]


def test_a_short_fiber_needs_fewer_passes_than_its_barriers() -> None:
    cascade, passes = KNOWN["a chain of three"]
    assert [fewest_passes(cascade, "M", length) for length in (1, 2, 3, 4, 5)] == [1, 3, 3, passes, passes]


def test_values_that_wait_for_one_another_are_never_made() -> None:
    cascade = build(["A[m]"], ["Y[m] = A[m] * R[M]", "R[m+1] = R[m] + Y[m]"], ["R[0] = 0"], "m")
    with pytest.raises(ValueError, match="wait for one another"):
        fewest_passes(cascade, "M", LENGTH)


# What is read before it is made, or completes a value without an element, once broke the search for what a barrier waits for.
BACKWARD = {
    "a step that waits": build(["A[m]"], ["Y[m] = R[m]", "S = A[m]", "R[m+1] = max(R[m], S)"], ["R[0] = 0"], "m"),
    "a step of tiles behind another": build(
        ["A[m1,m0]"],
        ["P[m1+1] = P[m1] * R[m1]", "R[m1+1] = sum_m0(R[m1] * A[m1,m0])", "Y[m1,m0] = P[M1]"],
        ["P[0] = 0", "R[0] = 0"],
        "m1",
        TILES,
    ),
    "a step of tiles that feeds itself and waits": build(
        ["A[m1,m0]"],
        ["T[m1] = sum_m0(A[m1,m0] * R[m1])", "S = sum_m1_m0(A[m1,m0])", "R[m1+1] = R[m1] + T[m1] - S"],
        ["R[0] = 0"],
        "m1",
        TILES,
    ),
}


@pytest.mark.parametrize("name", BACKWARD)
def test_barriers_are_found_through_values_of_the_step_before(name: str) -> None:
    report = analyze_rank(BACKWARD[name], "M")
    assert (report.passes, len(report.barriers)) == (2, 1)
    assert fewest_passes(BACKWARD[name], "M", LENGTH + 1) == 2


# Values that are there before the pass that makes their tensor whole: the first of an iteration, and the step before.
EARLY = {
    "the initial coordinate": build(["A[m]"], [*RUNNING, "Y[m] = A[m] * R[0]"], ["R[0] = 0"], "m"),
    "the step before of another rank, after the step": build(
        ["A[m]"], ["X[p] = A[m] * R[p]", "R[p+1] = R[p] + X[p]", "Y[m,p] = A[m] * R[p]"], ["R[0] = 0"], "p"
    ),
}


@pytest.mark.parametrize("name", EARLY)
def test_values_that_are_there_early_cost_no_pass(name: str) -> None:
    assert analyze_rank(EARLY[name], "M").passes == fewest_passes(EARLY[name], "M", LENGTH) == 1


def test_an_iteration_that_does_not_build_on_itself_is_refused() -> None:
    """Its last step is made of the last element alone, which may be visited first."""
    with pytest.raises(CascadeError, match=r"R\[m\+1\] never reads R\[...m...\], so nothing iterates"):
        build(["A[m]"], ["R[m+1] = exp(A[m])", "Y[m] = A[m] * R[M]"], ["R[0] = 0"], "m")
