"""Text of extended Einsums -> `Einsum`. The grammar, whole:

einsum    := access "=" (reduction | sum) [ "where" condition { "and" condition } ]
reduction := ("sum" | "max" | "min") { "_" variable } "(" sum ")"
sum       := product { ("+" | "-") product }
product   := factor { ("*" | "/") factor }
factor    := number | "inf" | Rank | "-" factor | access | function "(" sum { "," sum } ")" | "(" sum ")"
access    := Tensor [ "[" index { "," index } "]" ]
index     := affine combination of variables (m, m1), rank shapes (M, M1) and integers
condition := index ("<=" | "<" | ">=" | ">" | "==" | "!=") index
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dse.cascade.einsum import (
    FUNCTIONS,
    INFIX,
    REDUCTIONS,
    Access,
    Affine,
    Condition,
    Einsum,
    Expression,
    Literal,
    Operation,
    Size,
)
from dse.cascade.polynomial import Polynomial
from dse.wording import allowed

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)|(?P<name>[A-Za-z]\w*)|(?P<sign><=|>=|==|!=|[-+*/=<>,()\[\]]))"
)
_RELATIONS = ("<=", "<", ">=", ">", "==", "!=")
_MAX_NESTING = 50
_MAX_TOKENS = 400
_MAX_DIGITS = 15


class CascadeError(ValueError):
    """A cascade that cannot be: says what was found and what is allowed. `text` is the Einsum it stands in."""

    def __init__(self, message: str, text: str = "") -> None:
        super().__init__(f"{message} (in '{text}')" if text else message)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    column: int


def parse_einsum(text: str, ranks: frozenset[str] = frozenset()) -> Einsum:
    """Parse one assignment, e.g. `LM[m1,p] = max_m0(BQK[m1,m0,p])`; names of `ranks` alone are their shapes.

    Raises CascadeError.
    """
    return _Parser(text, ranks).einsum()


def parse_access(text: str) -> Access:
    """Parse one tensor access, e.g. `Q[b,h,e,p]`. Raises CascadeError."""
    parser = _Parser(text)
    access = parser.access()
    parser.end()
    return access


class _Parser:
    """Recursive descent over the tokens of one text; each method reads one rule of the grammar."""

    def __init__(self, text: str, ranks: frozenset[str] = frozenset()) -> None:
        self.text = text
        self.ranks = ranks
        self.tokens = self._tokenize()
        self.position = 0
        self.nesting = 0

    def _tokenize(self) -> list[_Token]:
        tokens, column = [], 0
        stripped = self.text.rstrip()
        while column < len(stripped):
            match = _TOKEN.match(stripped, column)
            if match is None or match.lastgroup is None:
                raise CascadeError(f"unexpected character {stripped[column:].strip()[:1]!r}", self.text)
            tokens.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup) + 1))
            column = match.end()
        if len(tokens) > _MAX_TOKENS:
            raise CascadeError(f"{len(tokens)} words and signs; an Einsum has at most {_MAX_TOKENS}")
        return [*tokens, _Token("end", "the end", len(stripped) + 1)]

    @property
    def next(self) -> _Token:
        return self.tokens[self.position]

    def error(self, expected: str) -> CascadeError:
        return CascadeError(f"column {self.next.column}: found {self.next.text!r}, expected {expected}", self.text)

    def take(self, *signs: str) -> str | None:
        if self.next.text not in signs or self.next.kind == "end":
            return None
        self.position += 1
        return self.tokens[self.position - 1].text

    def expect(self, sign: str) -> None:
        if self.take(sign) is None:
            raise self.error(f"{sign!r}")

    def end(self) -> None:
        if self.next.kind != "end":
            raise self.error("the end")

    def einsum(self) -> Einsum:
        output = self.access()
        self.expect("=")
        head, after = self.next, self.tokens[min(self.position + 1, len(self.tokens) - 1)]
        operator: str | None = None
        named: tuple[str, ...] = ()
        if head.kind == "name" and after.text == "(" and "_" in head.text:
            operator, *rest = head.text.split("_")
            named = tuple(rest)
            if operator not in REDUCTIONS:
                raise CascadeError(
                    f"unknown reduction {operator!r} in {head.text!r}; {allowed(operator, REDUCTIONS)}", self.text
                )
            self.position += 1
            self.expect("(")
            expression = self.sum()
            self.expect(")")
        else:
            expression = self.sum()
        where = self.conditions() if self.take("where") else ()
        self.end()
        einsum = Einsum(output, expression, None, where, " ".join(self.text.split()))
        reduced = einsum.reduced
        if operator is not None:
            for variable in named:
                if variable in output.variables:
                    raise CascadeError(f"{head.text} reduces {variable!r}, which the output {output} keeps", self.text)
            if set(named) != set(reduced):
                raise CascadeError(
                    f"{head.text} must name the variables missing on the left: {', '.join(reduced) or 'none are'}",
                    self.text,
                )
        return Einsum(output, expression, (operator or "sum") if reduced else None, where, einsum.text)

    def conditions(self) -> tuple[Condition, ...]:
        found: list[Condition] = []
        while True:
            left = self.index()
            relation = self.take(*_RELATIONS)
            if relation is None:
                raise self.error("a comparison: " + " ".join(_RELATIONS))
            found.append(Condition(left, relation, self.index()))
            if self.take("and") is None:
                return tuple(found)

    def sum(self) -> Expression:
        self.nesting += 1
        if self.nesting > _MAX_NESTING:
            raise CascadeError(f"nested more than {_MAX_NESTING} deep", self.text)
        left = self.product()
        while sign := self.take("+", "-"):
            left = Operation(INFIX[sign], (left, self.product()))
        self.nesting -= 1
        return left

    def product(self) -> Expression:
        left = self.factor()
        while sign := self.take("*", "/"):
            left = Operation(INFIX[sign], (left, self.factor()))
        return left

    def factor(self) -> Expression:
        if self.take("-"):
            self.nesting += 1
            inner = self.factor() if self.nesting <= _MAX_NESTING else self.sum()
            self.nesting -= 1
            return Literal(-inner.value) if isinstance(inner, Literal) else Operation("neg", (inner,))
        if self.take("("):
            inner = self.sum()
            self.expect(")")
            return inner
        token = self.next
        if token.kind == "number" or token.text == "inf":
            self.position += 1
            return Literal(float(token.text))
        if token.kind != "name":
            raise self.error("a tensor, a number or a function")
        following = self.tokens[self.position + 1].text
        if following == "(":
            return self.function()
        if token.text in self.ranks and following != "[":
            self.position += 1
            return Size(token.text)
        return self.access()

    def function(self) -> Operation:
        name = self.next.text
        if name.split("_")[0] in REDUCTIONS and "_" in name:
            raise CascadeError(f"{name}(...) must be the whole right side; give it an Einsum of its own", self.text)
        if name not in FUNCTIONS:
            raise CascadeError(f"unknown operator {name!r}; {allowed(name, FUNCTIONS)}", self.text)
        self.position += 1
        self.expect("(")
        operands = [self.sum()]
        while self.take(","):
            operands.append(self.sum())
        self.expect(")")
        if len(operands) != FUNCTIONS[name]:
            raise CascadeError(f"{name} takes {FUNCTIONS[name]} operand(s), found {len(operands)}", self.text)
        return Operation(name, tuple(operands))

    def access(self) -> Access:
        token = self.next
        if token.kind != "name":
            raise self.error("a tensor such as Q[e,p]")
        self.position += 1
        indices: list[Affine] = []
        if self.take("["):
            indices.append(self.index())
            while self.take(","):
                indices.append(self.index())
            self.expect("]")
        return Access(token.text, tuple(indices))

    def index(self) -> Affine:
        scales: dict[str, Polynomial] = {}
        offset = Polynomial()
        sign = -1 if self.take("-") else 1
        while True:
            variable, scale = self.index_term()
            scale = scale if sign > 0 else -scale
            if variable is None:
                offset = offset + scale
            else:
                scales[variable] = scales.get(variable, Polynomial()) + scale
            operator = self.take("+", "-")
            if operator is None:
                return Affine(tuple(scales.items()), offset)
            sign = 1 if operator == "+" else -1

    def index_term(self) -> tuple[str | None, Polynomial]:
        variable: str | None = None
        scale = Polynomial.of(1)
        while True:
            token = self.next
            if token.kind == "number" and token.text.isdigit() and len(token.text) <= _MAX_DIGITS:
                scale = scale * Polynomial.of(int(token.text))
            elif token.kind == "name" and token.text[0].isupper():
                scale = scale * Polynomial.of(token.text)
            elif token.kind == "name" and variable is None:
                variable = token.text
            elif token.kind == "name":
                raise CascadeError(f"an index is affine: {variable}*{token.text} multiplies two variables", self.text)
            else:
                raise self.error("a variable (m), a rank shape (M) or an integer")
            self.position += 1
            if self.take("*") is None:
                return variable, scale
