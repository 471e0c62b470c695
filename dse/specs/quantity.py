"""Numbers with units and arithmetic over named parameters: `16 MiB`, `400 GiB/s`, `16*cols bit`, `P / P0`.

An expression is parsed once, through Python's own grammar, and walked over a short list of node types; it cannot name
anything but parameters. Values may be arrays, so one expression serves a whole sweep.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np


class Dimension(NamedTuple):
    """Powers of bit, second and nanometre that a quantity carries."""

    bits: int = 0
    seconds: int = 0
    nanometres: int = 0


COUNT, INFORMATION, FREQUENCY, BANDWIDTH = Dimension(), Dimension(1), Dimension(0, -1), Dimension(1, -1)
LENGTH = Dimension(0, 0, 1)
DIMENSION_NAMES = {
    COUNT: "a plain number",
    INFORMATION: "an amount of data (bit, B, KiB, MiB, GiB)",
    FREQUENCY: "a frequency (Hz, kHz, MHz, GHz)",
    BANDWIDTH: "a bandwidth (B/s, MiB/s, GiB/s, GB/s)",
    Dimension(0, 1): "a time (s, ms, us, ns)",
    LENGTH: "a length (nm)",
}

_BYTES = {
    "B": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
UNITS: Mapping[str, tuple[float, Dimension]] = {
    "bit": (1, INFORMATION),
    **{name: (8 * size, INFORMATION) for name, size in _BYTES.items()},
    **{f"{name}/s": (8 * size, BANDWIDTH) for name, size in _BYTES.items()},
    **{name: (size, FREQUENCY) for name, size in (("Hz", 1), ("kHz", 10**3), ("MHz", 10**6), ("GHz", 10**9))},
    **{name: (size, Dimension(0, 1)) for name, size in (("s", 1), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))},
    "nm": (1, LENGTH),
    "K": (2**10, COUNT),
    "M": (2**20, COUNT),
    "G": (2**30, COUNT),
}
"""Unit -> (size in bits, seconds and nanometres, dimension). K, M, G count in powers of two, as sequence lengths do."""

LARGEST = 1e18
MAX_LENGTH = 200

_UNIT_AT_END = re.compile(
    rf"^(?P<number>.*[\w)])\s*?(?P<gap>\s|(?<=\d))(?P<unit>{'|'.join(sorted(map(re.escape, UNITS), key=len, reverse=True))})$"
)


class QuantityError(ValueError):
    """Text that is no quantity; says what was found and what is allowed."""


@dataclass(frozen=True)
class Quantity:
    """A number or an array, and its dimension."""

    value: Any
    dimension: Dimension = COUNT


FUNCTIONS: Mapping[str, tuple[int, Callable[..., Any]]] = {
    "min": (2, np.minimum),
    "max": (2, np.maximum),
    "ceil": (1, np.ceil),
    "floor": (1, np.floor),
    "log2": (1, np.log2),
    "sqrt": (1, np.sqrt),
}
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b if _fits(a, b) else np.asarray(a, dtype=np.float64) * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Pow: lambda a, b: a**b,
}


@dataclass(frozen=True)
class Expression:
    """A parsed expression: its text, its unit (None if it has none) and the parameters it names."""

    text: str
    body: ast.expr
    unit: str | None
    names: frozenset[str]

    def evaluate(self, values: Mapping[str, Quantity]) -> Quantity:
        """The quantity where its parameters have these values. Raises QuantityError."""
        try:
            with np.errstate(all="ignore"):
                result = _evaluate(self.body, values, self.text)
        except (OverflowError, TypeError, ZeroDivisionError):
            raise QuantityError(f"{self.text!r} cannot be computed: a value on the way is too large") from None
        if self.unit is not None:
            if result.dimension != COUNT:
                raise QuantityError(
                    f"{self.text!r} gives a unit to {DIMENSION_NAMES.get(result.dimension, 'a quantity that has one')}"
                )
            size, dimension = UNITS[self.unit]
            try:
                result = Quantity(_tidy(result.value * size), dimension)
            except OverflowError:
                raise QuantityError(f"{self.text!r} is not finite or larger than {LARGEST:g}") from None
        value = result.value
        if not (abs(value) <= LARGEST if isinstance(value, int | float) else np.all(np.abs(value) <= LARGEST)):
            raise QuantityError(f"{self.text!r} is not finite or larger than {LARGEST:g}")
        return result


def parse_expression(written: object) -> Expression:
    """Parse a number or text as an expression. Raises QuantityError."""
    if isinstance(written, bool) or not isinstance(written, int | float | str):
        raise QuantityError(f"expected a number or an expression, found {written!r:.60}")
    text = str(written).strip()
    if not text or len(text) > MAX_LENGTH:
        raise QuantityError(f"an expression has 1 to {MAX_LENGTH} characters, found {len(text)}")
    unit = None
    if match := _UNIT_AT_END.match(text):
        number, unit = match["number"].strip(), match["unit"]
    else:
        number = text
    try:
        with warnings.catch_warnings(action="ignore"):
            body = ast.parse(number, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise QuantityError(
            f"{text!r} is no expression; write e.g. 16 MiB, 2*rows or P / P0; units: {', '.join(UNITS)}"
        ) from None
    names = _check(body, text)
    return Expression(text, body, unit, frozenset(names))


def number(text: object) -> Quantity:
    """The quantity that text without parameters stands for, e.g. `64K`. Raises QuantityError."""
    expression = parse_expression(text)
    if expression.names:
        raise QuantityError(f"expected a number with its unit, such as 64K or 16 MiB, found {expression.text!r}")
    return expression.evaluate({})


def _check(node: ast.AST, text: str) -> set[str]:
    """The parameters named, once every node is of an allowed type."""
    match node:
        case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
            return set()
        case ast.Name():
            return {node.id}
        case ast.BinOp() if type(node.op) in _OPERATORS:
            return _check(node.left, text) | _check(node.right, text)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
            return _check(node.operand, text)
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in FUNCTIONS:
            if len(node.args) != FUNCTIONS[name][0]:
                raise QuantityError(f"{name} takes {FUNCTIONS[name][0]} value(s), found {len(node.args)} in {text!r}")
            return set().union(*(_check(argument, text) for argument in node.args))
        case _:
            raise QuantityError(
                f"{text!r} holds more than arithmetic; allowed: numbers, parameters, + - * / // % **, {', '.join(FUNCTIONS)}"
            )


def _evaluate(node: ast.AST, values: Mapping[str, Quantity], text: str) -> Quantity:
    match node:
        case ast.Constant():
            return Quantity(node.value)
        case ast.Name():
            if node.id not in values:
                raise QuantityError(
                    f"unknown parameter {node.id!r} in {text!r}; known: {', '.join(sorted(values)) or 'none'}"
                )
            return values[node.id]
        case ast.UnaryOp():
            inner = _evaluate(node.operand, values, text)
            return Quantity(-inner.value if isinstance(node.op, ast.USub) else inner.value, inner.dimension)
        case ast.BinOp():
            return _combine(
                type(node.op), _evaluate(node.left, values, text), _evaluate(node.right, values, text), text
            )
        case ast.Call(func=ast.Name(id=name)):
            operands = [_evaluate(argument, values, text) for argument in node.args]
            if len({operand.dimension for operand in operands}) > 1:
                raise QuantityError(f"{name} in {text!r} compares different kinds of quantity")
            return Quantity(_tidy(FUNCTIONS[name][1](*(operand.value for operand in operands))), operands[0].dimension)
    raise AssertionError("checked when parsed")


def _combine(operator: type[ast.operator], left: Quantity, right: Quantity, text: str) -> Quantity:
    if operator in (ast.Add, ast.Sub, ast.Mod) and left.dimension != right.dimension:
        raise QuantityError(
            f"{text!r} adds {DIMENSION_NAMES.get(left.dimension)} to {DIMENSION_NAMES.get(right.dimension)}"
        )
    if operator in (ast.Div, ast.FloorDiv, ast.Mod) and np.any(np.equal(right.value, 0)):
        raise QuantityError(f"{text!r} divides by zero")
    dimension = left.dimension
    if operator is ast.Mult:
        dimension = Dimension(*(a + b for a, b in zip(left.dimension, right.dimension, strict=True)))
    elif operator in (ast.Div, ast.FloorDiv):
        dimension = Dimension(*(a - b for a, b in zip(left.dimension, right.dimension, strict=True)))
    elif operator is ast.Pow:
        if (
            left.dimension != COUNT
            or right.dimension != COUNT
            or np.any(np.abs(right.value) > 64)
            or np.any(np.abs(left.value) > LARGEST)
        ):
            raise QuantityError(f"{text!r}: a power takes plain numbers and an exponent up to 64")
        left = Quantity(np.asarray(left.value, dtype=np.float64))
    return Quantity(_tidy(_OPERATORS[operator](left.value, right.value)), dimension)


def _fits(left: Any, right: Any) -> bool:
    """Whether a product of integer arrays stays inside int64 (Python integers always do)."""
    if not isinstance(left, np.ndarray) and not isinstance(right, np.ndarray):
        return True
    return float(np.max(np.abs(left), initial=0)) * float(np.max(np.abs(right), initial=0)) < 2**62


def _tidy(value: Any) -> Any:
    """Whole numbers as integers, Python's own for a single one."""
    if isinstance(value, int):
        return value
    if np.ndim(value) == 0:
        plain = value.item() if isinstance(value, np.generic | np.ndarray) else value
        whole = isinstance(plain, float) and math.isfinite(plain) and plain.is_integer() and abs(plain) < 2**53
        return int(plain) if whole else plain
    array = np.asarray(value)
    if array.dtype.kind != "f" or not np.all(np.abs(array) < 2**53):
        return array
    integers = array.astype(np.int64)
    return integers if np.array_equal(integers, array) else array


def written(value: Quantity) -> str:
    """A quantity as a spec says it."""
    size, unit = {
        COUNT: (1, ""), INFORMATION: (1, " bit"), FREQUENCY: (1, " Hz"), BANDWIDTH: (8, " B/s"), LENGTH: (1, " nm"),
    }[value.dimension]  # fmt: skip
    number = value.value / size if size > 1 else value.value
    return f"{int(number) if float(number).is_integer() else number!r}{unit}"
