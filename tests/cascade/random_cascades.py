"""Cascades to analyse: built as specs are, written out, and drawn at random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st

from dse.cascade.cascade import Cascade, check_einsum, check_iterations
from dse.cascade.parser import parse_access, parse_einsum

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
