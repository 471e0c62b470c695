"""A cascade: Einsums in order, the tensors they share, and the checks that make it one program.

Shapes are not known here; a rank is the upper-case form of its variable (`m1` runs over `M1`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from dse.cascade.einsum import Access, Einsum
from dse.cascade.parser import CascadeError
from dse.cascade.polynomial import Polynomial


@dataclass(frozen=True)
class Cascade:
    """A checked sequence of Einsums.

    `inputs` are the tensors it is given, declared with their ranks; `initial` sets coordinates of iterative tensors
    before the first Einsum; `iterative` maps a variable that steps in order to the rank it ends at. `partition` maps a
    rank to the ranks it is split into, outermost first (`M: (M1, M0)`).
    """

    inputs: tuple[Access, ...]
    einsums: tuple[Einsum, ...]
    initial: tuple[Einsum, ...] = ()
    iterative: Mapping[str, str] = field(default_factory=dict)
    partition: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Einsum:
        return next(einsum for einsum in self.einsums if einsum.name == name)

    @cached_property
    def ranks(self) -> tuple[str, ...]:
        """Every rank that some variable runs over, in order of appearance."""
        accesses = (*self.inputs, *(access for einsum in self.einsums for access in (einsum.output, *einsum.inputs)))
        return tuple(dict.fromkeys(rank_of(variable) for access in accesses for variable in access.variables))

    @cached_property
    def computed(self) -> tuple[Einsum, ...]:
        """The Einsums that compute: all but views."""
        return tuple(einsum for einsum in self.einsums if not einsum.is_view)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Tensors that are made and never read."""
        read = {access.tensor for einsum in self.einsums for access in einsum.inputs}
        return tuple(einsum.name for einsum in self.einsums if einsum.name not in read)

    @cached_property
    def external(self) -> frozenset[str]:
        """Tensors that enter or leave: inputs and outputs, views of them, and what they are views of."""
        found = {access.tensor for access in self.inputs} | set(self.outputs)
        views = [einsum for einsum in self.einsums if einsum.is_view]
        for view in (*views, *reversed(views)):
            if {view.name, view.inputs[0].tensor} & found:
                found |= {view.name, view.inputs[0].tensor}
        return frozenset(found)


def rank_of(variable: str) -> str:
    """The rank a variable runs over."""
    return variable.upper()


def variable_of(rank: str) -> str:
    """The variable that runs over a rank."""
    return rank.lower()


def is_shifted(access: Access, iterative: Mapping[str, str]) -> bool:
    """Whether an access points to the coordinate that an iteration is about to make, as `RM[m1+1,p]` does."""
    return any(index.offset and set(index.variables) & set(iterative) for index in access.indices)


def check_einsum(cascade: Cascade, position: int, *, initial: bool = False) -> None:
    """Check the Einsum at `position` against what stands before it. Raises CascadeError."""
    einsum = (cascade.initial if initial else cascade.einsums)[position]
    shapes = _declared_ranks(cascade)
    names = [other.name for other in cascade.einsums]
    if not initial:
        if einsum.name in names[:position]:
            raise CascadeError(f"{einsum.name} is made twice; each tensor has one Einsum", einsum.text)
        if einsum.name in {access.tensor for access in cascade.inputs}:
            raise CascadeError(f"{einsum.name} is an input and cannot be made", einsum.text)
    set_before = {start.name for start in cascade.initial}
    known = {access.tensor for access in cascade.inputs} | set(names[:position])
    for access in einsum.inputs:
        later = access.tensor in names[position:] and access.tensor in set_before
        if access.tensor in known or (later and not is_shifted(access, cascade.iterative)):
            continue
        if access.tensor in names:
            raise CascadeError(f"{access} is read before {access.tensor} is made", einsum.text)
        raise CascadeError(f"unknown tensor {access.tensor!r}; known here: {', '.join(sorted(known))}", einsum.text)
    for access in (einsum.output, *einsum.inputs):
        ranks = shapes.get(access.tensor)
        if ranks is not None and len(ranks) != len(access.indices):
            raise CascadeError(
                f"{access} has {len(access.indices)} ranks; {access.tensor} has ({', '.join(ranks)})", einsum.text
            )
    for condition in einsum.where:
        for variable in (*condition.left.variables, *condition.right.variables):
            if variable not in einsum.variables:
                raise CascadeError(
                    f"filter '{condition}' uses {variable!r}; the Einsum has {', '.join(einsum.variables)}", einsum.text
                )
    if not initial:
        _check_output(cascade, einsum)


def _check_output(cascade: Cascade, einsum: Einsum) -> None:
    """An output index is one variable of its own, or that of an iteration and 1: each element is made in one place."""
    variables = [variable for index in einsum.output.indices for variable in index.variables]
    for index in einsum.output.indices:
        steps = index.variables and index.variables[0] in cascade.iterative and index.offset == Polynomial.of(1)
        plain = index.is_plain or (steps and len(index.terms) == 1 and index.terms[0][1] == Polynomial.of(1))
        if not plain or len(set(variables)) < len(variables):
            raise CascadeError(
                f"each index of the output {einsum.output} is a variable of its own (or an iterative one, +1)",
                einsum.text,
            )


def check_iterations(cascade: Cascade) -> None:
    """Check that every iterative variable is used, ends at its own rank, and starts from an initial value."""
    used = {variable for einsum in cascade.einsums for variable in einsum.variables}
    for variable, rank in cascade.iterative.items():
        if variable not in used:
            raise CascadeError(f"iterative variable {variable!r} is used by no Einsum; used: {', '.join(sorted(used))}")
        if rank != rank_of(variable):
            raise CascadeError(f"{variable!r} iterates until {rank_of(variable)}, found {rank!r}")
        shifted = [
            e for e in cascade.einsums if variable in e.output.variables and is_shifted(e.output, {variable: rank})
        ]
        for einsum in shifted:
            if not _builds_on_itself(cascade, einsum):
                before = f"{einsum.name}[...{variable}...]"
                raise CascadeError(
                    f"{einsum.output} never reads {before}, so nothing iterates; drop the +1", einsum.text
                )
            if einsum.name not in {start.name for start in cascade.initial}:
                raise CascadeError(
                    f"{einsum.name} has no initial value; add e.g. '{einsum.name}[...0...] = 0' to initial", einsum.text
                )


def _builds_on_itself(cascade: Cascade, einsum: Einsum) -> bool:
    """Whether an iterative Einsum needs, through whatever other Einsums, what it made the step before."""
    makers = {each.name: each for each in cascade.einsums}
    seen: set[str] = set()
    waiting = [einsum]
    while waiting:
        for access in waiting.pop().inputs:
            steps = set(access.variables) & set(cascade.iterative)
            if access.tensor == einsum.name and steps and not is_shifted(access, cascade.iterative):
                return True
            if access.tensor in makers and access.tensor not in seen:
                seen.add(access.tensor)
                waiting.append(makers[access.tensor])
    return False


def _declared_ranks(cascade: Cascade) -> dict[str, tuple[str, ...]]:
    """Ranks of each tensor as its declaration or its Einsum gives them ("?" where an index is a constant)."""
    ranks: dict[str, tuple[str, ...]] = {}
    for access in (*cascade.inputs, *(einsum.output for einsum in cascade.einsums)):
        names = tuple(rank_of(index.variables[0]) if index.variables else "?" for index in access.indices)
        ranks.setdefault(access.tensor, names)
    return ranks
