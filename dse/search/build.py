"""Specs -> `Problem`: an Einsum of a workload on a unit of an architecture, in numbers, under a person's demands.

Demands that cannot hold together are refused here, by the two that clash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dse.cascade.cascade import rank_of
from dse.cascade.einsum import Einsum
from dse.model.accounting import CORRECTED
from dse.model.einsum_nest import operand_names, operation_cost
from dse.model.evaluate import component_tables
from dse.model.feasibility import divisors_of
from dse.model.nest import Operand, overlapping_ranks, product
from dse.search.problem import ChainLevel, Constraints, Problem
from dse.specs.architecture import Hardware, UnitSpec
from dse.specs.mapspace import ALL, MapspaceSpec, factor_bounds
from dse.specs.quantity import Quantity
from dse.specs.source import Key
from dse.specs.workload import Workload

NO_RANK = "-"
"""Stands for the rank, of size 1, of an Einsum of numbers alone."""


def units_for(workload: Workload, hardware: Hardware, einsum: Einsum, spec: MapspaceSpec) -> list[UnitSpec]:
    """Units that have what an Einsum computes, or the one demanded. Raises SpecError where there is none."""
    units = hardware.architecture.units
    for demands in reversed(spec.demands(einsum.name)):
        if demands.unit is not None:
            operation_cost(einsum, units[demands.unit], hardware.values, spec.source, (*demands.key, "unit"))
            return [units[demands.unit]]
    able = [unit for unit in units.values() if _can(unit, einsum)]
    if not able:
        raise workload.source.error(
            ("einsums", list(workload.cascade.einsums).index(einsum)),
            f"no unit of {hardware.architecture.name} does what {einsum.name} needs ({', '.join(einsum.operators)}); "
            f"units: {', '.join(units)}",
        )
    return able


def _can(unit: UnitSpec, einsum: Einsum) -> bool:
    return einsum.operators in unit.operations or all((each,) in unit.operations for each in einsum.operators)


def build_problem(
    workload: Workload,
    hardware: Hardware,
    einsum: Einsum,
    unit: UnitSpec,
    spec: MapspaceSpec,
    values: Mapping[str, Quantity],
) -> Problem:
    """What the mapper is to solve. `values` holds the workload's parameters and rank shapes. Raises SpecError."""
    shapes = workload.shapes(values)
    ranks = einsum.variables or (NO_RANK,)
    sizes = tuple(int(shapes[rank_of(rank)]) for rank in einsum.variables) or (1,)
    names = operand_names(einsum, workload.cascade)
    operands = tuple(
        Operand(
            name,
            tuple(
                tuple((rank, int(scale.evaluate(shapes))) for rank, scale in index.terms) for index in access.indices
            ),
            access is einsum.output,
            (),
        )
        for name, access in names.items()
    )
    tensors = {name: access.tensor for name, access in names.items()}
    actions, cycles = operation_cost(einsum, unit, hardware.values, workload.source, ())
    tables, _ = component_tables(hardware, CORRECTED)
    prices = {action: pj for part in tables[unit.name].values() for action, pj in part.energy_pj.items()}
    bits = _bits(workload, einsum)
    problem = Problem(
        einsum.name,
        unit.name,
        ranks,
        sizes,
        operands,
        tensors,
        _chain(bits, hardware, unit, tables[""]),
        float(cycles / hardware.clock_hz),
        float(sum(count * prices[action] for action, count in actions.items())),
        bits / 8,
    )
    problem = replace(problem, imperfect=_imperfect(problem, spec))
    constraints = _Combined(problem, spec, hardware, values).constraints()
    sequential = {
        axis: frozenset(rank for rank in constraints.ranks.get(axis, ranks) if rank not in workload.cascade.iterative)
        for level in problem.levels
        for axis, _ in level.axes
    }
    return replace(problem, constraints=replace(constraints, ranks={**constraints.ranks, **sequential}))


