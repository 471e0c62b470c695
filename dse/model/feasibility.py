"""Which design points can exist, and what is said of one that cannot; whole numbers and divisors with it."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.specs.parameters import LARGEST_SIZE, Located
from dse.specs.quantity import COUNT, Quantity
from dse.specs.source import SpecError


@dataclass
class Feasibility:
    """Collects which design points can exist; `points` is True or a boolean array. Trial sizes are not `checked`."""

    checked: bool = True
    points: bool | NDArray[np.bool_] = True

    def require(self, holds: Callable[[], Any], error: Callable[[], SpecError]) -> None:
        """Demand a condition: raises `error()` where it fails for the only point, else marks the points that fail."""
        if not self.checked:
            return
        met = np.asarray(holds())
        if np.all(met):
            return
        if met.ndim == 0:
            raise error()
        self.points = self.points & met


def whole_number(located: Located, values: Mapping[str, Quantity], feasibility: Feasibility) -> Any:
    """A loop bound, or the number that one divides: whole and at least 1, else the point cannot exist."""
    value = located.evaluate(values, COUNT)
    if isinstance(value, int) and 1 <= value <= LARGEST_SIZE:
        return value
    feasibility.require(
        lambda: (value >= 1) & (value == np.floor(value)) & (value <= LARGEST_SIZE),
        lambda: located.source.error(located.key, _not_whole(located, values, value)),
    )
    whole = np.clip(np.floor(value), 1, LARGEST_SIZE).astype(np.int64)
    return whole if whole.ndim else int(whole)


def _not_whole(located: Located, values: Mapping[str, Quantity], value: Any) -> str:
    expression = located.expression
    parts = ", ".join(f"{name} = {values[name].value}" for name in sorted(expression.names))
    text = f"{expression.text} = {value:g} is no whole number from 1 to 2^53" + (f" ({parts})" if parts else "")
    match expression.body:
        case ast.BinOp(left=ast.Name(id=left), op=ast.Div(), right=ast.Name(id=right)):
            text += f"; nearest divisors of {left}: {nearest_divisors(values[left].value, values[right].value)}"
    return text


def indivisible(size: Any, factor: Any, rank: str, what: str) -> str:
    """Says that a rank does not divide by a factor, and what it does divide by."""
    if np.ndim(size) or np.ndim(factor):
        return f"{rank} does not divide by {what}"
    return f"{rank} = {size} does not divide by {factor} ({what}); nearest divisors: {nearest_divisors(size, factor)}"


def nearest_divisors(number: int, factor: float) -> str:
    """The divisors of a number just below and just above a factor, as `64 and 128`."""
    small = [divisor for divisor in range(1, min(math.isqrt(number), 10**6) + 1) if number % divisor == 0]
    divisors = sorted({*small, *(number // divisor for divisor in small)})
    below = [divisor for divisor in divisors if divisor < factor][-1:]
    above = [divisor for divisor in divisors if divisor > factor][:1]
    return " and ".join(str(divisor) for divisor in (*below, *above))


def largest_divisor(number: Any, limit: Any) -> Any:
    """The largest divisor of `number` that is at most `limit` (1 or more). Arrays broadcast."""
    return _by_divisors(number, limit, lambda divisors, limits: np.searchsorted(divisors, limits, side="right") - 1)


def next_divisor(number: Any, divisor: Any) -> Any:
    """The divisor of `number` above `divisor`, or the number itself. Arrays broadcast."""
    return _by_divisors(
        number, divisor, lambda divisors, at: np.minimum(np.searchsorted(divisors, at, side="right"), len(divisors) - 1)
    )


def nth_divisor(number: Any, places: Any) -> Any:
    """The divisor of `number` at a place in their order, from 0. Arrays broadcast."""
    return _by_divisors(number, places, lambda divisors, at: at.astype(np.int64))


def divisor_counts(number: Any) -> Any:
    """How many divisors `number` has. Arrays keep their shape."""
    return np.vectorize(lambda value: len(divisors_of(int(value))), otypes=[np.int64])(number)


def _by_divisors(number: Any, values: Any, place: Callable[[NDArray[np.int64], NDArray[np.float64]], Any]) -> Any:
    """The divisor of each number at the place that `place` finds for the value beside it."""
    numbers, beside = np.broadcast_arrays(np.asarray(number, dtype=np.int64), np.asarray(values, dtype=np.float64))
    found = np.empty(numbers.shape, dtype=np.int64)
    for value in np.unique(numbers):
        chosen = numbers == value
        divisors = divisors_of(int(value))
        found[chosen] = divisors[place(divisors, beside[chosen])]
    return int(found) if found.ndim == 0 else found


@cache
def divisors_of(number: int) -> NDArray[np.int64]:
    """All divisors of a number, in ascending order."""
    small = np.arange(1, math.isqrt(number) + 1)
    small = small[number % small == 0]
    return np.unique(np.concatenate([small, number // small]))
