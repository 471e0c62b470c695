"""The language of extended Einsums: what each form means, and what its errors teach."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.cascade.einsum import Access, Literal, Operation, evaluate_index
from dse.cascade.parser import CascadeError, parse_access, parse_einsum
from dse.cascade.polynomial import Polynomial


def test_variables_missing_on_the_left_are_summed() -> None:
    einsum = parse_einsum("QK[m,p] = Q[e,p] * K[e,m]")
    assert (einsum.name, einsum.variables, einsum.reduced) == ("QK", ("m", "p", "e"), ("e",))
    assert einsum.reduction == "sum"
    assert einsum.operators == ("mul", "add")


def test_a_named_reduction_says_what_it_reduces() -> None:
    einsum = parse_einsum("LM[m1,p] = max_m0(BQK[m1,m0,p])")
    assert (einsum.reduction, einsum.reduced, einsum.operators) == ("max", ("m0",), ("max",))


def test_operators_come_in_order_of_evaluation() -> None:
    assert parse_einsum("SN[m,p] = exp(QK[m,p] - GM[p])").operators == ("sub", "exp")
    assert parse_einsum("Y[i] = A[i] * (B[i] + C[i]) / D[i]").operators == ("add", "mul", "div")
    assert parse_einsum("Y[i] = -A[i] - -2").operators == ("neg", "sub")


def test_several_operands_and_functions_of_two() -> None:
    einsum = parse_einsum("Z[i] = max(A[i], B[i]) * C[i] * A[i]")
    assert [str(access) for access in einsum.inputs] == ["A[i]", "B[i]", "C[i]"]


def test_affine_indices_evaluate_at_shapes() -> None:
    (index,) = parse_access("K[m1*M0+m0]").indices
    assert evaluate_index(index, {"m1": 3, "m0": 5}, {"M0": 8}) == 29
    (index,) = parse_access("I[2*p+r-1]").indices
    assert evaluate_index(index, {"p": 4, "r": 2}, {}) == 9
    assert str(index) == "2*p+r-1"


def test_shifted_constant_and_last_coordinates() -> None:
    shifted, constant, last = parse_access("RM[m1+1,0,M1]").indices
    assert shifted.variables == ("m1",)
    assert shifted.offset == Polynomial.of(1)
    assert not constant.variables
    assert not constant.offset
    assert last.offset == Polynomial.of("M1")


def test_initial_values_and_filters() -> None:
    initial = parse_einsum("RM[0,p] = -inf")
    assert initial.expression == Literal(float("-inf"))
    causal = parse_einsum("QK[m,p] = Q[e,p] * K[e,m] where m <= p and m > p-128")
    assert [str(condition) for condition in causal.where] == ["m <= p", "m > p-128"]


def test_precedence_and_parentheses() -> None:
    expression = parse_einsum("Z[i] = A[i] - B[i] * C[i]").expression
    assert isinstance(expression, Operation)
    assert expression.operator == "sub"
    assert isinstance(expression.operands[0], Access)
    assert parse_einsum("Z[i] = (A[i] - B[i]) * C[i]").operators == ("sub", "mul")


def test_a_view_moves_nothing() -> None:
    assert parse_einsum("BK[e,m1,m0] = K[e,m1*M0+m0]").is_view
    assert not parse_einsum("S[i] = A[i,j]").is_view
    assert not parse_einsum("S[i] = 2 * A[i]").is_view


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Z[i] = A[i", "column 11: found 'the end', expected ']'"),
        ("Z[i] = A[i] B[i]", "column 13: found 'B', expected the end"),
        ("Z[i] == A[i]", "column 6: found '==', expected '='"),
        ("Z[i] = maxx(A[i], B[i])", "unknown operator 'maxx'; did you mean 'max'?"),
        ("Z[i] = max(A[i])", "max takes 2 operand(s), found 1"),
        ("Z[i] = mxa_k(A[i,k])", "unknown reduction 'mxa' in 'mxa_k'; did you mean 'max'?"),
        ("Z[i] = max_j(A[i,k])", "max_j must name the variables missing on the left: k"),
        ("Z[i] = max_i(A[i])", "max_i reduces 'i', which the output Z[i] keeps"),
        ("Z[i] = 1 + max_k(A[i,k])", "max_k(...) must be the whole right side"),
        ("Z[i] = A[i*j]", "i*j multiplies two variables"),
        ("Z[i] = A[i] where i", "expected a comparison"),
        ("Z[i] = A[i] $ B[i]", "unexpected character '$'"),
        ("Z[i] = " + "(" * 80 + "A[i]" + ")" * 80, "nested more than 50 deep"),
        ("Z[i] = " + "-" * 80 + "A[i]", "nested more than 50 deep"),
        ("", "expected a tensor such as Q[e,p]"),
    ],
)
def test_errors_say_what_was_found_and_what_is_right(text: str, message: str) -> None:
    with pytest.raises(CascadeError) as raised:
        parse_einsum(text)
    assert message in str(raised.value)


@given(st.text(alphabet="AZimk01[](),=+-*/ maxexp_<>.", max_size=40))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        parse_einsum(text)
    except CascadeError as error:
        assert str(error)


@given(st.lists(st.tuples(st.sampled_from(["M", "P", "M0"]), st.integers(-3, 3)), max_size=4), st.integers(1, 9))
def test_polynomials_are_a_ring_that_evaluation_respects(terms: list[tuple[str, int]], size: int) -> None:
    shapes = {"M": size, "P": size + 1, "M0": 2}
    left, right = Polynomial(), Polynomial.of(1)
    for symbol, factor in terms:
        left = left + Polynomial.of(symbol) * Polynomial.of(factor)
        right = right * (Polynomial.of(symbol) + Polynomial.of(factor))
    value = sum(shapes[symbol] * factor for symbol, factor in terms)
    assert left.evaluate(shapes) == value
    assert (left * right).evaluate(shapes) == value * right.evaluate(shapes)
    assert (left + -left) == Polynomial()