def _imperfect(problem: Problem, spec: MapspaceSpec) -> frozenset[str]:
    """Ranks that may be spread over PEs that do not divide them. Raises SpecError for one whose tiles overlap."""
    whole = overlapping_ranks(problem.operands)
    for demands in reversed(spec.demands(problem.einsum)):
        if demands.imperfect is None:
            continue
        if ALL in demands.imperfect:
            return frozenset(problem.ranks) - set(whole)
        for number, rank in enumerate(demands.imperfect):
            if rank in whole:
                raise spec.source.error(
                    (*demands.key, "imperfect", number),
                    f"{problem.einsum}: {rank} must be divided, for it indexes {whole[rank]}, whose tiles overlap",
                )
        return frozenset(demands.imperfect) & set(problem.ranks)
    return frozenset()


def _bits(workload: Workload, einsum: Einsum) -> int:
    """Bits of a value of the tensors of an Einsum. Raises SpecError where they differ."""
    bits = {access.tensor: workload.bits_of(access.tensor) for access in (*einsum.inputs, einsum.output)}
    if len(set(bits.values())) > 1:
        shown = ", ".join(f"{tensor} {count}" for tensor, count in bits.items())
        raise workload.source.error(
            ("types",), f"{einsum.name}: the mapper takes tensors of one width; found bits: {shown}"
        )
    return next(iter(bits.values()))


def _chain(word: int, hardware: Hardware, unit: UnitSpec, tables: Mapping[str, Any]) -> tuple[ChainLevel, ...]:
    """The memories on a unit's path. Shares of memories that other units use too are those that `dse.model` gives."""
    levels = []
    for depth, (memory, fanout) in enumerate(unit.path):
        size = hardware.memories[memory]
        on_path = product(each for outer in hardware.fanouts[unit.name][:depth] for each in outer.values())
        share = size.instances / on_path
        innermost = depth == len(unit.path) - 1 and not fanout
        capacity = float("inf") if size.capacity_bits is None else size.capacity_bits / word
        elements = size.width_bits / word
        levels.append(
            ChainLevel(
                memory,
                float(tables[memory].energy_pj["read"] / elements),
                float(tables[memory].energy_pj["write"] / elements),
                capacity if innermost else capacity * share,
                {key: word / 8 / (rate * share) for key, rate in size.bandwidths.items()},
                tuple((axis, int(length)) for axis, length in hardware.fanouts[unit.name][depth].items()),
                hardware.architecture.is_dram(memory),
            )
        )
    return tuple(levels)


