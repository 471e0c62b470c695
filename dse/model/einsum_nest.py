"""One Einsum, its mapping and the sizes of all ranks -> a loop nest with operands, and what an operation costs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from dse.cascade.cascade import Cascade, is_shifted, rank_of
from dse.cascade.einsum import Access, Einsum
from dse.cascade.polynomial import Polynomial
from dse.model.feasibility import Feasibility, indivisible, whole_number
from dse.model.nest import (
    Level,
    Loop,
    Operand,
    busy_units,
    exact_product,
    extents,
    overlapping_ranks,
    product,
    temporal_iterations,
)
from dse.model.tails import points_with_tails, steps_with_tails, within
from dse.specs.architecture import Hardware, UnitSpec, operation_name
from dse.specs.mapping import EinsumPlan, LoopToken, Plan
from dse.specs.parameters import Located
from dse.specs.quantity import COUNT, Quantity
from dse.specs.source import Key, Source
from dse.specs.workload import Workload


@dataclass(frozen=True)
class Job:
    """What is to be bound: a workload, hardware and a plan whose names were checked."""

    workload: Workload
    hardware: Hardware
    plan: Plan


@dataclass(frozen=True)
class BoundEinsum:
    """An Einsum with its nest: one level per memory of its unit's path, and what an operation of it costs.

    `tensors` gives the tensor behind each operand's name; `actions` the component actions of an operation; `tails` the
    length of each rank that the loops cover more of.
    """

    einsum: Einsum
    unit: UnitSpec
    levels: tuple[Level, ...]
    operands: tuple[Operand, ...]
    tensors: Mapping[str, str]
    actions: Mapping[str, Any]
    cycles_per_operation: Any
    tails: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The Einsum's name."""
        return self.einsum.name

    @cached_property
    def steps(self) -> Any:
        """Time steps of the nest."""
        return steps_with_tails(self.levels, self.tails) if self.tails else temporal_iterations(self.levels)

    @cached_property
    def points(self) -> Any:
        """Points of the iteration space, each an operation."""
        if self.tails:
            return points_with_tails(self.levels, self.tails)
        return exact_product(self.steps, busy_units(self.levels))

    def lengths(self, depth: int, outside: Sequence[Loop] = ()) -> dict[str, Any]:
        """What the loops of a level, those inside it and some `outside` cover of each rank."""
        return within(extents([Level("", tuple(outside)), *self.levels[depth:]]), self.tails)


def bind_einsums(
    job: Job,
    values: Mapping[str, Quantity],
    feasibility: Feasibility,
    inside: str | None = None,
    like: Mapping[str, BoundEinsum] | None = None,
) -> dict[str, BoundEinsum]:
    """Every Einsum that computes, by name in the cascade's order, where parameters have `values`. Raises SpecError.

    With `inside`, only Einsums whose path has that memory, and of their loops only those at it and further in: enough
    to know what it holds. `like` is an earlier result for the same job, whose operands are used again.
    """
    for parts in job.workload.cascade.partition.values():
        for part in parts[1:]:
            written = job.plan.parameters.get(part)
            if isinstance(written, Located) and part in values:
                written.check_size(values[part].value)
    shapes = job.workload.shapes(values)
    for rank, parts in job.workload.cascade.partition.items():
        inner = product(shapes[part] for part in parts[1:])
        feasibility.require(
            lambda: shapes[rank] % inner == 0,
            lambda: job.plan.source.error(
                ("parameters", parts[-1]), indivisible(shapes[rank], inner, rank, " x ".join(parts[1:]))
            ),
        )
    binder = _Binder(job, values, shapes, feasibility, like or {}, {}, {})
    units = job.hardware.architecture.units
    return {
        einsum.name: binder.bind(einsum, inside)
        for einsum in job.workload.cascade.computed
        if inside is None or inside in units[job.plan.einsums[einsum.name].unit].memories
    }


