"""The analysis of passes against enumeration of all orders of visits, on random cascades and on known ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from dse.cascade.cascade import Cascade, check_einsum, check_iterations
from dse.cascade.einsum import Access, Einsum
from dse.cascade.parser import CascadeError, parse_access, parse_einsum
from dse.cascade.passes import Availability, Family, _Flow, analyze_rank
from tests.cascade.pass_enumeration import fewest_passes

BARRIERS = 3  # the longest chain of barriers in a random cascade
ITERATIONS = 2  # the most iterative tensors in one
LENGTH = 4  # elements (or tiles) of the rank, unless barriers and iterations ask for more

Split = dict[str, tuple[str, ...]]
TILES: Split = {"M": ("M1", "M0")}


def build(
    inputs: Sequence[str],
    einsums: Sequence[str],
    initial: Sequence[str] = (),
    iterates: str = "",
    split: Split | None = None,
) -> Cascade:
    """A cascade that passed the checks that specs pass; `iterates` is its iterative variable, if any."""
    cascade = Cascade(
        tuple(parse_access(text) for text in inputs),
        tuple(parse_einsum(text) for text in einsums),
        tuple(parse_einsum(text) for text in initial),
        {iterates: iterates.upper()} if iterates else {},
        split or {},
    )
    for position in range(len(cascade.initial)):
        check_einsum(cascade, position, initial=True)
    for position in range(len(cascade.einsums)):
        check_einsum(cascade, position)
    check_iterations(cascade)
    return cascade


def show(cascade: Cascade) -> str:
    """A cascade as one would write it."""
    return "; ".join(
        [
            *(str(access) for access in cascade.inputs),
            *(str(e) for e in cascade.initial),
            *(str(e) for e in cascade.einsums),
        ]
    )


# ---- random cascades


@dataclass(frozen=True)
class Reading:
    """One way to read a tensor: `depth` bounds the barriers before it, generously."""

    text: str
    variables: tuple[str, ...]
    depth: int


@dataclass(frozen=True)
class Value:
    """A tensor of a random cascade, over `variables`; one that `steps` is made over the variable's next coordinate."""

    name: str
    variables: tuple[str, ...]
    depth: int
    steps: bool = False
    made: bool = True

    def readings(self, space: tuple[str, ...], step: str) -> list[Reading]:
        """The ways an Einsum over `space` can read it."""
        if self.variables == ("m",) and space == ("m1", "m0"):
            return [Reading(f"{self.name}[m1*M0+m0]", space, self.depth)]
        found = []
        if set(self.variables) <= set(space):
            found.append(Reading(indexed(self.name, self.variables), self.variables, self.depth))
            if self.steps and self.made:
                found.append(Reading(f"{self.name}[{step}+1]", self.variables, self.depth))
        if self.steps and self.made:
            found.append(Reading(f"{self.name}[{step.upper()}]", (), self.depth + 1))
        return found


@dataclass(frozen=True)
class Draft:
    """A random cascade and how long its rank must be for the enumeration to count all its barriers."""

    cascade: Cascade
    length: int


def indexed(tensor: str, variables: Sequence[str]) -> str:
    return f"{tensor}[{','.join(variables)}]" if variables else tensor


SPACES = {
    False: [("m",), ("m",), ("m",), ()],
    True: [("m1", "m0"), ("m1", "m0"), ("m1", "m0"), ("m1", "m0"), ("m1",), ("m1",), ("m0",), ("m",), ()],
}
INPUTS = {
    False: [Value("A", ("m",), 0), Value("B", ("m",), 0), Value("C", (), 0)],
    True: [
        Value("A", ("m1", "m0"), 0),
        Value("B", ("m1", "m0"), 0),
        Value("C", (), 0),
        Value("D", ("m1",), 0),
        Value("E", ("m0",), 0),
        Value("F", ("m",), 0),
    ],
}
NUMBERS = st.integers(0, 5039)  # divisible by all that is chosen among few
Draw = Callable[[st.SearchStrategy[int]], int]


