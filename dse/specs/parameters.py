"""Named parameters that refer to each other: parsed where they stand, resolved in the order they need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.specs.quantity import COUNT, DIMENSION_NAMES, Dimension, Expression, Quantity, QuantityError, parse_expression
from dse.specs.source import Key, Source
from dse.wording import allowed

SMALLEST_RATE = 1e-9
"""No rate, in base units, is smaller: what takes as long is no design."""

LARGEST_SIZE = 2**53
"""No size, count or factor is larger: above it floats stop being exact."""


@dataclass(frozen=True)
class Located:
    """An expression and the place it stands, so that what goes wrong later names its line."""

    expression: Expression
    source: Source
    key: Key

    @property
    def name(self) -> str:
        """What the expression is the value of: the last word of its key."""
        return next(str(part) for part in reversed(self.key) if isinstance(part, str))

    def evaluate(self, values: Mapping[str, Quantity], dimension: Dimension | None = None) -> Any:
        """The value, of the dimension expected. Raises SpecError."""
        return self.quantity(values, dimension).value

    def quantity(self, values: Mapping[str, Quantity], dimension: Dimension | None = None) -> Quantity:
        """The quantity, of the dimension expected. Raises SpecError."""
        try:
            found = self.expression.evaluate(values)
        except QuantityError as error:
            raise self.source.error(self.key, f"{self.name}: {error}") from None
        if dimension is not None:
            self.check_dimension(found, dimension)
        return found

    def check_dimension(self, found: Quantity, dimension: Dimension) -> None:
        """Refuse a quantity for this place of another dimension. Raises SpecError."""
        if found.dimension != dimension:
            got = DIMENSION_NAMES.get(found.dimension, "another kind of quantity")
            raise self.source.error(
                self.key, f"{self.name} takes {DIMENSION_NAMES[dimension]}, found {got}: {self.expression.text!r}"
            )

    def size(self, values: Mapping[str, Quantity], dimension: Dimension = COUNT) -> Any:
        """A positive whole number (or array of them) in base units. Raises SpecError."""
        value = self.evaluate(values, dimension)
        self.check_size(value)
        return value

    def check_size(self, value: Any) -> None:
        """Refuse a value for this place that is no positive whole number. Raises SpecError."""
        if isinstance(value, int) and 1 <= value <= LARGEST_SIZE:
            return
        sizes = np.asarray(value)
        if sizes.min() < 1 or sizes.max() > LARGEST_SIZE or not np.array_equal(sizes, np.floor(sizes)):
            shown = str(value) if np.ndim(value) == 0 else "an array with such a value"
            origin = "" if shown == self.expression.text else f" from {self.expression.text!r}"
            raise self.source.error(self.key, f"{self.name} is a whole number from 1 to 2^53, found {shown}{origin}")

    def not_negative(self, values: Mapping[str, Quantity]) -> Any:
        """A plain number of 0 or more. Raises SpecError."""
        value = self.evaluate(values, COUNT)
        if np.any(np.asarray(value) < 0):
            raise self.source.error(self.key, f"{self.name} is 0 or more, found {value} from {self.expression.text!r}")
        return value

    def positive(self, values: Mapping[str, Quantity], dimension: Dimension) -> Any:
        """A positive number in base units, not vanishingly small. Raises SpecError."""
        value = self.evaluate(values, dimension)
        if np.any(np.asarray(value) < SMALLEST_RATE):
            raise self.source.error(
                self.key, f"{self.name} is {SMALLEST_RATE:g} at least, found {self.expression.text!r} = {value}"
            )
        return value


def locate(written: object, source: Source, key: Key) -> Located:
    """Parse an expression where it stands. Raises SpecError."""
    try:
        return Located(parse_expression(written), source, key)
    except QuantityError as error:
        raise source.error(key, f"{key[-1]}: {error}") from None


def resolve(
    parameters: Mapping[str, Located], outer: Mapping[str, Quantity], overrides: Mapping[str, Quantity] | None = None
) -> dict[str, Quantity]:
    """Values of `parameters`, each replaced by its override where there is one; they see each other and `outer`.

    Raises SpecError for a cycle, an unknown name, or an override of another dimension.
    """
    found: dict[str, Quantity] = {}
    overrides = overrides or {}

    def value_of(name: str, chain: tuple[str, ...]) -> Quantity:
        located = parameters[name]
        if name in found:
            return found[name]
        if name in chain:
            cycle = " -> ".join((*chain[chain.index(name) :], name))
            raise located.source.error(located.key, f"{name} depends on itself: {cycle}")
        needed = located.expression.names
        for other in sorted(needed - set(parameters) - set(outer)):
            raise located.source.error(
                located.key, f"{name}: unknown parameter {other!r}; {allowed(other, {*parameters, *outer})}"
            )
        seen = {other: value_of(other, (*chain, name)) if other in parameters else outer[other] for other in needed}
        own = located.quantity(seen)
        given = overrides.get(name, own)
        if given.dimension != own.dimension:
            raise located.source.error(
                located.key, f"{name} is {DIMENSION_NAMES.get(own.dimension)}, and was set to another kind of quantity"
            )
        found[name] = given
        return given

    for name in parameters:
        value_of(name, ())
    return found
