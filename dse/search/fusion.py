"""Which Einsums of a cascade may be fused, over which ranks, and what may stay in the buffer between them.

A group is a run of successive Einsums that share the outermost loops. They may share a loop over a rank where the pass
analysis finds them in one pass over it, and where each element that one makes is read at the same place of the rank.
Each Einsum but the first finds something in the buffer that another one of the group left there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from dse.cascade.cascade import Cascade, rank_of
from dse.cascade.einsum import Access, Einsum
from dse.cascade.passes import analyze_rank
from dse.cascade.polynomial import Polynomial
from dse.search.problem import HERE, LEFT, ChainLevel, Problem

SHARED = ""
"""The slot of loops that Einsums share, outside the outermost memory."""


@dataclass(frozen=True)
class Fusion:
    """What fusion a cascade allows, where its rank variables have `sizes`; Einsums go by their place in the cascade."""

    cascade: Cascade
    sizes: Mapping[str, int]

    @cached_property
    def einsums(self) -> tuple[Einsum, ...]:
        """The Einsums that compute, in order."""
        return self.cascade.computed

    @cached_property
    def makers(self) -> dict[str, int]:
        """Where each tensor is made."""
        return {einsum.name: place for place, einsum in enumerate(self.einsums)}

    @cached_property
    def readers(self) -> dict[str, list[int]]:
        """Where each tensor is read."""
        found: dict[str, list[int]] = {}
        for place, einsum in enumerate(self.einsums):
            for name in dict.fromkeys(access.tensor for access in einsum.inputs):
                found.setdefault(name, []).append(place)
        return found

    def users(self, tensor: str) -> list[int]:
        """Where a tensor is made or read, in order."""
        made = [self.makers[tensor]] if tensor in self.makers else []
        return sorted({*made, *self.readers.get(tensor, [])})

    @cached_property
    def waiting(self) -> list[tuple[int, int]]:
        """Places of (a reader, the later maker) of tensors that one iteration hands to the next."""
        return [
            (reader, maker)
            for tensor, maker in self.makers.items()
            for reader in self.readers.get(tensor, ())
            if reader < maker
        ]

    @cached_property
    def alike(self) -> dict[str, bool]:
        """Whether all that touch a tensor go through it in step: index by index the same variable, or none."""
        accesses: dict[str, list[Access]] = {}
        for einsum in self.einsums:
            for access in (einsum.output, *einsum.inputs):
                accesses.setdefault(access.tensor, []).append(access)
        return {name: _in_step(every) for name, every in accesses.items()}

    @cached_property
    def _passes(self) -> dict[str, Mapping[str, int]]:
        variables = dict.fromkeys(name for einsum in self.einsums for name in einsum.variables)
        return {name: analyze_rank(self.cascade, rank_of(name)).einsums for name in variables if self.sizes[name] > 1}

    @cached_property
    def _broken(self) -> dict[tuple[int, str], int]:
        """By first Einsum of a group and variable, the first end at which the group may not share a loop over it."""
        found = {}
        for start in range(len(self.einsums)):
            for variable, passes in self._passes.items():
                end = start
                while end < len(self.einsums) and self._one_pass(start, end + 1, variable, passes):
                    end += 1
                found[start, variable] = end + 1
        return found

    def _one_pass(self, start: int, end: int, variable: str, passes: Mapping[str, int]) -> bool:
        own = self.einsums[start:end]
        if len({passes[einsum.name] for einsum in own if variable in einsum.variables}) > 1:
            return False
        made = {einsum.name for einsum in own}
        return all(
            self.alike[access.tensor] or variable not in access.variables
            for einsum in own
            for access in (einsum.output, *einsum.inputs)
            if access.tensor in made
        )

    def may_share(self, start: int, end: int, variable: str) -> bool:
        """Whether the Einsums from `start` up to `end` may share loops over a rank."""
        return variable in self._passes and end < self._broken[start, variable]

    def shared(self, place: int) -> tuple[str, ...]:
        """Rank variables over which an Einsum may share loops with another one."""
        own = self.einsums[place].variables
        return tuple(
            name for name in own if any(self._may_meet(place, other, name) for other in range(len(self.einsums)))
        )

    def _may_meet(self, place: int, other: int, name: str) -> bool:
        start, end = min(place, other), max(place, other) + 1
        return place != other and name in self.einsums[other].variables and self.may_share(start, end, name)

    @cached_property
    def batch(self) -> tuple[str, ...]:
        """Rank variables that index every tensor of every Einsum: no loop over them leaves anything in place."""
        accesses = [access for einsum in self.einsums for access in (einsum.output, *einsum.inputs)]
        return tuple(name for name in self._passes if all(_indexed(access, name) for access in accesses))

    def stays(self, place: int) -> dict[str, tuple[str, ...]]:
        """What tensors may do in the buffer while an Einsum runs, for others of its group."""
        found = {}
        einsum = self.einsums[place]
        for tensor in dict.fromkeys(access.tensor for access in (einsum.output, *einsum.inputs)):
            users = self.users(tensor)
            if len(users) < 2 or not self.alike[tensor]:
                continue
            options = [LEFT] if place < users[-1] or self.makers.get(tensor) == place else []
            if self.makers.get(tensor) == place:
                options += [] if tensor in self.cascade.external else [HERE]
            elif place > users[0] or self.makers.get(tensor, -1) > place:
                options.append(HERE)
            found[tensor] = tuple(options)
        return found


def _in_step(accesses: Sequence[Access]) -> bool:
    if len({len(access.indices) for access in accesses}) > 1:
        return False
    for indices in zip(*(access.indices for access in accesses), strict=True):
        used = {index.terms for index in indices if index.terms}
        if len(used) > 1 or any(len(terms) > 1 or terms[0][1] != Polynomial.of(1) for terms in used):
            return False
    return True


def _indexed(access: Access, variable: str) -> bool:
    return any(index.terms == ((variable, Polynomial.of(1)),) for index in access.indices)


def fusible(problem: Problem) -> bool:
    """Whether other Einsums can find what one leaves in the buffer: it stands next to the outermost memory, and all that
    is bounded further in holds one Einsum's operands at a time."""
    if len(problem.levels) < 2 or problem.levels[0].axes or problem.levels[1].capacity == math.inf:
        return False
    inner = problem.levels[2:]
    return all(level.capacity == math.inf for level in inner[:-1]) and not (inner and inner[-1].axes)


def with_shared_loops(problem: Problem, fusion: Fusion) -> Problem:
    """The problem of an Einsum that may be fused: loops to share outside all memories, and tensors that may stay."""
    place = fusion.makers[problem.einsum]
    shared = fusion.shared(place) if fusible(problem) else ()
    demands, outermost = problem.constraints, problem.memories[0]
    allowed = demands.ranks.get(outermost, frozenset(problem.ranks)) - set(demands.order.get(outermost, ()))
    shared = tuple(name for name in shared if name in allowed and (outermost, name) not in demands.factors)
    return replace(
        problem,
        levels=(ChainLevel(SHARED, 0.0, 0.0, math.inf), *problem.levels),
        homes=dict.fromkeys(problem.names, 1),
        constraints=replace(demands, ranks={**demands.ranks, SHARED: frozenset(shared)}),
        shared=shared,
        batch=fusion.batch,
        stays=fusion.stays(place) if fusible(problem) else {},
    )
