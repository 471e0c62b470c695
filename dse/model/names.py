"""Refuses a mapping that names what its workload and architecture do not have, before any size is known."""

from __future__ import annotations

from collections.abc import Iterable

from dse.cascade.einsum import Einsum
from dse.specs.architecture import Architecture, UnitSpec
from dse.specs.mapping import EinsumPlan, LargestDivisor, Overflow, Plan
from dse.specs.parameters import Located
from dse.specs.source import Key
from dse.specs.workload import Workload
from dse.wording import allowed


def check_names(workload: Workload, architecture: Architecture, plan: Plan) -> None:
    """Check every Einsum, unit, memory, axis, tensor, rank variable and action that a plan names. Raises SpecError."""
    computed = {einsum.name: einsum for einsum in workload.cascade.computed}
    for name, own in plan.einsums.items():
        plan.source.check_known(name, computed, ("einsums", name), "Einsum", f"of {workload.name}")
        plan.source.check_known(own.unit, architecture.units, ("einsums", name, "unit"), "unit")
        _check_einsum(plan, own, computed[name], architecture.units[own.unit])
    for name in computed:
        if name not in plan.einsums:
            raise plan.source.error(("einsums",), f"Einsum {name} of {workload.name} is not mapped")
    variables = {variable for einsum in computed.values() for variable in einsum.variables}
    prefixes: list[Key] = [(), *(("phases", number) for number in range(len(plan.phases)))]
    for prefix, loops in zip(prefixes, (plan.loops, *(phase.loops for phase in plan.phases)), strict=True):
        for memory, tokens in loops.items():
            plan.source.check_known(memory, architecture.memories, (*prefix, "loops", memory), "memory")
            for token in tokens:
                plan.source.check_known(token.variable, variables, token.key, "rank variable")
    _check_storage(plan, architecture, computed.values())
    for name, what in plan.uncharged.items():
        plan.source.check_known(name, computed, ("uncharged", name), "Einsum")
        unit = architecture.units[plan.einsums[name].unit]
        actions = {action for operation in unit.operations.values() for action in operation.actions}
        for item in what:
            plan.source.check_known(item, {*architecture.memories, *actions}, ("uncharged", name), "memory or action")
    _check_phases(plan, architecture, computed)
    _check_expressions(
        plan, {*architecture.parameters, *workload.parameters, *workload.ranks, *plan.parameters}, computed
    )


def _check_einsum(plan: Plan, own: EinsumPlan, einsum: Einsum, unit: UnitSpec) -> None:
    key: Key = ("einsums", own.name)
    tensors = {access.tensor for access in (einsum.output, *einsum.inputs)}
    for section, memories in (("loops", list(own.loops)), ("keep", list(own.keep))):
        for memory in memories:
            plan.source.check_known(
                memory, unit.memories, (*key, section, memory), "memory", f"on the path of {unit.name}"
            )
    for memory, kept in own.keep.items():
        for number, tensor in enumerate(kept):
            plan.source.check_known(tensor, tensors, (*key, "keep", memory, number), "tensor", f"of {own.name}")
    for axis in own.spatial:
        plan.source.check_known(axis, unit.axes, (*key, "spatial", axis), "axis", f"of {unit.name}")
    for tokens in (*own.loops.values(), *own.spatial.values()):
        for token in tokens:
            plan.source.check_known(token.variable, einsum.variables, token.key, "rank variable", f"of {own.name}")
    for number, variable in enumerate(own.imperfect):
        plan.source.check_known(
            variable, einsum.variables, (*key, "imperfect", number), "rank variable", f"of {own.name}"
        )
    for variable in own.accumulate_over:
        plan.source.check_known(
            variable, einsum.output.variables, (*key, "accumulate_over"), "rank variable", f"of {einsum.output}"
        )


def _check_storage(plan: Plan, architecture: Architecture, einsums: Iterable[Einsum]) -> None:
    tensors = {access.tensor for einsum in einsums for access in (einsum.output, *einsum.inputs)}
    bounded = [name for name, memory in architecture.memories.items() if {"capacity", "depth"} & set(memory.attributes)]
    outermost = {unit.memories[0] for unit in architecture.units.values()}
    for memory in plan.capacity:
        plan.source.check_known(memory, bounded, ("capacity", memory), "memory", "with a capacity")
    for number, memory in enumerate(plan.unchecked):
        plan.source.check_known(memory, architecture.memories, ("unchecked", number), "memory")
    for number, group in enumerate(plan.share_space):
        for tensor in group:
            plan.source.check_known(tensor, tensors, ("share_space", number), "tensor")
    for spill in plan.spills:
        inner = [memory for memory in bounded if memory not in outermost]
        plan.source.check_known(
            spill.memory, inner, (*spill.key, "memory"), "memory", "with a capacity and one outside it"
        )
        for tensor in spill.tensors:
            plan.source.check_known(tensor, tensors, (*spill.key, "tensors"), "tensor")
    for value in plan.parameters.values():
        if isinstance(value, LargestDivisor):
            plan.source.check_known(value.fits, bounded, (*value.key, "fits"), "memory", "with a capacity")
        elif isinstance(value, Overflow):
            plan.source.check_known(value.of, bounded, (*value.key, "overflow_of"), "memory", "with a capacity")
    for name in plan.hardware:
        plan.source.check_known(name, architecture.parameters, ("set", name), "parameter", f"of {architecture.name}")


def _check_phases(plan: Plan, architecture: Architecture, computed: Iterable[str]) -> None:
    seen: set[str] = set()
    for phase in plan.phases:
        for step in phase.steps:
            for unit, names in step.work.items():
                key: Key = (*step.key, unit)
                plan.source.check_known(unit, [*architecture.units, "stall"], key, "unit")
                for name in names:
                    plan.source.check_known(name, plan.einsums, key, "Einsum")
                    if name in seen:
                        raise plan.source.error(key, f"{name} is scheduled twice")
                    if plan.einsums[name].unit != unit:
                        raise plan.source.error(key, f"{name} runs on {plan.einsums[name].unit}, not on {unit}")
                    seen.add(name)
    for name in computed:
        if name not in seen:
            raise plan.source.error(("phases",), f"{name} is in no phase's steps")


def _check_expressions(plan: Plan, names: set[str], computed: Iterable[str]) -> None:
    """Check what every expression of the plan names; a stall may also name Einsums, for their cycles."""
    written = [value.of if isinstance(value, LargestDivisor) else value for value in plan.parameters.values()]
    stalls = plan.stalls()
    expressions = [value for value in written if isinstance(value, Located)]
    expressions += [each for each in plan.expressions() if each not in stalls]
    for located, known in [(each, names) for each in expressions] + [(each, names | set(computed)) for each in stalls]:
        for name in sorted(located.expression.names - known):
            raise located.source.error(
                located.key, f"unknown parameter {name!r} in {located.expression.text!r}; {allowed(name, known)}"
            )
