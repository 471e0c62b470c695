"""How many operations a cascade does, by Einsum and operation: products of rank shapes, for any mapping."""

from __future__ import annotations

from dataclasses import dataclass

from dse.cascade.cascade import Cascade, rank_of
from dse.cascade.einsum import Einsum
from dse.cascade.polynomial import Polynomial

NAMES = {
    ("mul", "add"): "multiply-add",
    ("sub", "exp"): "subtract-exp",
    ("mul",): "multiply",
    ("add",): "add",
    ("sub",): "subtract",
    ("div",): "divide",
}
"""Operations by a name of their own; any other is its operators joined by a dash."""


@dataclass(frozen=True)
class OperationCount:
    """Operations of one Einsum: one per point of its iteration space, filters not counted off."""

    einsum: str
    operation: str
    count: Polynomial


def count_operations(cascade: Cascade) -> list[OperationCount]:
    """Operations of every Einsum that computes; a partitioned rank counts as the whole of it."""
    return [OperationCount(einsum.name, _name(einsum), _points(cascade, einsum)) for einsum in cascade.computed]


def _name(einsum: Einsum) -> str:
    return NAMES.get(einsum.operators) or "-".join(einsum.operators)


def _points(cascade: Cascade, einsum: Einsum) -> Polynomial:
    ranks = [rank_of(variable) for variable in einsum.variables]
    for rank, parts in cascade.partition.items():
        if set(parts) <= set(ranks):
            ranks = [rank, *(each for each in ranks if each not in parts)]
    return Polynomial.product(ranks)
