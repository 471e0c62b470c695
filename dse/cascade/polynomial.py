"""Integer polynomials in rank shapes, such as `M1*M0 + 2`: the scales and offsets of tensor indices.

Symbolic where a shape is not known yet, a number once `evaluate` is given the shapes (which may be arrays).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

Monomial = tuple[str, ...]


@dataclass(frozen=True)
class Polynomial:
    """A sum of integer multiples of products of symbols: `terms` maps ("M0", "P") -> 2 for 2*M0*P."""

    terms: tuple[tuple[Monomial, int], ...] = ()

    @staticmethod
    def of(value: int | str) -> Polynomial:
        """The polynomial of one integer or one symbol."""
        return Polynomial.collect({(value,): 1} if isinstance(value, str) else {(): value})

    @staticmethod
    def product(symbols: Iterable[str]) -> Polynomial:
        """The product of symbols; 1 of none."""
        return Polynomial.collect({tuple(sorted(symbols)): 1})

    @staticmethod
    def collect(terms: Mapping[Monomial, int]) -> Polynomial:
        """The polynomial of these terms, in one canonical order and without zeros."""
        return Polynomial(tuple(sorted((monomial, factor) for monomial, factor in terms.items() if factor)))

    def __add__(self, other: Polynomial) -> Polynomial:
        terms = dict(self.terms)
        for monomial, factor in other.terms:
            terms[monomial] = terms.get(monomial, 0) + factor
        return Polynomial.collect(terms)

    def __mul__(self, other: Polynomial) -> Polynomial:
        terms: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in other.terms:
                monomial = tuple(sorted((*left, *right)))
                terms[monomial] = terms.get(monomial, 0) + a * b
        return Polynomial.collect(terms)

    def __neg__(self) -> Polynomial:
        return Polynomial(tuple((monomial, -factor) for monomial, factor in self.terms))

    def __bool__(self) -> bool:
        return bool(self.terms)

    @cached_property
    def symbols(self) -> frozenset[str]:
        """The symbols that occur."""
        return frozenset(symbol for monomial, _ in self.terms for symbol in monomial)

    def evaluate(self, shapes: Mapping[str, Any]) -> Any:
        """The value where every symbol has the given shape (integers or arrays that broadcast)."""
        if not self.symbols:
            return sum(factor for _, factor in self.terms)
        return sum(factor * math.prod(shapes[symbol] for symbol in monomial) for monomial, factor in self.terms)

    def __str__(self) -> str:
        parts = []
        for monomial, factor in self.terms:
            body = "*".join(monomial)
            parts.append(body if body and factor == 1 else f"{factor}*{body}" if body else str(factor))
        return " + ".join(parts).replace("+ -", "- ") or "0"