class _Combined:
    """The demands on one problem, later ones over earlier, each with where it stands."""

    def __init__(
        self, problem: Problem, spec: MapspaceSpec, hardware: Hardware, values: Mapping[str, Quantity]
    ) -> None:
        self.problem = problem
        self.source = spec.source
        self.every = spec.demands(problem.einsum)
        self.values = {**hardware.values, **values}
        self.slots = {*problem.memories, *(axis for level in problem.levels for axis, _ in level.axes)}

    def constraints(self) -> Constraints:
        """The demands in numbers. Raises SpecError for two that clash."""
        keep, bypass = self._tensors("keep"), self._tensors("bypass")
        for memory, names in keep.items():
            for name, key in names.items():
                if name in bypass.get(memory, {}):
                    raise self._clash(key, f"{memory} keeps {name}", bypass[memory][name], f"{memory} lets it pass by")
        home = self.problem.memories[0]
        for name, key in bypass.get(home, {}).items():
            raise self.source.error(key, f"{name} comes from {home} or ends there, so {home} keeps it")
        ranks, where = self._ranks()
        factors, places = self._factors()
        for (slot, rank), (least, _) in factors.items():
            if least > 1 and slot in ranks and rank not in ranks[slot]:
                raise self._clash(
                    places[slot, rank],
                    f"{rank} has a factor of {least} at {slot}",
                    where[slot],
                    f"{slot} leaves {rank} out",
                )
        self._check_products(factors, places)
        order = {}
        for demands in self.every:
            for memory, own in demands.order.items():
                if memory in self.slots:
                    order[memory] = tuple(rank for rank in own if rank in self.problem.ranks)
        shares = [demands.utilization for demands in self.every if demands.utilization is not None]
        return Constraints(
            factors,
            ranks,
            {memory: frozenset(names) for memory, names in keep.items()},
            {memory: frozenset(names) for memory, names in bypass.items()},
            order,
            shares[-1] if shares else 0.0,
        )

    def _tensors(self, section: str) -> dict[str, dict[str, Key]]:
        found: dict[str, dict[str, Key]] = {}
        for demands in self.every:
            for memory, names in getattr(demands, section).items():
                if memory in self.slots:
                    chosen = self.problem.names if ALL in names else [n for n in names if n in self.problem.names]
                    found[memory] = dict.fromkeys(chosen, (*demands.key, section, memory))
        return found

    def _ranks(self) -> tuple[dict[str, frozenset[str]], dict[str, Key]]:
        found: dict[str, frozenset[str]] = {}
        where: dict[str, Key] = {}
        for demands in self.every:
            for slot, ranks in demands.ranks.items():
                if slot in self.slots:
                    found[slot], where[slot] = frozenset(ranks), (*demands.key, "ranks", slot)
        return found, where

    def _factors(self) -> tuple[dict[tuple[str, str], tuple[int, int]], dict[tuple[str, str], Key]]:
        sizes = dict(zip(self.problem.ranks, self.problem.sizes, strict=True))
        axes = {axis: length for level in self.problem.levels for axis, length in level.axes}
        found: dict[tuple[str, str], tuple[int, int]] = {}
        places: dict[tuple[str, str], Key] = {}
        for demands in self.every:
            for (slot, rank), demand in demands.factors.items():
                if slot not in self.slots or rank not in sizes:
                    continue
                key: Key = (*demands.key, "factors", slot, rank)
                least, most = factor_bounds(demand, self.values)
                top = min(sizes[rank], axes.get(slot, sizes[rank]), sizes[rank] if most is None else most)
                at_will = slot in axes and rank in self.problem.imperfect
                fitting = range(1, top + 1) if at_will else divisors_of(sizes[rank]).tolist()
                if not any(least <= factor <= top for factor in fitting):
                    limit = f", axis {slot} has {axes[slot]}" if slot in axes else ""
                    wanted = f"{least}" if least == most else f"{least} to {sizes[rank] if most is None else most}"
                    near = ", ".join(str(each) for each in divisors_of(sizes[rank]).tolist()[:12])
                    raise self.source.error(
                        key,
                        f"{self.problem.einsum}: no factor of {rank.upper()} = {sizes[rank]} is {wanted} at {slot}"
                        f"{limit}; its divisors: {near}",
                    )
                found[slot, rank], places[slot, rank] = (least, top), key
        return found, places

    def _check_products(
        self, factors: Mapping[tuple[str, str], tuple[int, int]], places: Mapping[tuple[str, str], Key]
    ) -> None:
        """Refuse two factors that a rank, or an axis, is too small for together."""
        sizes = dict(zip(self.problem.ranks, self.problem.sizes, strict=True))
        axes = {axis: length for level in self.problem.levels for axis, length in level.axes}
        needed = [(slot, rank, least) for (slot, rank), (least, _) in factors.items() if least > 1]
        for number, (slot, rank, least) in enumerate(needed):
            for other_slot, other_rank, other in needed[:number]:
                one = f"{slot} has {rank}: {least} at least"
                two = f"{other_slot} has {other_rank}: {other} at least"
                if rank == other_rank and least * other > sizes[rank]:
                    two += f", {rank.upper()} is {sizes[rank]}"
                elif not (slot == other_slot and slot in axes and least * other > axes[slot]):
                    continue
                else:
                    two += f", axis {slot} has {axes[slot]}"
                raise self._clash(places[slot, rank], one, places[other_slot, other_rank], two)

    def _clash(self, key: Key, one: str, other_key: Key, other: str) -> Exception:
        return self.source.error(
            key, f"{self.problem.einsum}: no mapping can have both: {one}; {other} ({self.source.place(other_key)})"
        )
