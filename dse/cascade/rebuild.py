"""Putting a cascade together again after a rewrite: new names, iterations with their starts and ends, every check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dse.cascade.cascade import Cascade, check_einsum, check_iterations, rank_of
from dse.cascade.einsum import Access, Affine, Einsum, Expression, write_einsum
from dse.cascade.parser import parse_einsum
from dse.cascade.passes import families
from dse.cascade.polynomial import Polynomial


def steps_of(variable: str) -> tuple[Affine, Affine, Affine]:
    """The indices of this step of an iteration, of the next, and of the last."""
    one = Polynomial.of(1)
    now = Affine(((variable, one),), Polynomial())
    return now, replace(now, offset=one), Affine((), Polynomial.of(rank_of(variable)))


def at_start(access: Access) -> str:
    """A tensor at the start of its iteration, which is its last index."""
    return str(Access(access.tensor, (*access.indices[:-1], Affine((), Polynomial.of(0)))))


def reassembled(
    cascade: Cascade, new: dict[str, list[Einsum]], ends: Sequence[Einsum], starts: Sequence[Einsum], variable: str
) -> Cascade:
    """The cascade with Einsums replaced; what an iteration ends with follows its last Einsum, then all that needs it."""
    last = max(number for number, each in enumerate(cascade.einsums) if each.name in new)
    waiting = {each.name for each in ends}
    einsums: list[Einsum] = []
    later: list[Einsum] = []
    for number, each in enumerate(cascade.einsums):
        if each.name in new:
            einsums += new[each.name]
        elif number < last and any(access.tensor in waiting for access in each.inputs):
            waiting.add(each.name)
            later.append(each)
        else:
            einsums.append(each)
        if number == last:
            einsums += [*ends, *later]
    iterative = {**cascade.iterative, variable: rank_of(variable)}
    return replace(cascade, einsums=tuple(einsums), initial=(*cascade.initial, *starts), iterative=iterative)


def without_unused(cascade: Cascade, names: Sequence[str]) -> Cascade:
    """The cascade without those of the named Einsums that nothing reads any more."""
    kept = [
        each
        for each in cascade.einsums
        if each.name not in names or any(other.reads(each.name) for other in cascade.einsums)
    ]
    return replace(cascade, einsums=tuple(kept))


def build_einsum(output: Access, expression: Expression, reduction: str | None, cascade: Cascade) -> Einsum:
    """An Einsum through its text, so that what is written is what is meant."""
    probe = Einsum(output, expression, reduction, (), "")
    text = write_einsum(output, expression, reduction, probe.reduced)
    return parse_einsum(text, frozenset((*cascade.ranks, *families(cascade))))


def fresh_name(cascade: Cascade, name: str) -> str:
    """A name that no tensor has: `name`, with an X or more where it is taken."""
    taken = {access.tensor for access in cascade.inputs} | {einsum.name for einsum in cascade.einsums}
    while name in taken:
        name += "X"
    return name


def checked(cascade: Cascade) -> Cascade:
    """The same cascade, once every check that a written one passes has passed."""
    for number in range(len(cascade.einsums)):
        check_einsum(cascade, number)
    check_iterations(cascade)
    return cascade