def pick(draw: Draw, among: Sequence[Any]) -> Any:
    """One of a few; a strategy for each choice is slow to make."""
    return among[draw(NUMBERS) % len(among)]


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    """A cascade over M, whole or in tiles, of element-wise Einsums, reductions, scalars and iterations.

    A tensor that steps may be read before it is made (the coordinate of the iteration before), so it has its depth from
    the start, and is made from what is not deeper: no value waits for itself.
    """
    tiled = pick(draw, [False, True])
    step = "m1" if tiled else "m"
    values = list(INPUTS[tiled])
    stepping = [f"R{number}" for number in range(pick(draw, range(ITERATIONS + 1)))]
    values += [Value(name, (step,), pick(draw, range(BARRIERS + 1)), steps=True, made=False) for name in stepping]
    einsums: list[str] = []
    plain = pick(draw, [1, 2, 3, 4, 5, 6, 7, 7, 8, 8, 9, 9])
    while plain or not all(value.made for value in values):
        pending = [value for value in values if not value.made]
        if pending and (not plain or pick(draw, range(3)) == 0):
            value = pick(draw, pending)
            einsums.append(iteration(draw, value, values, tiled))
            values[values.index(value)] = replace(value, made=True)
        else:
            text, value = plain_einsum(draw, f"T{plain}", values, tiled)
            einsums.append(text)
            values.append(value)
            plain -= 1
    cascade = build(
        [indexed(value.name, value.variables) for value in INPUTS[tiled]],
        einsums,
        [f"{name}[0] = 0" for name in stepping],
        step if stepping else "",
        TILES if tiled else None,
    )
    return Draft(cascade, max(LENGTH, max(value.depth for value in values) + len(stepping) + 1))


def plain_einsum(draw: Draw, name: str, values: list[Value], tiled: bool) -> tuple[str, Value]:
    """An Einsum that makes a new tensor, over some part of the rank, reduced over none, some or all of it."""
    space = pick(draw, SPACES[tiled])
    kept = pick(draw, [space, space, (), (), space[:1], space[1:]])
    reduced = tuple(variable for variable in space if variable not in kept)
    waits = int(bool({"m", "m1"} & set(reduced)))
    operands = choose_operands(draw, space, reduced, values, tiled, BARRIERS - waits)
    text = f"{indexed(name, kept)} = {right_side(draw, [each.text for each in operands], reduced)}"
    return text, Value(name, kept, max(each.depth for each in operands) + waits)


def iteration(draw: Draw, value: Value, values: list[Value], tiled: bool) -> str:
    """The Einsum that makes the next coordinate of a tensor that steps, from the one before and other values."""
    space = pick(draw, [("m1",), ("m1", "m0")]) if tiled else ("m",)
    (step,) = value.variables
    operands = [f"{value.name}[{step}]"]
    operands += [each.text for each in choose_operands(draw, space, space[1:], values, tiled, value.depth)]
    return f"{value.name}[{step}+1] = {right_side(draw, list(dict.fromkeys(operands)), space[1:])}"


def choose_operands(
    draw: Draw, space: tuple[str, ...], reduced: tuple[str, ...], values: list[Value], tiled: bool, most: int
) -> list[Reading]:
    """One to four operands that an Einsum over `space` can read, which hold the reduced variables."""
    step = "m1" if tiled else "m"
    readable = [each for value in reversed(values) for each in value.readings(space, step) if each.depth <= most]
    chosen = [pick(draw, readable) for _ in range(pick(draw, range(1, 4)))]
    if pick(draw, [True, True, False]):
        chosen[0] = max(readable, key=lambda each: each.depth)  # chance alone makes few long chains of barriers
    if not set(reduced) <= {variable for each in chosen for variable in each.variables}:
        chosen.append(pick(draw, [each for each in readable if set(reduced) <= set(each.variables)]))
    return list(dict.fromkeys(chosen))


def right_side(draw: Draw, operands: list[str], reduced: tuple[str, ...]) -> str:
    """The operands under some operators, and a reduction where variables are reduced."""
    text = operands[0]
    for operand in operands[1:]:
        text = pick(draw, ["{} * {}", "{} - {}", "max({}, {})", "exp({}) + {}"]).format(text, operand)
    return f"{pick(draw, ['sum', 'max', 'min'])}_{'_'.join(reduced)}({text})" if reduced else text


