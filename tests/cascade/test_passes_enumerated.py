"""The analysis of passes against enumeration of all orders of visits, on random cascades and on known ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dse.cascade.cascade import Cascade, check_einsum, check_iterations
from dse.cascade.parser import parse_access, parse_einsum
from dse.cascade.passes import analyze_rank
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
class Value:
    """A tensor of a random cascade: `depth` bounds the barriers before it, generously."""

    name: str
    variables: tuple[str, ...]
    depth: int
    steps: bool = False
    made: bool = True

    def readings(self, space: tuple[str, ...], step: str) -> list[tuple[str, int]]:
        """The ways an Einsum over `space` can read it, each with its bound of barriers."""
        if self.variables == ("m",) and space == ("m1", "m0"):
            return [(f"{self.name}[m1*M0+m0]", self.depth)]
        found = []
        if set(self.variables) <= set(space):
            found.append((access(self.name, self.variables), self.depth))
            if self.steps and self.made:
                found.append((f"{self.name}[{step}+1]", self.depth))
        if self.steps and self.made:
            found.append((f"{self.name}[{step.upper()}]", self.depth + 1))
        return found


@dataclass(frozen=True)
class Draft:
    """A random cascade and how long its rank must be for the enumeration to count all its barriers."""

    cascade: Cascade
    length: int


def access(tensor: str, variables: Sequence[str]) -> str:
    return f"{tensor}[{','.join(variables)}]" if variables else tensor


SPACES = {
    False: [("m",), ("m",), ("m",), ()],
    True: [("m1", "m0"), ("m1", "m0"), ("m1", "m0"), ("m1",), ("m1",), ("m0",), ("m",), ()],
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


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    """A cascade over M, whole or in tiles, of element-wise Einsums, reductions, scalars and iterations.

    A tensor that steps may be read before it is made (the coordinate of the iteration before), so it has its depth from
    the start, and is made from what is not deeper: no value waits for itself.
    """
    tiled = draw(st.booleans())
    step = "m1" if tiled else "m"
    values = list(INPUTS[tiled])
    for number in range(draw(st.integers(0, ITERATIONS))):
        values.append(Value(f"R{number}", (step,), draw(st.integers(0, BARRIERS)), steps=True, made=False))
    einsums: list[str] = []
    depth = 0
    for number in range(draw(st.integers(2, 8))):
        pending = [value for value in values if not value.made]
        if pending and draw(st.integers(0, 2)) == 0:
            value = draw(st.sampled_from(pending))
            einsums.append(draw(iterations(value, values, tiled)))
            made = Value(value.name, value.variables, value.depth, steps=True)
            values = [made if each is value else each for each in values]
        else:
            text, value = draw(plain_einsums(f"T{number}", values, tiled))
            einsums.append(text)
            values.append(value)
        depth = max(depth, value.depth)
    for value in [value for value in values if not value.made]:
        einsums.append(draw(iterations(value, values, tiled)))
        depth = max(depth, value.depth)
    stepping = [value.name for value in values if value.steps]
    cascade = build(
        [access(value.name, value.variables) for value in INPUTS[tiled]],
        einsums,
        [f"{name}[0] = 0" for name in stepping],
        step if stepping else "",
        TILES if tiled else None,
    )
    return Draft(cascade, max(LENGTH, depth + len(stepping) + 1))


@st.composite
def plain_einsums(draw: st.DrawFn, name: str, values: list[Value], tiled: bool) -> tuple[str, Value]:
    """An Einsum that makes a new tensor, over some part of the rank, reduced over none, some or all of it."""
    space = draw(st.sampled_from(SPACES[tiled]))
    kept = space
    if space and draw(st.booleans()):
        kept = draw(st.sampled_from([(), space[:1], space[1:]] if len(space) > 1 else [()]))
    reduced = tuple(variable for variable in space if variable not in kept)
    waits = int(bool({"m", "m1"} & set(reduced)))
    operands, depth = draw(operand_lists(space, reduced, values, tiled, BARRIERS - waits))
    text = f"{access(name, kept)} = {draw(right_sides(operands, reduced))}"
    return text, Value(name, kept, depth + waits)


@st.composite
def iterations(draw: st.DrawFn, value: Value, values: list[Value], tiled: bool) -> str:
    """The Einsum that makes the next coordinate of a tensor that steps, from the one before and other values."""
    space = draw(st.sampled_from([("m1",), ("m1", "m0")])) if tiled else ("m",)
    reduced = space[1:]
    others, _ = draw(operand_lists(space, reduced, values, tiled, value.depth))
    (step,) = value.variables
    operands = [f"{value.name}[{step}]", *(text for text in others if text != f"{value.name}[{step}]")]
    return f"{value.name}[{step}+1] = {draw(right_sides(operands, reduced))}"


@st.composite
def operand_lists(
    draw: st.DrawFn, space: tuple[str, ...], reduced: tuple[str, ...], values: list[Value], tiled: bool, most: int
) -> tuple[list[str], int]:
    """One to three operands that an Einsum over `space` can read, which hold the reduced variables, and their depth."""
    step = "m1" if tiled else "m"
    readable = [
        (text, depth) for value in reversed(values) for text, depth in value.readings(space, step) if depth <= most
    ]
    chosen = draw(st.lists(st.sampled_from(readable), min_size=1, max_size=3, unique=True))
    deepest = max(readable, key=lambda each: each[1])  # alone, chance makes few long chains of barriers
    if deepest not in chosen and draw(st.booleans()):
        chosen[0] = deepest
    held = {variable for text, _ in chosen for variable in parse_access(text).variables}
    if not set(reduced) <= held:
        holding = [each for each in readable if set(reduced) <= set(parse_access(each[0]).variables)]
        chosen.append(draw(st.sampled_from(holding)))
    return [text for text, _ in chosen], max(depth for _, depth in chosen)


@st.composite
def right_sides(draw: st.DrawFn, operands: list[str], reduced: tuple[str, ...]) -> str:
    """The operands under some operators, and a reduction where variables are reduced."""
    text = operands[0]
    for operand in operands[1:]:
        text = f"max({text}, {operand})" if draw(st.booleans()) else f"{text} {draw(st.sampled_from('*+-/'))} {operand}"
    if draw(st.booleans()):
        text = f"exp({text})"
    return f"{draw(st.sampled_from(['sum', 'max', 'min']))}_{'_'.join(reduced)}({text})" if reduced else text


@settings(max_examples=600, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(drafts())
def test_the_analysis_finds_the_fewest_passes(draft: Draft) -> None:
    cascade = draft.cascade
    assert analyze_rank(cascade, "M").passes == fewest_passes(cascade, "M", draft.length), show(cascade)
