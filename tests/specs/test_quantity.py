"""Quantities: units, arithmetic over parameters, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.specs.quantity import (
    BANDWIDTH,
    COUNT,
    FREQUENCY,
    INFORMATION,
    Dimension,
    Quantity,
    QuantityError,
    number,
    parse_expression,
)


@pytest.mark.parametrize(
    ("text", "value", "dimension"),
    [
        ("16 MiB", 16 * 2**20 * 8, INFORMATION),
        ("16MiB", 16 * 2**20 * 8, INFORMATION),
        ("4096 bit", 4096, INFORMATION),
        ("400 GiB/s", 400 * 2**30 * 8, BANDWIDTH),
        ("1.5 GB/s", 12 * 10**9, BANDWIDTH),
        ("940 MHz", 940 * 10**6, FREQUENCY),
        ("1K", 1024, COUNT),
        ("1 M", 2**20, COUNT),
        ("64K", 65536, COUNT),
        ("2**10 - 24", 1000, COUNT),
        ("min(3, max(7, 5))", 3, COUNT),
        ("7 // 2 + 7 % 2", 4, COUNT),
        ("10 ns", 1e-8, Dimension(0, 1)),
        (12, 12, COUNT),
    ],
)
def test_text_is_a_value_with_a_dimension(text: object, value: float, dimension: Dimension) -> None:
    found = number(text)
    assert found == Quantity(value, dimension)
    assert isinstance(found.value, int) == isinstance(value, int)


def test_expressions_name_parameters_and_carry_their_dimensions() -> None:
    expression = parse_expression("16*cols bit")
    assert expression.names == {"cols"}
    assert expression.evaluate({"cols": Quantity(256)}) == Quantity(4096, INFORMATION)
    speed = parse_expression("buffer * clock").evaluate({"buffer": number("1 B"), "clock": number("2 Hz")})
    assert speed == Quantity(16, BANDWIDTH)


def test_arrays_go_through_and_large_products_become_floats() -> None:
    rows = Quantity(np.array([2, 3]))
    assert parse_expression("rows * rows").evaluate({"rows": rows}).value.tolist() == [4, 9]
    assert parse_expression("P / rows").evaluate({"rows": rows, "P": Quantity(12)}).value.tolist() == [6, 4]
    large = parse_expression("rows * rows / rows").evaluate({"rows": Quantity(np.array([2**40, 2**41]))}).value
    assert large.tolist() == [2.0**40, 2.0**41]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1/0", "divides by zero"),
        ("9**9**9", "an exponent up to 64"),
        ("10**30", "not finite or larger"),
        ("__import__('os')", "holds more than arithmetic"),
        ("().__class__", "holds more than arithmetic"),
        ("[1]", "holds more than arithmetic"),
        ("lambda: 1", "holds more than arithmetic"),
        ("1 if 1 else 2", "holds more than arithmetic"),
        ("'a' * 9", "holds more than arithmetic"),
        ("True", "holds more than arithmetic"),
        ("16 MiB + 940 MHz", "is no expression"),
        ("max(1)", "max takes 2 value(s), found 1"),
        ("3 potatoes", "is no expression"),
        ("", "1 to 200 characters"),
        ("1" * 300, "1 to 200 characters"),
        (None, "expected a number or an expression, found None"),
        (float("nan"), "expected a number"),
        ("rows", "expected a number with its unit, such as 64K or 16 MiB, found 'rows'"),
    ],
)
def test_what_is_no_quantity_is_refused(text: object, message: str) -> None:
    with pytest.raises(QuantityError) as raised:
        number(text)
    assert message in str(raised.value)


def test_different_kinds_of_quantity_do_not_add() -> None:
    values = {"a": number("1 B"), "b": number("1 Hz")}
    with pytest.raises(QuantityError, match="adds an amount of data .* to a frequency"):
        parse_expression("a + b").evaluate(values)
    with pytest.raises(QuantityError, match="gives a unit to an amount of data"):
        parse_expression("a MiB").evaluate(values)


@given(st.text(max_size=30))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    try:
        number(text)
    except QuantityError as error:
        assert str(error)