RANDOM = settings(max_examples=700, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@RANDOM
@given(drafts())
def test_the_analysis_finds_the_fewest_passes(draft: Draft) -> None:
    report = analyze_rank(draft.cascade, "M")
    assert report.passes == fewest_passes(draft.cascade, "M", draft.length), show(draft.cascade)
    assert [barrier.number for barrier in report.barriers] == list(range(2, report.passes + 1)), show(draft.cascade)


def test_random_cascades_reach_every_number_of_passes() -> None:
    reached: set[tuple[str, int]] = set()

    @settings(RANDOM, derandomize=True, phases=[Phase.generate])
    @given(drafts())
    def collect(draft: Draft) -> None:
        passes = fewest_passes(draft.cascade, "M", draft.length)
        reached.add(("tiled" if draft.cascade.partition else "whole", passes))
        reached.add(("steps" if draft.cascade.initial else "still", passes))

    collect()
    wanted = product(["tiled", "whole", "steps", "still"], range(1, BARRIERS + 1))
    assert not {*wanted, ("tiled", 0)} - reached
    assert BARRIERS + 1 in {passes for _, passes in reached}


def search(wanted: Callable[[Draft], bool]) -> Draft:
    """A random cascade that is as wanted, the same one each time. Raises NoSuchExample."""
    limits = settings(
        max_examples=3000,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    return find(drafts(), wanted, settings=limits, random=Random(0))


# ---- cascades whose passes are known

SOFTMAX = build(
    ["Q", "K[m]", "V[m]"],
    [
        "QK[m] = Q * K[m]",
        "GM = max_m(QK[m])",
        "SN[m] = exp(QK[m] - GM)",
        "SD = SN[m]",
        "A[m] = SN[m] / SD",
        "AV = A[m] * V[m]",
    ],
)
DEFERRED = build(
    ["Q", "K[m]", "V[m]"],
    [
        "QK[m] = Q * K[m]",
        "GM = max_m(QK[m])",
        "SN[m] = exp(QK[m] - GM)",
        "SD = SN[m]",
        "SNV = SN[m] * V[m]",
        "AV = SNV / SD",
    ],
)
LOCAL = build(  # maxima of tiles first, corrected once the largest is known
    ["Q", "K[m1,m0]", "V[m1,m0]"],
    [
        "QK[m1,m0] = Q * K[m1,m0]",
        "LM[m1] = max_m0(QK[m1,m0])",
        "GM = max_m1(LM[m1])",
        "SLN[m1,m0] = exp(QK[m1,m0] - LM[m1])",
        "SLD[m1] = SLN[m1,m0]",
        "C[m1] = exp(LM[m1] - GM)",
        "SD = SLD[m1] * C[m1]",
        "N[m1] = C[m1] / SD",
        "A[m1,m0] = SLN[m1,m0] * N[m1]",
        "AV = A[m1,m0] * V[m1,m0]",
    ],
    split=TILES,
)
FLASH = build(  # with the other ranks of attention too, and tiles that are views
    ["Q[e,p]", "K[e,m]", "V[f,m]"],
    [
        "BK[e,m1,m0] = K[e,m1*M0+m0]",
        "BV[f,m1,m0] = V[f,m1*M0+m0]",
        "BQK[m1,m0,p] = Q[e,p] * BK[e,m1,m0]",
        "LM[m1,p] = max_m0(BQK[m1,m0,p])",
        "RM[m1+1,p] = max(RM[m1,p], LM[m1,p])",
        "SLN[m1,m0,p] = exp(BQK[m1,m0,p] - RM[m1+1,p])",
        "SLD[m1,p] = SLN[m1,m0,p]",
        "SLNV[f,m1,p] = SLN[m1,m0,p] * BV[f,m1,m0]",
        "PRM[m1,p] = exp(RM[m1,p] - RM[m1+1,p])",
        "SPD[m1,p] = RD[m1,p] * PRM[m1,p]",
        "RD[m1+1,p] = SLD[m1,p] + SPD[m1,p]",
        "SPNV[f,m1,p] = RNV[f,m1,p] * PRM[m1,p]",
        "RNV[f,m1+1,p] = SLNV[f,m1,p] + SPNV[f,m1,p]",
        "AV[f,p] = RNV[f,M1,p] / RD[M1,p]",
    ],
    ["RM[0,p] = -inf", "RD[0,p] = 0", "RNV[f,0,p] = 0"],
    "m1",
    TILES,
)
RUNNING = ["R[m+1] = R[m] + A[m]"]
RUNNING_TILES = ["L[m1] = max_m0(A[m1,m0])", "R[m1+1] = max(R[m1], L[m1])"]

KNOWN = {
    "a map": (build(["A[m]", "B[m]"], ["Y[m] = A[m] * B[m]"]), 1),
    "a product times the sum of its factor": (build(["A[m]", "B[m]"], ["Y = A[m] * B[m]", "Z = Y * A[m]"]), 2),
    "the product of two sums": (build(["A[m]", "B[m]"], ["Y = A[m] * B[m]", "X = A[m]", "Z = Y * X"]), 1),
    "a running product of sums": (
        build(
            ["A[m]", "B[m]"],
            ["RY[m+1] = RY[m] + A[m] * B[m]", "RZ[m+1] = RZ[m] * RY[m+1] / RY[m] + RY[m+1] * A[m]", "Z = RZ[M]"],
            ["RY[0] = 1", "RZ[0] = 0"],
            "m",
        ),
        1,
    ),
    "softmax": (SOFTMAX, 3),
    "softmax that divides last": (DEFERRED, 2),
    "softmax from maxima of tiles": (LOCAL, 2),
    "softmax with a running maximum": (FLASH, 1),
    "no element at all": (build(["A[m]", "C"], ["Y = exp(C)"]), 0),
    "values of tiles alone": (build(["L[m1]", "C"], ["N[m1] = L[m1] * C", "S = max_m1(N[m1])"], split=TILES), 0),
    "a scalar for each element": (build(["A[m]"], ["S = max_m(A[m])", "Y[m] = S"]), 2),
    "a chain of three": (
        build(["A[m]"], ["S = A[m]", "T = S * A[m]", "U = exp(T)", "V = U * A[m]", "W[m] = V * A[m]"]),
        4,
    ),
    "a running sum": (build(["A[m]"], [*RUNNING, "Y[m] = A[m] * R[m+1]"], ["R[0] = 0"], "m"), 1),
    "the step before": (build(["A[m]"], [*RUNNING, "Y[m] = A[m] * R[m]"], ["R[0] = 0"], "m"), 1),
    "the step before, read first": (build(["A[m]"], ["Y[m] = A[m] * R[m]", *RUNNING], ["R[0] = 0"], "m"), 1),
    "the last step": (build(["A[m]"], [*RUNNING, "Y[m] = A[m] * R[M]"], ["R[0] = 0"], "m"), 2),
    "the last step alone": (build(["A[m]"], [*RUNNING, "Y = exp(R[M])"], ["R[0] = 0"], "m"), 1),
    "an iteration after a barrier": (
        build(["A[m]"], ["S = A[m]", "R[m+1] = R[m] + A[m] * S", "Y[m] = A[m] * R[M]"], ["R[0] = 0"], "m"),
        3,
    ),
    "the maximum of a tile": (
        build(["A[m1,m0]"], ["L[m1] = max_m0(A[m1,m0])", "Y[m1,m0] = A[m1,m0] - L[m1]"], split=TILES),
        1,
    ),
    "across tiles": (build(["A[m1,m0]"], ["T[m0] = sum_m1(A[m1,m0])", "Y[m1,m0] = A[m1,m0] * T[m0]"], split=TILES), 2),
    "the maximum of all tiles": (
        build(
            ["A[m1,m0]"],
            ["L[m1] = max_m0(A[m1,m0])", "S = max_m1(L[m1])", "Y[m1,m0] = A[m1,m0] - S"],
            split=TILES,
        ),
        2,
    ),
    "tiles corrected by a sum": (
        build(
            ["A[m1,m0]"],
            ["L[m1] = max_m0(A[m1,m0])", "S = max_m1(L[m1])", "N[m1] = L[m1] - S", "Y[m1,m0] = A[m1,m0] - N[m1]"],
            split=TILES,
        ),
        2,
    ),
    "corrections are no pass": (
        build(
            ["A[m1,m0]"],
            ["L[m1] = max_m0(A[m1,m0])", "S = max_m1(L[m1])", "N[m1] = exp(L[m1] - S)", "T = sum_m1(N[m1])"],
            split=TILES,
        ),
        1,
    ),
    "tiles that stream in the second pass": (
        build(
            ["A[m1,m0]"],
            [
                "S = sum_m1_m0(A[m1,m0])",
                "T[m1] = sum_m0(A[m1,m0] * S)",
                "N[m1] = T[m1] * S",
                "Y[m1,m0] = A[m1,m0] * N[m1]",
            ],
            split=TILES,
        ),
        2,
    ),
    "a running maximum of tiles": (
        build(["A[m1,m0]"], [*RUNNING_TILES, "Y[m1,m0] = A[m1,m0] - R[m1+1]"], ["R[0] = 0"], "m1", TILES),
        1,
    ),
    "the last maximum of tiles": (
        build(["A[m1,m0]"], [*RUNNING_TILES, "Y[m1,m0] = A[m1,m0] - R[M1]"], ["R[0] = 0"], "m1", TILES),
        2,
    ),
    "an iteration without a pass": (
        build(
            ["A[m1,m0]", "D[m1]"], ["R[m1+1] = R[m1] + D[m1]", "Y[m1,m0] = A[m1,m0] * R[M1]"], ["R[0] = 0"], "m1", TILES
        ),
        1,
    ),
}


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


# ---- rules that are broken on purpose: the enumeration must notice each


def no_barrier(patch: pytest.MonkeyPatch) -> None:
    """What is complete is there for each element of the pass that completes it."""

    def place(flow: _Flow, einsum: Einsum) -> tuple[int, Availability]:
        number, made = intact(flow, einsum)
        if not flow.visits(einsum):
            return number, made
        read = [flow.availability(einsum, each) for each in einsum.inputs]
        number = max([1, *(each.level for each in read)])
        return number, Availability(number, made.streams)

    intact = _Flow.place
    patch.setattr(_Flow, "place", place)


def last_step_streams(patch: pytest.MonkeyPatch) -> None:
    """Reading the last coordinate of an iteration is like reading the one just made."""

    def availability(flow: _Flow, einsum: Einsum, access: Access) -> Availability:
        found = intact(flow, einsum, access)
        if access.tensor in flow.order and flow.family.outermost_in(flow.cascade[access.tensor].output.variables):
            return Availability(found.level, flow.made.get(access.tensor, found).streams)
        return found

    intact = _Flow.availability
    patch.setattr(_Flow, "availability", availability)


def inner_part_streams(patch: pytest.MonkeyPatch) -> None:
    """What keeps any part of the rank comes piece by piece."""
    patch.setattr(
        Family, "outermost_in", lambda family, variables: bool(family.names() & {each.upper() for each in variables})
    )


def tiles_always_stream(patch: pytest.MonkeyPatch) -> None:
    """A value per tile streams even where it waits for a complete one."""

    def place(flow: _Flow, einsum: Einsum) -> tuple[int, Availability]:
        number, made = intact(flow, einsum)
        return number, Availability(made.level, made.streams or flow.family.outermost_in(einsum.output.variables))

    intact = _Flow.place
    patch.setattr(_Flow, "place", place)


def tiles_never_stream(patch: pytest.MonkeyPatch) -> None:
    """An Einsum over tiles alone makes complete values, even where it reads streaming ones."""

    def place(flow: _Flow, einsum: Einsum) -> tuple[int, Availability]:
        number, made = intact(flow, einsum)
        return number, Availability(made.level, made.streams and flow.visits(einsum))

    intact = _Flow.place
    patch.setattr(_Flow, "place", place)


def scalars_are_free(patch: pytest.MonkeyPatch) -> None:
    """What visits no element is there from the start."""

    def place(flow: _Flow, einsum: Einsum) -> tuple[int, Availability]:
        return intact(flow, einsum) if flow.visits(einsum) else (0, Availability(0, False))

    intact = _Flow.place
    patch.setattr(_Flow, "place", place)


BROKEN: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    no_barrier: "a scalar for each element",
    last_step_streams: "the last step",
    inner_part_streams: "across tiles",
    tiles_always_stream: "tiles corrected by a sum",
    tiles_never_stream: "tiles that stream in the second pass",
    scalars_are_free: "a chain of three",
}


@pytest.mark.parametrize("break_rule", BROKEN, ids=lambda rule: rule.__name__)
def test_a_broken_rule_is_noticed(
    break_rule: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    cascade, passes = KNOWN[BROKEN[break_rule]]
    monkeypatch.setattr(_Flow, "barriers", lambda flow, last: [])  # numbers are compared, not what explains them
    assert analyze_rank(cascade, "M").passes == passes
    break_rule(monkeypatch)
    assert analyze_rank(cascade, "M").passes != passes == fewest_passes(cascade, "M", LENGTH)


@pytest.mark.parametrize(
    "break_rule",
    [rule for rule in BROKEN if rule is not tiles_never_stream],  # which climbs for ever round an iteration
    ids=lambda rule: rule.__name__,
)
def test_random_cascades_notice_a_broken_rule(
    break_rule: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Flow, "barriers", lambda flow, last: [])
    break_rule(monkeypatch)
    search(lambda draft: analyze_rank(draft.cascade, "M").passes != fewest_passes(draft.cascade, "M", draft.length))
