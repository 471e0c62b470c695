"""Workload + hardware + mapping plan -> one loop nest per Einsum, checked: what runs where, over which tiles.

Sizes may be arrays, one entry a design point. A point that cannot exist raises where there is one point; among many it
is marked infeasible and the rest go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.cascade.cascade import is_shifted, rank_of
from dse.cascade.einsum import Einsum
from dse.model.nest import Level, Loop, Operand, extents, hull, product
from dse.specs.architecture import OPERATION_ALIASES, Hardware, UnitSpec
from dse.specs.mapping import EinsumPlan, LargestDivisor, LoopToken, Overflow, PhasePlan, Plan
from dse.specs.parameters import Located, resolve
from dse.specs.quantity import INFORMATION, Quantity
from dse.specs.source import SpecError, allowed
from dse.specs.workload import Workload


@dataclass
class Feasibility:
    """Collects which design points can exist; `points` is True or a boolean array. Trial sizes are not `checked`."""

    checked: bool = True
    points: bool | NDArray[np.bool_] = True

    def require(self, holds: Callable[[], Any], error: Callable[[], SpecError]) -> None:
        """Demand a condition: raises `error()` where it fails for the only point, else marks the points that fail."""
        if not self.checked:
            return
        met = np.asarray(holds())
        if np.all(met):
            return
        if met.size == 1:
            raise error()
        self.points = self.points & met


@dataclass(frozen=True)
class BoundEinsum:
    """An Einsum with its nest: one level per memory of its unit's path, and what an operation of it costs."""

    einsum: Einsum
    unit: UnitSpec
    plan: EinsumPlan
    levels: tuple[Level, ...]
    operands: tuple[Operand, ...]
    tensors: Mapping[str, str]
    actions: Mapping[str, Any]
    cycles_per_operation: Any

    @property
    def name(self) -> str:
        """The Einsum's name."""
        return self.einsum.name


@dataclass(frozen=True)
class Binding:
    """A workload bound to hardware: the nests, in the cascade's order, and the values of every parameter."""

    workload: Workload
    hardware: Hardware
    plan: Plan
    values: Mapping[str, Quantity]
    shapes: Mapping[str, Any]
    einsums: Mapping[str, BoundEinsum]
    feasible: bool | NDArray[np.bool_] = field(default=True)


def bind(workload: Workload, hardware: Hardware, plan: Plan, given: Mapping[str, Quantity]) -> Binding:
    """Bind every Einsum that computes. `given` sets workload and mapping parameters by name. Raises SpecError."""
    check_names(workload, hardware, plan)
    outer = {**hardware.values, **workload.parameter_values(given)}
    for name in plan.parameters:
        if name in outer:
            raise plan.source.error(("parameters", name), f"{name} is a parameter of the workload or the architecture already")
    feasibility = Feasibility()
    found = {name: given.get(name, Quantity(0 if isinstance(value, Overflow) else 1)) for name, value in plan.parameters.items() if not isinstance(value, Located)}
    for name, value in plan.parameters.items():
        if isinstance(value, LargestDivisor) and name not in given:
            found[name] = _largest_that_fits(name, value, workload, hardware, plan, {**outer, **found}, given, feasibility)
    values = _with_fixed(plan, {**outer, **found}, given)
    einsums = _bind_all(workload, hardware, plan, values, feasibility)
    for name, value in plan.parameters.items():
        if isinstance(value, Overflow) and name not in given:
            needed = [held.get(value.of, {}) for held in _needs(plan, einsums, hardware, value.of)]
            room = capacity_bits(plan, hardware, value.of, values) / workload.word_bits()
            share = [np.maximum(0, 1 - room / np.maximum(sum(tensors.values()), 1)) for tensors in needed if tensors]
            values[name] = Quantity(np.max(np.broadcast_arrays(*share), axis=0)[()] if share else 0)
    binding = Binding(workload, hardware, plan, values, workload.shapes(values), einsums)
    _check_capacities(binding, feasibility)
    return Binding(workload, hardware, plan, values, binding.shapes, einsums, feasibility.points)


