"""A bound workload -> its cost: cycles by unit, latency by phase, energy by Einsum, component and action, area.

Pure functions on arrays; the shape of every number is the shape of the design points given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dse.components.library import Component, component_exists, price_component
from dse.model.accounting import CORRECTED, Accounting
from dse.model.binding import Binding, bind
from dse.model.nest import exact_product
from dse.model.result import EinsumTiming, EnergyEntry, Phase, Result
from dse.model.traffic import Traffic, memory_traffic
from dse.specs.architecture import DIRECTIONS, Architecture, Hardware, evaluate_attributes
from dse.specs.mapping import Mapping as MappingSpec
from dse.specs.mapping import PhasePlan, Plan
from dse.specs.parameters import Located, resolve
from dse.specs.quantity import COUNT, DIMENSION_NAMES, Quantity
from dse.specs.source import SpecError
from dse.specs.workload import Workload
from dse.wording import allowed


def evaluate(
    architecture: Architecture,
    workload: Workload,
    mapping: MappingSpec,
    parameters: Mapping[str, Any] | None = None,
    choices: Mapping[str, str] | None = None,
    accounting: Accounting = CORRECTED,
) -> Result:
    """Price a workload on an architecture under a mapping.

    `parameters` sets parameters of any of the three by name: numbers in base units (bits, bit/s, Hz), `Quantity`s, or
    arrays of one shape, one entry a design point. `choices` picks the mapping's options.

    Raises SpecError for a name that does not exist and, where there is one point, for a mapping that cannot be; among
    many points `Result.feasible` marks those.
    """
    plan = mapping.plan(choices, published=accounting.design_quirks)
    given = _quantities(parameters or {}, architecture, workload, plan)
    own = {name: located.quantity({}) for name, located in plan.hardware.items() if name not in given}
    for name in own:
        if name not in architecture.parameters:
            raise plan.source.error(
                ("set", name),
                f"{architecture.name} has no parameter {name!r}; {allowed(name, architecture.parameters)}",
            )
    hardware = architecture.resolve(own | given)
    binding = bind(workload, hardware, plan, given)
    return price(binding, accounting)


def price(binding: Binding, accounting: Accounting) -> Result:
    """Cost of a binding: the whole model below the mapping."""
    tables, exists = component_tables(binding.hardware, accounting)
    traffic = memory_traffic(binding, accounting)
    timings = _timings(binding)
    phases = tuple(_phase(binding, phase, timings, traffic) for phase in binding.plan.phases)
    energy = _memory_energy(binding, traffic, tables) + _compute_energy(binding, timings, tables)
    if accounting.leakage:
        energy += _leakage(binding.hardware, tables, sum(phase.latency_s for phase in phases))
    return Result(
        binding=replace(binding, feasible=binding.feasible & exists),
        accounting=accounting,
        phases=phases,
        timings=timings,
        traffic=tuple(traffic),
        energy=tuple(energy),
        area=area_by_component(binding.hardware, tables, accounting),
        memories=tables[""],
    )


def component_tables(hardware: Hardware, accounting: Accounting) -> tuple[dict[str, dict[str, Component]], Any]:
    """Energy and area of every component, and where the tables have them all: True, or an array for design points.

    Memories stand under "", a unit's own components under the unit's name. Raises SpecError where no point has them.
    """
    exists: Any = True
    tables: dict[str, dict[str, Component]] = {"": {}}
    parts = [("", name, memory) for name, memory in hardware.architecture.memories.items()]
    for unit in hardware.architecture.units.values():
        tables[unit.name] = {}
        parts += [(unit.name, name, part) for name, part in unit.components.items()]
    for where, name, spec in parts:
        attributes = evaluate_attributes(spec, hardware.values)
        kind, technology = hardware.architecture.classes[spec.class_name], hardware.technology_nm
        there = component_exists(kind, attributes, accounting.tables, technology)
        if np.ndim(there) and np.any(there) and not np.all(there):
            attributes = {key: _where_it_exists(value, there) for key, value in attributes.items()}
            technology = _where_it_exists(technology, there)
            exists = exists & there
        try:
            component = price_component(kind, attributes, accounting.tables, technology)
        except ValueError as error:
            raise spec.source.error(spec.key, f"{spec.name}: {error}") from None
        if spec.energy_scale is not None:
            scale = spec.energy_scale.not_negative(hardware.values)
            energies = {action: energy * scale for action, energy in component.energy_pj.items()}
            component = replace(component, energy_pj=energies)
        tables[where][name] = component
    return tables, exists


def _where_it_exists(value: Any, there: Any) -> Any:
    """An attribute whose values at points without a component are those of a point that has one."""
    if np.ndim(value) == 0:
        return value
    return np.where(there, value, np.broadcast_to(value, there.shape)[np.argmax(there)])


def area_by_component(
    hardware: Hardware, tables: Mapping[str, Mapping[str, Component]], accounting: Accounting
) -> dict[str, Any]:
    """Area in um2 of all instances of each memory and component, as `MEMORY` and `UNIT.component`."""
    areas = {name: part.area_um2 * count for name, part, count in _on_chip(hardware, tables)}
    if accounting.container_area:
        areas["containers"] = sum(_containers(hardware, name) for name in hardware.architecture.units)
    return areas


def _on_chip(hardware: Hardware, tables: Mapping[str, Mapping[str, Component]]) -> Iterator[tuple[str, Component, Any]]:
    """Every memory and component by name, with its number of instances."""
    for name, memory in hardware.memories.items():
        yield name, tables[""][name], memory.instances
    for unit in hardware.architecture.units.values():
        for name in unit.components:
            yield f"{unit.name}.{name}", tables[unit.name][name], hardware.unit_count(unit.name)


def _leakage(hardware: Hardware, tables: Mapping[str, Mapping[str, Component]], latency_s: Any) -> list[EnergyEntry]:
    """Leakage of all instances of each component for a time; it is no action that could be counted."""
    return [
        EnergyEntry("leakage", name, "leak", "", 0.0, 1.0, part.leakage_mw * count * latency_s * PJ_PER_MW_S)
        for name, part, count in _on_chip(hardware, tables)
        if np.any(np.asarray(part.leakage_mw) > 0)
    ]


PJ_PER_MW_S = 1e9
"""Picojoules of a milliwatt in a second."""


def _containers(hardware: Hardware, unit: str) -> Any:
    """Spatial containers of an array: itself, and each column of a 2D one."""
    axes = [size for fanout in hardware.fanouts[unit] for size in fanout.values()]
    return 1 + (axes[0] if len(axes) > 1 else 0)


def _timings(binding: Binding) -> dict[str, EinsumTiming]:
    timings = {}
    for name, bound in binding.einsums.items():
        steps, operations = bound.steps, bound.points
        cycles, work = (exact_product(count, bound.cycles_per_operation) for count in (steps, operations))
        timings[name] = EinsumTiming(bound.unit.name, cycles, operations, work)
    return timings


def _phase(binding: Binding, plan: PhasePlan, timings: Mapping[str, EinsumTiming], traffic: list[Traffic]) -> Phase:
    hardware = binding.hardware
    cycles = {name: Quantity(timing.cycles) for name, timing in timings.items()}
    steps = []
    names: list[str] = []
    for step in plan.steps:
        if step.stall is not None:
            steps.append({"stall": {"stall": step.stall.not_negative({**binding.values, **cycles})}})
            continue
        steps.append({unit: {name: timings[name].cycles for name in einsums} for unit, einsums in step.work.items()})
        names.extend(name for einsums in step.work.values() for name in einsums)
    moved = _moved_per_instance(binding, names, traffic)
    seconds = {
        (memory, key): sum(by_einsum.values()) / hardware.memories[memory].bandwidths[key]
        for (memory, key), by_einsum in moved.items()
    }
    return Phase(plan.name, tuple(steps), moved, seconds, hardware.clock_hz)


def _moved_per_instance(
    binding: Binding, names: Sequence[str], traffic: Sequence[Traffic]
) -> dict[tuple[str, str], dict[str, Any]]:
    """Bytes by Einsum that one instance of a memory moves, for each (memory, bandwidth) of the hardware."""
    moved: dict[tuple[str, str], dict[str, Any]] = {}
    for memory, size in binding.hardware.memories.items():
        for key in size.bandwidths:
            by_einsum: dict[str, Any] = dict.fromkeys(names, 0.0)
            for entry in traffic:
                if entry.memory == memory and entry.einsum in by_einsum:
                    by_einsum[entry.einsum] = by_einsum[entry.einsum] + entry.bytes_of_one(DIRECTIONS[key])
            moved[memory, key] = by_einsum
    return moved


def _memory_energy(
    binding: Binding, traffic: list[Traffic], tables: Mapping[str, Mapping[str, Component]]
) -> list[EnergyEntry]:
    entries = []
    for entry in traffic:
        per_action = binding.hardware.memories[entry.memory].width_bits / entry.bits
        charged = entry.memory not in binding.plan.uncharged.get(entry.einsum, ())
        for action, elements in (("read", entry.reads), ("write", entry.writes)):
            if isinstance(elements, int) and elements == 0:
                continue
            energy = tables[""][entry.memory].energy_pj[action] if charged else 0.0
            entries.append(
                EnergyEntry(
                    entry.einsum,
                    entry.memory,
                    action,
                    entry.operand,
                    elements,
                    per_action,
                    elements * (energy / per_action),
                    elements * (entry.bits / 8),
                )
            )
    return entries


def _compute_energy(
    binding: Binding, timings: Mapping[str, EinsumTiming], tables: Mapping[str, Mapping[str, Component]]
) -> list[EnergyEntry]:
    entries = []
    for bound in binding.einsums.values():
        operations = timings[bound.name].operations
        per_action = {
            action: (name, energy)
            for name, part in tables[bound.unit.name].items()
            for action, energy in part.energy_pj.items()
        }
        for action, count in bound.actions.items():
            component, energy = per_action[action]
            if action in binding.plan.uncharged.get(bound.name, ()):
                energy = 0.0
            entries.append(
                EnergyEntry(
                    bound.name,
                    f"{bound.unit.name}.{component}",
                    action,
                    "",
                    operations,
                    1 / count,
                    operations * (count * energy),
                )
            )
    return entries


def _quantities(
    parameters: Mapping[str, Any], architecture: Architecture, workload: Workload, plan: Plan
) -> dict[str, Quantity]:
    """What was given, each with the dimension of the parameter it sets. Raises SpecError for an unknown name."""
    known: dict[str, Any] = {**architecture.parameters, **workload.parameters, **plan.parameters, **workload.ranks}
    defaults = resolve(architecture.parameters, {})
    found = {}
    for name, value in parameters.items():
        if name not in known:
            raise SpecError(
                f"unknown parameter {name!r} of {architecture.name}, {workload.name} and {plan.name}; {allowed(name, known)}"
            )
        if name in defaults:
            dimension = defaults[name].dimension
        else:
            written = known[name]
            constant = isinstance(written, Located) and not written.expression.names
            dimension = written.quantity({}).dimension if constant else COUNT
        quantity = value if isinstance(value, Quantity) else Quantity(_number(name, value), dimension)
        if quantity.dimension != dimension:
            raise SpecError(f"{name} takes {DIMENSION_NAMES[dimension]}")
        found[name] = quantity
    return found


def _number(name: str, value: Any) -> Any:
    """A given value as Python's number or an array of int64 or float64, wide enough to compute in. Raises SpecError."""
    array = np.asarray(value)
    if array.dtype.kind not in "iuf" or array.size == 0:
        raise SpecError(f"{name}: expected a number or an array of numbers, found {value!r:.60}")
    if array.ndim == 0:
        return array.item()
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