@dataclass(frozen=True)
class _Binder:
    """What binding an Einsum reads. `factors` holds loop factors by their text, `rests` what loops over a rank leave, by
    variable and factors: what Einsums share is worked out once."""

    job: Job
    values: Mapping[str, Quantity]
    shapes: Mapping[str, Any]
    feasibility: Feasibility
    like: Mapping[str, BoundEinsum]
    factors: dict[str, Any]
    rests: dict[tuple[str, ...], Any]

    def bind(self, einsum: Einsum, inside: str | None) -> BoundEinsum:
        plan, hardware = self.job.plan, self.job.hardware
        own = plan.einsums[einsum.name]
        unit = hardware.architecture.units[own.unit]
        temporal = [
            [
                *(t for t in plan.shared_loops(einsum.name, memory) if t.variable in einsum.variables),
                *own.loops.get(memory, ()),
            ]
            for memory in unit.memories
        ]
        spatial = [[token for axis in fanout for token in own.spatial.get(axis, ())] for _, fanout in unit.path]
        tokens = [token for group in (*temporal, *spatial) for token in group]
        outside = unit.memories.index(inside) if inside else 0
        temporal[:outside] = spatial[:outside] = [[]] * outside
        bounds = self.bounds(einsum, tokens, {id(token) for group in (*temporal, *spatial) for token in group})
        if self.feasibility.checked:
            self.check_fanouts(own, unit, bounds)

        def loops(tokens: Sequence[LoopToken]) -> tuple[Loop, ...]:
            return tuple(Loop(token.variable, bounds[id(token)]) for token in tokens)

        levels = tuple(
            Level(memory, loops(outer), loops(across))
            for memory, outer, across in zip(unit.memories, temporal, spatial, strict=True)
        )
        before = self.like.get(einsum.name)
        if before is not None and not any(scale.symbols for scale in _scales(einsum)):
            operands, tensors = before.operands, before.tensors
        else:
            operands, tensors = self.operands(einsum, own, unit)
        actions: dict[str, Any] = {}
        cycles: Any = 1
        if self.feasibility.checked:
            key: Key = ("einsums", einsum.name, "unit")
            actions, cycles = operation_cost(einsum, unit, hardware.values, plan.source, key)
        tails = {name: self.shapes[rank_of(name)] for name in own.imperfect}
        self.check_tails(own, operands)
        return BoundEinsum(einsum, unit, levels, operands, tensors, actions, cycles, tails)

    def check_tails(self, own: EinsumPlan, operands: Sequence[Operand]) -> None:
        """Refuse imperfect loops over a rank whose tiles of some operand overlap. Raises SpecError."""
        whole = overlapping_ranks(operands)
        for number, name in enumerate(own.imperfect):
            if name in whole:
                raise self.job.plan.source.error(
                    ("einsums", own.name, "imperfect", number),
                    f"{own.name}: loops over {name!r} must divide {rank_of(name)}, for it indexes {whole[name]}, "
                    "whose tiles overlap",
                )

    def check_fanouts(self, own: EinsumPlan, unit: UnitSpec, bounds: Mapping[int, Any]) -> None:
        for axis, tokens in own.spatial.items():
            size = self.job.hardware.fanouts[unit.name][unit.axes[axis]][axis]
            used = product(bounds[id(token)] for token in tokens)
            self.feasibility.require(
                lambda: used <= size,
                lambda: self.job.plan.source.error(
                    ("einsums", own.name, "spatial", axis),
                    f"{own.name}: spatial factor {used} on axis {axis!r} of {unit.name}, which has {size}",
                ),
            )

    def bounds(self, einsum: Einsum, tokens: Sequence[LoopToken], wanted: set[int]) -> dict[int, Any]:
        """The bound of each wanted loop token, by identity; the one without a factor takes the rest of its rank."""
        bounds: dict[int, Any] = {}
        for variable in einsum.variables:
            mine = [token for token in tokens if token.variable == variable]
            rest = [token for token in mine if token.factor is None]
            if len(rest) > 1:
                raise self.job.plan.source.error(
                    rest[1].key,
                    f"{einsum.name}: two loops over {variable!r} without a factor; "
                    f"give all but one a factor, as {variable}:4",
                )
            if not self.feasibility.checked and not any(id(token) in wanted for token in rest):
                mine = [token for token in mine if id(token) in wanted]
                rest = []
            factors = {}
            imperfect = variable in self.job.plan.einsums[einsum.name].imperfect
            for token in mine:
                if token.factor is not None:
                    text = factors[id(token)] = token.factor.expression.text
                    if text not in self.factors:
                        self.factors[text] = whole_number(token.factor, self.values, self.feasibility)
                    bounds[id(token)] = self.factors[text]
            pattern = (variable, f"{len(rest)} {imperfect}", *sorted(factors.values()))
            if pattern not in self.rests and (rest or self.feasibility.checked):
                covered = product(bounds[token] for token in factors)
                key = mine[0].key if mine else ("einsums", einsum.name)
                self.rests[pattern] = self.rest(
                    einsum.name, variable, covered, key, exists=bool(rest), imperfect=imperfect
                )
            if rest:
                bounds[id(rest[0])] = self.rests[pattern]
        return bounds

    def rest(self, einsum: str, variable: str, covered: Any, key: Any, *, exists: bool, imperfect: bool) -> Any:
        """What loops with factors leave of a rank, at least 1: it must come out whole, unless imperfect, and as 1 where no
        loop takes it."""
        rank, size, source = rank_of(variable), self.shapes[rank_of(variable)], self.job.plan.source
        if not exists:
            self.feasibility.require(
                lambda: covered >= size if imperfect else covered == size,
                lambda: source.error(
                    key,
                    f"{einsum}: its loops over {variable!r} cover {covered} of {rank} = {size}; "
                    f"add a loop {variable!r}, which takes the rest",
                ),
            )
            return 1
        if imperfect:
            return -(-size // covered)
        left = size // covered
        self.feasibility.require(
            lambda: left * covered == size,
            lambda: source.error(
                key, indivisible(size, covered, rank, f"the other loops of {einsum} over {variable!r}")
            ),
        )
        return np.maximum(left, 1) if isinstance(left, np.ndarray) else max(left, 1)

    def operands(
        self, einsum: Einsum, own: EinsumPlan, unit: UnitSpec
    ) -> tuple[tuple[Operand, ...], Mapping[str, str]]:
        operands: list[Operand] = []
        tensors: dict[str, str] = {}
        for name, access in operand_names(einsum, self.job.workload.cascade).items():
            is_output = access is einsum.output
            keeps = tuple(
                access.tensor in own.keep.get(memory, (access.tensor,) if memory == unit.memories[-1] else ())
                for memory in unit.memories
            )
            self.check_keeps(einsum.name, access.tensor, keeps, unit)
            summed = own.accumulate_over if is_output else ()
            indices = tuple(
                tuple(
                    (variable, scale.evaluate(self.shapes)) for variable, scale in index.terms if variable not in summed
                )
                for index in access.indices
            )
            operands.append(Operand(name, indices, is_output, keeps))
            tensors[name] = access.tensor
        return tuple(operands), tensors

    def check_keeps(self, einsum: str, tensor: str, keeps: Sequence[bool], unit: UnitSpec) -> None:
        key = ("einsums", einsum, "keep")
        if not any(keeps):
            raise self.job.plan.source.error(
                key, f"{einsum}: tensor {tensor} is kept nowhere; keep it in one of {', '.join(unit.memories)}"
            )
        external = tensor in self.job.workload.cascade.external
        if not keeps[0] and external and not self.left_there(einsum, tensor, unit.memories[keeps.index(True)], unit):
            raise self.job.plan.source.error(
                key, f"{einsum}: {tensor} enters or leaves {self.job.workload.name}, so {unit.memories[0]} must keep it"
            )

    def left_there(self, einsum: str, tensor: str, memory: str, unit: UnitSpec) -> bool:
        """Whether an Einsum that comes before in the phase brings an input to a memory from the outermost one."""
        plan = self.job.plan
        together = next((phase.einsums for phase in plan.phases if einsum in phase.einsums), ())
        before = list(itertools.takewhile(lambda name: name != einsum, together))
        kept = [plan.einsums[name].keep for name in before if name in plan.einsums]
        return einsum != tensor and any(
            tensor in keep.get(unit.memories[0], ()) and tensor in keep.get(memory, ()) for keep in kept
        )


def operation_cost(
    einsum: Einsum, unit: UnitSpec, values: Mapping[str, Quantity], source: Source, key: Key
) -> tuple[dict[str, Any], Any]:
    """Component actions and cycles of an operation: the unit's entry for all its operators, else for each in turn.

    Raises SpecError, at `key`, where the unit has none.
    """
    operators = einsum.operators
    parts = [operators] if operators in unit.operations else [(operator,) for operator in operators]
    actions: dict[str, Any] = {}
    cycles: Any = 0
    for part in parts:
        cost = unit.operations.get(part)
        if cost is None:
            known = ", ".join(operation_name(operation) for operation in unit.operations)
            raise source.error(
                key, f"{unit.name} has no op {operation_name(operators)!r}, which {einsum.name} needs; it has {known}"
            )
        for action, count in cost.actions.items():
            actions[action] = actions.get(action, 0) + count.positive(values, COUNT)
        cycles = cycles + (1 if cost.cycles is None else cost.cycles.positive(values, COUNT))
    return actions, cycles


def operand_names(einsum: Einsum, cascade: Cascade) -> dict[str, Access]:
    """The operands of an Einsum by name, its output last: the tensor, with the index that an iteration is about to make
    (`RM[m1+1]`), or all of it to tell two apart."""
    names: dict[str, Access] = {}
    for access in (*einsum.inputs, einsum.output):
        name = access.tensor
        if is_shifted(access, cascade.iterative):
            name += f"[{next(str(index) for index in access.indices if index.offset)}]"
        names[str(access) if name in names else name] = access
    return names


def _scales(einsum: Einsum) -> list[Polynomial]:
    """Every factor that an Einsum's indices multiply a rank variable by."""
    accesses = (*einsum.inputs, einsum.output)
    return [scale for access in accesses for index in access.indices for _, scale in index.terms]
