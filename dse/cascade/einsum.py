"""The extended Einsum as data: what the parser fills and everything else reads.

Source of the notation: Odemuyiwa et al., "The EDGE Language", 2024, and Nayak et al., MICRO 2024, section II.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dse.cascade.polynomial import Polynomial


@dataclass(frozen=True)
class Affine:
    """An index: rank variables times scales, plus an offset - `m1*M0 + m0`, `m1 + 1`, `M1`, `0`."""

    terms: tuple[tuple[str, Polynomial], ...]
    offset: Polynomial

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """Its rank variables, as written."""
        return tuple(variable for variable, _ in self.terms)

    @property
    def is_plain(self) -> bool:
        """Whether it is one variable and nothing else."""
        return not self.offset and len(self.terms) == 1 and self.terms[0][1] == Polynomial.of(1)

    def __str__(self) -> str:
        signs = {Polynomial.of(1): "", Polynomial.of(-1): "-"}
        parts = [f"{signs.get(scale, f'{scale}*')}{variable}" for variable, scale in self.terms]
        if self.offset or not parts:
            parts.append(str(self.offset))
        return "+".join(parts).replace("+-", "-")


@dataclass(frozen=True)
class Access:
    """A tensor at an index of each of its ranks, e.g. `RM[m1+1, p]`."""

    tensor: str
    indices: tuple[Affine, ...]

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """Rank variables in the order they appear, each once."""
        return tuple(dict.fromkeys(variable for index in self.indices for variable in index.variables))

    def __str__(self) -> str:
        return f"{self.tensor}[{','.join(str(index) for index in self.indices)}]" if self.indices else self.tensor


@dataclass(frozen=True)
class Literal:
    """A number written in a cascade; `inf` and `-inf` are numbers."""

    value: float


@dataclass(frozen=True)
class Size:
    """The shape of a rank as a number, written as the rank's name: `S[t] / D`."""

    rank: str


@dataclass(frozen=True)
class Operation:
    """An operator on operands: `mul`, `add`, `sub`, `div`, `neg`, or a function of `FUNCTIONS`."""

    operator: str
    operands: tuple[Expression, ...]


Expression = Access | Literal | Size | Operation

FUNCTIONS: Mapping[str, int] = {"exp": 1, "log": 1, "sqrt": 1, "rsqrt": 1, "relu": 1, "abs": 1, "max": 2, "min": 2}
"""User operators and how many operands each takes."""

REDUCTIONS = ("sum", "max", "min")
"""Operators that reduce; written `max_m0(...)`. `sum` is also implied for variables missing on the left."""

INFIX: Mapping[str, str] = {"*": "mul", "+": "add", "-": "sub", "/": "div"}


@dataclass(frozen=True)
class Condition:
    """A filter on the iteration space: `left` compared with `right`, e.g. `m <= p`."""

    left: Affine
    relation: str
    right: Affine

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"


@dataclass(frozen=True)
class Einsum:
    """One assignment: for each point of the iteration space that passes `where`, map the operands, reduce into the output.

    `reduction` is None where no variable is reduced. `text` is the assignment as written.
    """

    output: Access
    expression: Expression
    reduction: str | None
    where: tuple[Condition, ...]
    text: str

    @property
    def name(self) -> str:
        """An Einsum is called by the tensor it makes."""
        return self.output.tensor

    @cached_property
    def inputs(self) -> tuple[Access, ...]:
        """Operands in the order written, equal ones once."""
        return tuple(dict.fromkeys(node for node in walk(self.expression) if isinstance(node, Access)))

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The iteration space: output variables first, then the reduced ones."""
        accesses = (self.output, *self.inputs)
        return tuple(dict.fromkeys(variable for access in accesses for variable in access.variables))

    @cached_property
    def reduced(self) -> tuple[str, ...]:
        """Variables of the iteration space that the output does not have."""
        return tuple(variable for variable in self.variables if variable not in self.output.variables)

    @cached_property
    def operators(self) -> tuple[str, ...]:
        """What one point of the iteration space computes, in order of evaluation; a reduction by sum is an `add`."""
        mapped = [node.operator for node in walk(self.expression) if isinstance(node, Operation)]
        if self.reduced:
            mapped.append("add" if self.reduction == "sum" else str(self.reduction))
        return tuple(mapped)

    def reads(self, tensor: str) -> bool:
        """Whether a tensor is an operand."""
        return any(access.tensor == tensor for access in self.inputs)

    @property
    def is_view(self) -> bool:
        """Whether it only gives a tensor another shape, which moves and computes nothing."""
        return isinstance(self.expression, Access) and not self.reduced and not self.where

    def __str__(self) -> str:
        return self.text


def walk(expression: Expression) -> Iterator[Expression]:
    """Every node of an expression, operands before the operation that uses them."""
    if isinstance(expression, Operation):
        for operand in expression.operands:
            yield from walk(operand)
    yield expression


def variables_in(expression: Expression) -> frozenset[str]:
    """Rank variables that an expression depends on."""
    return frozenset(variable for node in walk(expression) if isinstance(node, Access) for variable in node.variables)


def evaluate_index(index: Affine, values: Mapping[str, Any], shapes: Mapping[str, Any]) -> Any:
    """The coordinate an index points to, for values of its variables and shapes of its ranks."""
    scaled = sum(scale.evaluate(shapes) * values[variable] for variable, scale in index.terms)
    return scaled + index.offset.evaluate(shapes)


def write_expression(expression: Expression) -> str:
    """An expression as it is parsed."""
    return _written(expression, 0)


def _written(expression: Expression, tightness: int) -> str:
    if isinstance(expression, Access):
        return str(expression)
    if isinstance(expression, Size):
        return expression.rank
    if isinstance(expression, Literal):
        return f"{expression.value:g}"
    signs = {name: sign for sign, name in INFIX.items()}
    if expression.operator in signs:
        own = 1 if expression.operator in ("add", "sub") else 2
        left, right = (_written(side, own + number) for number, side in enumerate(expression.operands))
        text = f"{left} {signs[expression.operator]} {right}"
        return f"({text})" if own < tightness else text
    if expression.operator == "neg":
        return f"-{_written(expression.operands[0], 3)}"
    return f"{expression.operator}({', '.join(_written(operand, 0) for operand in expression.operands)})"


def write_einsum(output: Access, expression: Expression, reduction: str | None, reduced: tuple[str, ...]) -> str:
    """An Einsum as it is parsed; a reduction by sum is left to be implied."""
    body = write_expression(expression)
    if reduction in (None, "sum"):
        return f"{output} = {body}"
    return f"{output} = {'_'.join((str(reduction), *reduced))}({body})"