def _with_fixed(plan: Plan, values: dict[str, Quantity], given: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """`values` and the mapping's written parameters, which may use them."""
    fixed = {name: value for name, value in plan.parameters.items() if isinstance(value, Located)}
    return {**values, **resolve(fixed, values, given)}


def _largest_that_fits(
    name: str,
    factor: LargestDivisor,
    workload: Workload,
    hardware: Hardware,
    plan: Plan,
    outer: dict[str, Quantity],
    given: Mapping[str, Quantity],
    feasibility: Feasibility,
) -> Quantity:
    """Tiles grow linearly with one factor, so two trial sizes tell the largest that fits."""
    trials = []
    for size in (1, 2):
        values = _with_fixed(plan, {**outer, name: Quantity(size)}, given)
        nests = _bind_all(workload, hardware, plan, values, Feasibility(checked=False))
        trials.append([sum(held.get(factor.fits, {}).values()) for held in _needs(plan, nests, hardware, factor.fits)])
    room = capacity_bits(plan, hardware, factor.fits, values) / workload.word_bits()
    spills = factor.fits in {spill.memory for spill in plan.spills}
    limit: Any = np.inf
    for at_one, at_two in zip(*trials, strict=True):
        growth = np.asarray(at_two - at_one, dtype=np.float64)
        limit = np.minimum(limit, np.where(growth > 0, np.floor((room - at_one) / np.where(growth > 0, growth, 1)) + 1, np.inf))
        feasibility.require(
            lambda need=at_one: spills | (need <= room),
            lambda need=at_one: _overflow(plan, ("parameters", name), factor.fits, need, room, workload, f"for the smallest tile ({name} = 1); "),
        )
    return Quantity(largest_divisor(factor.of.size(_with_fixed(plan, {**outer, name: Quantity(1)}, given)), np.maximum(limit, 1)))


def largest_divisor(number: Any, limit: Any) -> Any:
    """The largest divisor of `number` that is at most `limit` (1 or more). Arrays broadcast."""
    numbers, limits = np.broadcast_arrays(np.asarray(number, dtype=np.int64), np.asarray(limit, dtype=np.float64))
    found = np.empty(numbers.shape, dtype=np.int64)
    for value in np.unique(numbers):
        small = np.arange(1, int(np.sqrt(value)) + 1)
        small = small[value % small == 0]
        divisors = np.unique(np.concatenate([small, value // small]))
        chosen = numbers == value
        found[chosen] = divisors[np.searchsorted(divisors, limits[chosen], side="right") - 1]
    return int(found) if found.ndim == 0 else found


def capacity_bits(plan: Plan, hardware: Hardware, memory: str, values: Mapping[str, Quantity]) -> Any:
    """Bits that a mapping may use of one instance of a memory (infinite where it has no bound)."""
    if memory in plan.capacity:
        return plan.capacity[memory].size(values, INFORMATION)
    bound = hardware.memories[memory].capacity_bits
    return np.inf if bound is None else bound


def check_names(workload: Workload, hardware: Hardware, plan: Plan) -> None:
    """Refuse Einsums, units, memories, axes, tensors and rank variables that do not exist. Raises SpecError."""
    architecture, cascade, source = hardware.architecture, workload.cascade, plan.source
    computed = [einsum.name for einsum in cascade.computed]
    for name, einsum_plan in plan.einsums.items():
        key: tuple[str | int, ...] = ("einsums", name)
        if name not in computed:
            raise source.error(key, f"unknown Einsum {name!r} of {workload.name}; {allowed(name, computed)}")
        unit = architecture.units.get(einsum_plan.unit)
        if unit is None:
            raise source.error((*key, "unit"), f"unknown unit {einsum_plan.unit!r}; {allowed(einsum_plan.unit, architecture.units)}")
        einsum = cascade[name]
        for section, memories in (("loops", einsum_plan.loops), ("keep", einsum_plan.keep)):
            for memory in memories:
                if memory not in unit.memories:
                    raise source.error((*key, section, memory), f"{memory!r} is not on the path of {unit.name}; {allowed(memory, unit.memories)}")
        for axis in einsum_plan.spatial:
            if axis not in unit.axes:
                raise source.error((*key, "spatial", axis), f"{unit.name} has no axis {axis!r}; {allowed(axis, unit.axes)}")
        tensors = {access.tensor for access in (einsum.output, *einsum.inputs)}
        for memory, kept in einsum_plan.keep.items():
            for number, tensor in enumerate(kept):
                if tensor not in tensors:
                    raise source.error((*key, "keep", memory, number), f"{name} does not use tensor {tensor!r}; {allowed(tensor, tensors)}")
        for token in (token for tokens in (*einsum_plan.loops.values(), *einsum_plan.spatial.values()) for token in tokens):
            if token.variable not in einsum.variables:
                raise source.error(token.key, f"{name} has no rank variable {token.variable!r}; {allowed(token.variable, einsum.variables)}")
        for variable in einsum_plan.accumulate_over:
            if variable not in einsum.output.variables:
                raise source.error((*key, "accumulate_over"), f"{name} has no rank variable {variable!r} in its output; {allowed(variable, einsum.output.variables)}")
    for name in computed:
        if name not in plan.einsums:
            raise source.error(("einsums",), f"Einsum {name} of {workload.name} is not mapped")
    variables = {variable for einsum in cascade.computed for variable in einsum.variables}
    for memory, tokens in plan.loops.items():
        if memory not in architecture.memories:
            raise source.error(("loops", memory), f"unknown memory {memory!r}; {allowed(memory, architecture.memories)}")
        for token in tokens:
            if token.variable not in variables:
                raise source.error(token.key, f"no Einsum has rank variable {token.variable!r}; {allowed(token.variable, variables)}")
    for section, named in (("capacity", list(plan.capacity)), ("unchecked", list(plan.unchecked))):
        for memory in named:
            if memory not in architecture.memories:
                raise source.error((section, memory) if section == "capacity" else (section,), f"unknown memory {memory!r}; {allowed(memory, architecture.memories)}")
    made = {access.tensor for einsum in cascade.computed for access in (einsum.output, *einsum.inputs)}
    for number, group in enumerate(plan.share_space):
        for tensor in group:
            if tensor not in made:
                raise source.error(("share_space", number), f"unknown tensor {tensor!r}; {allowed(tensor, made)}")
    for spill in plan.spills:
        if spill.memory not in architecture.memories:
            raise source.error((*spill.key, "memory"), f"unknown memory {spill.memory!r}; {allowed(spill.memory, architecture.memories)}")
        for tensor in spill.tensors:
            if tensor not in made:
                raise source.error((*spill.key, "tensors"), f"unknown tensor {tensor!r}; {allowed(tensor, made)}")
    for value in plan.parameters.values():
        memory = value.fits if isinstance(value, LargestDivisor) else value.of if isinstance(value, Overflow) else None
        if memory is not None and memory not in architecture.memories:
            raise source.error(value.key, f"unknown memory {memory!r}; {allowed(memory, architecture.memories)}")
    for name, what in plan.uncharged.items():
        if name not in computed:
            raise source.error(("uncharged", name), f"unknown Einsum {name!r}; {allowed(name, computed)}")
        known = {*architecture.memories, *(action for part in architecture.units[plan.einsums[name].unit].operations.values() for action in part.actions)}
        for item in what:
            if item not in known:
                raise source.error(("uncharged", name), f"unknown memory or action {item!r}; {allowed(item, known)}")
    _check_phases(hardware, plan, computed)


def _check_phases(hardware: Hardware, plan: Plan, computed: list[str]) -> None:
    seen: set[str] = set()
    for phase in plan.phases:
        for step in phase.steps:
            for unit, names in step.work.items():
                if unit not in hardware.architecture.units:
                    raise plan.source.error((*step.key, unit), f"unknown unit {unit!r}; {allowed(unit, {*hardware.architecture.units, 'stall'})}")
                for name in names:
                    if name not in plan.einsums:
                        raise plan.source.error((*step.key, unit), f"unknown Einsum {name!r}; {allowed(name, plan.einsums)}")
                    if name in seen:
                        raise plan.source.error((*step.key, unit), f"{name} is scheduled twice")
                    if plan.einsums[name].unit != unit:
                        raise plan.source.error((*step.key, unit), f"{name} runs on {plan.einsums[name].unit}, not on {unit}")
                    seen.add(name)
    for name in computed:
        if name not in seen:
            raise plan.source.error(("phases",), f"{name} is in no phase's steps")


def _bind_all(workload: Workload, hardware: Hardware, plan: Plan, values: Mapping[str, Quantity], feasibility: Feasibility) -> dict[str, BoundEinsum]:
    shapes = workload.shapes(values)
    for rank, parts in workload.cascade.partition.items():
        inner = product(shapes[part] for part in parts[1:])
        feasibility.require(
            lambda rank=rank, inner=inner: shapes[rank] % inner == 0,
            lambda rank=rank, inner=inner, parts=parts: _indivisible(plan, ("parameters", parts[-1]), rank, shapes[rank], inner, " x ".join(parts[1:])),
        )
    covers: _Covers = {}
    return {einsum.name: _bind(einsum, workload, hardware, plan, values, shapes, covers, feasibility) for einsum in workload.cascade.computed}


_Covers = dict[tuple[str, ...], tuple[Any, Any]]
"""What loops over a rank cover and leave, by variable and factors: Einsums that share loops are worked out once."""


def _bind(
    einsum: Einsum,
    workload: Workload,
    hardware: Hardware,
    plan: Plan,
    values: Mapping[str, Quantity],
    shapes: Mapping[str, Any],
    covers: _Covers,
    feasibility: Feasibility,
) -> BoundEinsum:
    own = plan.einsums[einsum.name]
    unit = hardware.architecture.units[own.unit]
    temporal = [[*(t for t in plan.loops.get(memory, ()) if t.variable in einsum.variables), *own.loops.get(memory, ())] for memory in unit.memories]
    spatial = [[token for axis in fanout for token in own.spatial.get(axis, ())] for _, fanout in unit.path]
    bounds = _bounds(einsum, plan, [token for group in (*temporal, *spatial) for token in group], values, shapes, covers, feasibility)
    if feasibility.checked:
        _check_fanouts(einsum, plan, own, unit, hardware, bounds, feasibility)
    levels = tuple(
        Level(memory, tuple(Loop(t.variable, bounds[id(t)]) for t in outer), tuple(Loop(t.variable, bounds[id(t)]) for t in across))
        for memory, outer, across in zip(unit.memories, temporal, spatial, strict=True)
    )
    operands, tensors = _operands(einsum, workload, plan, own, unit, shapes)
    actions, cycles = _operation_cost(einsum, plan, unit, hardware.values) if feasibility.checked else ({}, 1)
    return BoundEinsum(einsum, unit, own, levels, operands, tensors, actions, cycles)


def _check_fanouts(
    einsum: Einsum, plan: Plan, own: EinsumPlan, unit: UnitSpec, hardware: Hardware, bounds: Mapping[int, Any], feasibility: Feasibility
) -> None:
    for axis, tokens in own.spatial.items():
        size, used = hardware.fanouts[unit.name][unit.axes[axis]][axis], product(bounds[id(token)] for token in tokens)
        feasibility.require(
            lambda used=used, size=size: used <= size,
            lambda axis=axis, used=used, size=size: plan.source.error(
                ("einsums", einsum.name, "spatial", axis), f"{einsum.name}: spatial factor {used} on axis {axis!r} of {unit.name}, which has {size}"
            ),
        )


def _bounds(
    einsum: Einsum,
    plan: Plan,
    tokens: list[LoopToken],
    values: Mapping[str, Quantity],
    shapes: Mapping[str, Any],
    covers: _Covers,
    feasibility: Feasibility,
) -> dict[int, Any]:
    """The bound of each loop token, by identity; the one without a factor takes the rest of its rank."""
    bounds: dict[int, Any] = {}
    for variable in einsum.variables:
        mine = [token for token in tokens if token.variable == variable]
        rest = [token for token in mine if token.factor is None]
        if len(rest) > 1:
            raise plan.source.error(rest[1].key, f"{einsum.name}: two loops over {variable!r} without a factor; give all but one a factor, as {variable}:4")
        factors = [token.factor for token in mine if token.factor is not None]
        for token in mine:
            if token.factor is not None:
                bounds[id(token)] = token.factor.size(values)
        pattern = (variable, str(len(rest)), *sorted(factor.expression.text for factor in factors))
        if pattern not in covers:
            covered = product(bounds[id(token)] for token in mine if token.factor is not None)
            covers[pattern] = covered, _rest(einsum, plan, variable, shapes[rank_of(variable)], covered, mine, bool(rest), feasibility)
        if rest:
            bounds[id(rest[0])] = covers[pattern][1]
    return bounds


def _rest(
    einsum: Einsum, plan: Plan, variable: str, size: Any, covered: Any, tokens: list[LoopToken], has_rest: bool, feasibility: Feasibility
) -> Any:
    """What loops with factors leave of a rank, at least 1; they must divide it, and cover it where no loop takes the rest."""
    key = tokens[0].key if tokens else ("einsums", einsum.name)
    if has_rest:
        left = size // covered
        feasibility.require(
            lambda: left * covered == size,
            lambda: _indivisible(plan, key, variable.upper(), size, covered, f"the other loops of {einsum.name} over {variable!r}"),
        )
        return np.maximum(left, 1) if isinstance(left, np.ndarray) else max(left, 1)
    feasibility.require(
        lambda: covered == size,
        lambda: plan.source.error(
            key, f"{einsum.name}: its loops over {variable!r} cover {covered} of {variable.upper()} = {size}; add a loop {variable!r}, which takes the rest"
        ),
    )
    return 1


def _operands(
    einsum: Einsum, workload: Workload, plan: Plan, own: EinsumPlan, unit: UnitSpec, shapes: Mapping[str, Any]
) -> tuple[tuple[Operand, ...], dict[str, str]]:
    cascade = workload.cascade
    innermost = unit.memories[-1]
    operands, tensors = [], {}
    for access, is_output in [*((access, False) for access in einsum.inputs), (einsum.output, True)]:
        label = access.tensor
        if is_shifted(access, cascade.iterative):
            label = f"{access.tensor}[{next(str(index) for index in access.indices if index.offset)}]"
        label = str(access) if label in tensors else label
        keeps = tuple(
            access.tensor in own.keep[memory] if memory in own.keep else memory == innermost for memory in unit.memories
        )
        if not any(keeps):
            raise plan.source.error(("einsums", einsum.name, "keep"), f"{einsum.name}: tensor {access.tensor} is kept nowhere; keep it in one of {', '.join(unit.memories)}")
        if not keeps[0] and access.tensor in cascade.external:
            raise plan.source.error(
                ("einsums", einsum.name, "keep"), f"{einsum.name}: {access.tensor} enters or leaves {workload.name}, so {unit.memories[0]} must keep it"
            )
        indices = tuple(
            tuple((variable, scale.evaluate(shapes)) for variable, scale in index.terms if not (is_output and variable in own.accumulate_over))
            for index in access.indices
        )
        operands.append(Operand(label, indices, is_output, keeps))
        tensors[label] = access.tensor
    return tuple(operands), tensors


def _operation_cost(einsum: Einsum, plan: Plan, unit: UnitSpec, values: Mapping[str, Quantity]) -> tuple[dict[str, Any], Any]:
    """Component actions and cycles of one operation: the unit's entry for all its operators, else for each in turn."""
    operators = einsum.operators
    parts = [operators] if operators in unit.operations else [(operator,) for operator in operators]
    actions: dict[str, Any] = {}
    cycles: Any = 0
    for part in parts:
        cost = unit.operations.get(part)
        if cost is None:
            spelled = {alias: name for name, alias in OPERATION_ALIASES.items()}.get(operators, "_".join(operators))
            known = [{alias: name for name, alias in OPERATION_ALIASES.items()}.get(op, "_".join(op)) for op in unit.operations]
            raise plan.source.error(
                ("einsums", einsum.name, "unit"), f"{unit.name} has no op {spelled!r}, which {einsum.name} needs; it has {', '.join(known)}"
            )
        for action, count in cost.actions.items():
            actions[action] = actions.get(action, 0) + count.positive(values, (0, 0))  # type: ignore[arg-type]
        cycles = cycles + (1 if cost.cycles is None else cost.cycles.positive(values, (0, 0)))  # type: ignore[arg-type]
    return actions, cycles


def tile_sizes(bound: BoundEinsum, memory: str) -> dict[str, Any]:
    """Elements of each tensor's tile that the Einsum keeps in one instance of a memory, by tensor."""
    if memory not in bound.unit.memories:
        return {}
    depth = bound.unit.memories.index(memory)
    inside = extents(bound.levels[depth:])
    sizes: dict[str, Any] = {}
    for operand in bound.operands:
        if operand.keeps[depth]:
            tensor = bound.tensors[operand.name]
            size = product(hull(operand, inside))
            sizes[tensor] = np.maximum(sizes[tensor], size) if tensor in sizes else size
    return sizes


def _needs(plan: Plan, einsums: Mapping[str, BoundEinsum], hardware: Hardware, only: str | None = None) -> list[dict[str, Any]]:
    """Elements by tensor that one instance of each memory holds at once, one entry for each time that is checked.

    A unit's innermost memory holds the operands of an Einsum at a time; any other holds the tiles of all Einsums of a
    phase, a tensor that several use once, and of tensors that share space the largest. `only` looks at one memory.
    """
    home = {tensor: group[0] for group in plan.share_space for tensor in group}
    needs: list[dict[str, Any]] = []
    for phase in plan.phases:
        held: dict[str, dict[str, Any]] = {}
        for name in _names(phase):
            bound = einsums[name]
            for depth, memory in enumerate(bound.unit.memories):
                if only not in (None, memory) or hardware.memories[memory].capacity_bits is None:
                    continue
                sizes = tile_sizes(bound, memory)
                if depth == len(bound.unit.memories) - 1:
                    needs.append({memory: sizes})
                    continue
                above = product(size for fanout in hardware.fanouts[bound.unit.name][:depth] for size in fanout.values())
                share = above / hardware.memories[memory].instances
                tensors = held.setdefault(memory, {})
                for tensor, size in sizes.items():
                    label = home.get(tensor, tensor)
                    tensors[label] = np.maximum(tensors.get(label, 0), size * share)
        needs.append(held)
    return needs


def _names(phase: PhasePlan) -> list[str]:
    return [name for step in phase.steps for names in step.work.values() for name in names]


def _check_capacities(binding: Binding, feasibility: Feasibility) -> None:
    """Refuse tiles that do not fit, by how much."""
    plan, hardware, workload = binding.plan, binding.hardware, binding.workload
    skipped = {*plan.unchecked, *(spill.memory for spill in plan.spills)}
    for held in _needs(plan, binding.einsums, hardware):
        for memory, tensors in held.items():
            bits = capacity_bits(plan, hardware, memory, binding.values)
            if memory in skipped or bits is np.inf or not tensors:
                continue
            room = bits / workload.word_bits()
            needed = sum(tensors.values())
            what = "" if np.ndim(needed) else "for " + ", ".join(f"{tensor} {_bytes(size, workload)}" for tensor, size in tensors.items()) + "; "
            feasibility.require(
                lambda needed=needed, room=room: needed <= room,
                lambda memory=memory, needed=needed, room=room, what=what: _overflow(plan, ("einsums",), memory, needed, room, workload, what),
            )


def _bytes(elements: Any, workload: Workload) -> str:
    return f"{float(np.max(elements)) * workload.word_bits() / 8:,.0f} B"


def _overflow(plan: Plan, key: Any, memory: str, needed: Any, room: Any, workload: Workload, what: str) -> SpecError:
    over = _bytes(np.max(needed - room), workload)
    return plan.source.error(key, f"{memory} needs {_bytes(needed, workload)} {what}has {_bytes(room, workload)}: {over} too many")


def _indivisible(plan: Plan, key: Any, rank: str, size: Any, factor: Any, what: str) -> SpecError:
    if np.ndim(size) or np.ndim(factor):
        return plan.source.error(key, f"{rank} does not divide by {what} at every point")
    divisors = [divisor for divisor in range(1, min(size, 10**6) + 1) if size % divisor == 0]
    below = max((d for d in divisors if d < factor), default=None)
    above = min((d for d in divisors if d > factor), default=None)
    near = " and ".join(str(d) for d in (below, above) if d)
    return plan.source.error(key, f"{rank} = {size} does not divide by {factor} ({what}); nearest divisors: {near}")
