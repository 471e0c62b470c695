"""What an evaluation found, and the ways to open it: totals, and tables by Einsum, component or action.

Opened, parts are rounded to the last bit of the total of their point, so that any grouping of them adds up to it exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.components.library import Component
from dse.components.sram import INTERPOLATION_ERROR
from dse.model.accounting import Accounting
from dse.model.binding import Binding
from dse.model.traffic import Traffic

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class EinsumTiming:
    """An Einsum on its unit: cycles it keeps the unit busy, operations, and unit-cycles of useful work."""

    unit: str
    cycles: Any
    operations: Any
    work: Any


@dataclass(frozen=True)
class EnergyEntry:
    """One line of the ledger: actions of a component that an Einsum causes (for an operand), their energy in pJ, and the
    bytes that they move."""

    einsum: str
    component: str
    action: str
    operand: str
    elements: Any
    per_action: Any
    energy_pj: Any
    bytes: Any = 0.0

    @property
    def count(self) -> Any:
        """Actions: elements moved over those an action moves, or operations times the actions of one."""
        return self.elements / self.per_action


@dataclass(frozen=True)
class Phase:
    """One phase: cycles by step, unit and Einsum; bytes of an instance by (memory, bandwidth) and Einsum; seconds that
    each such memory takes."""

    name: str
    steps: Sequence[Mapping[str, Mapping[str, Any]]]
    moved_bytes: Mapping[tuple[str, str], Mapping[str, Any]]
    memory_seconds: Mapping[tuple[str, str], Any]
    clock_hz: Any

    @property
    def compute_s(self) -> Any:
        """Seconds that the units take: each step as long as its slowest unit."""
        return sum(_largest(sum(einsums.values()) for einsums in step.values()) for step in self.steps) / self.clock_hz

    @property
    def memory_s(self) -> Any:
        """Seconds that the slowest memory takes to move its bytes."""
        return _largest(self.memory_seconds.values()) if self.memory_seconds else 0.0

    @property
    def latency_s(self) -> Any:
        """Seconds of the phase: the longer of compute and memory."""
        return np.maximum(self.compute_s, self.memory_s)

    def critical(self) -> dict[str, Any]:
        """Seconds of the phase by Einsum: of compute, those on each step's slowest unit; of memory, by bytes moved."""
        shares: dict[str, Any] = {}
        for step in self.steps:
            totals = [sum(einsums.values()) for einsums in step.values()]
            for einsums, slowest in zip(step.values(), _first_largest(totals), strict=True):
                for name, cycles in einsums.items():
                    shares[name] = shares.get(name, 0) + cycles / self.clock_hz * slowest
        bound_by_memory = np.asarray(self.memory_s > self.compute_s)
        slowest_memory = _largest(self.memory_seconds.values()) if self.memory_seconds else 0.0
        taken = False
        for memory, seconds in self.memory_seconds.items():
            here = bound_by_memory & (seconds == slowest_memory) & np.logical_not(taken)
            taken = taken | here
            total = sum(self.moved_bytes[memory].values())
            for name, moved in self.moved_bytes[memory].items():
                share = seconds * moved / np.maximum(total, 1)
                shares[name] = np.where(here, share, shares.get(name, 0))
            if "stall" in shares:
                shares["stall"] = np.where(here, 0, shares["stall"])
        return shares


@dataclass(frozen=True)
class Result:
    """The cost of one workload on one architecture under one mapping; numbers have the shape of the design points.

    `area` in um2 by component; `memories` are the table entries of each memory.
    """

    binding: Binding
    accounting: Accounting
    phases: Sequence[Phase]
    timings: Mapping[str, EinsumTiming]
    traffic: Sequence[Traffic]
    energy: Sequence[EnergyEntry]
    area: Mapping[str, Any]
    memories: Mapping[str, Component]

    @property
    def feasible(self) -> Any:
        """True, or a boolean array where some design points cannot exist."""
        return self.binding.feasible

    @cached_property
    def latency_s(self) -> Any:
        """Seconds, phases one after another."""
        return sum(phase.latency_s for phase in self.phases)

    @property
    def compute_s(self) -> Any:
        """Seconds if no memory bound it."""
        return sum(phase.compute_s for phase in self.phases)

    @property
    def memory_s(self) -> Any:
        """Seconds that the memories' bandwidth alone would take."""
        return sum(phase.memory_s for phase in self.phases)

    @cached_property
    def energy_pj(self) -> Any:
        """Energy in pJ: the sum of the ledger."""
        return sum(entry.energy_pj for entry in self.energy)

    @cached_property
    def dram_bytes(self) -> Any:
        """Bytes read from and written to DRAM."""
        return sum(self._dram_bytes_by_einsum().values())

    @property
    def area_um2(self) -> Any:
        """Area of the chip in um2."""
        return sum(self.area.values())

    def utilization(self, unit: str, einsum: str | None = None) -> Any:
        """Share of a unit's cycles that do useful work, of all Einsums or of one."""
        hardware = self.binding.hardware
        names = [einsum] if einsum else list(self.timings)
        work = sum(self.timings[name].work for name in names if self.timings[name].unit == unit)
        return work / (hardware.unit_count(unit) * self.latency_s * hardware.clock_hz)

    def unit_cycles(self, unit: str) -> Any:
        """Cycles that a unit is busy."""
        return sum(timing.cycles for timing in self.timings.values() if timing.unit == unit)

    @property
    def peak_per_s(self) -> Any:
        """Operations a second if every PE does one a cycle: the roof of a roofline (Williams et al., CACM 2009)."""
        hardware = self.binding.hardware
        return sum(hardware.unit_count(unit) for unit in hardware.architecture.units) * hardware.clock_hz

    @property
    def dram_bytes_per_s(self) -> Any:
        """Bytes a second that DRAM can move, in both directions: the slope of a roofline."""
        hardware = self.binding.hardware
        return sum(
            rate * memory.instances
            for name, memory in hardware.memories.items()
            if hardware.architecture.is_dram(name)
            for rate in memory.bandwidths.values()
        )

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of the design points; () for one."""
        return np.broadcast_shapes(*(np.shape(value) for value in (self.latency_s, self.energy_pj, self.area_um2)))

    def totals(self) -> dict[str, Any]:
        """The columns of a results row, by name."""
        units = self.binding.hardware.architecture.units
        return {
            "latency_s": self.latency_s,
            "energy_pj": self.energy_pj,
            "dram_bytes": self.dram_bytes,
            "area_um2": self.area_um2,
            **{f"util_{unit}": self.utilization(unit) for unit in units},
            **{f"cycles_{unit}": self.unit_cycles(unit) for unit in units},
            "compute_s": self.compute_s,
            "memory_s": self.memory_s,
            "operations": sum(timing.operations for timing in self.timings.values()),
            "peak_per_s": self.peak_per_s,
            "dram_bytes_per_s": self.dram_bytes_per_s,
        }

    def to_frame(self, by: str | None = None) -> pd.DataFrame:
        """A tidy table: one row a point, or opened `by` "einsum", "component" or "action".

        Opened by Einsum, the columns are its unit, cycles, utilization, latency in s (the share on the critical path),
        DRAM bytes and energy in pJ; by component or action, the count of actions, bytes moved and energy, and by
        component the area in um2. Parts add up to the totals exactly. Several points add a column `point`, or, unopened,
        `feasible`.
        """
        import pandas as pd

        if by is None:
            totals = {**self.totals(), **({"feasible": self.feasible} if self.shape else {})}
            return pd.DataFrame({name: _column(value, self.shape) for name, value in totals.items()})
        if by not in GROUPINGS:
            raise ValueError(f"by is one of {', '.join(GROUPINGS)}, found {by!r}")
        keys = GROUPINGS[by]
        energies = _exact_parts([entry.energy_pj for entry in self.energy], self.energy_pj)
        groups: dict[tuple[str, ...], dict[str, Any]] = {}
        for entry, energy in zip(self.energy, energies, strict=True):
            group = groups.setdefault(
                tuple(getattr(entry, key) for key in keys), dict.fromkeys(("count", "bytes", "energy_pj"), 0.0)
            )
            group["count"] = group["count"] + entry.count
            group["bytes"] = group["bytes"] + entry.bytes
            group["energy_pj"] = group["energy_pj"] + energy
        if by == "einsum":
            groups = self._by_einsum(groups)
        if by == "component":
            groups = self._with_area(groups)
        points = max(1, math.prod(self.shape))
        columns = {name: np.repeat([key[position] for key in groups], points) for position, name in enumerate(keys)}
        if self.shape:
            columns = {"point": np.tile(np.arange(points), len(groups)), **columns}
        for name in next(iter(groups.values())):
            parts = [values[name] for values in groups.values()]
            if isinstance(parts[0], str):
                columns[name] = np.repeat(parts, points)
            else:
                columns[name] = np.concatenate([_column(part, self.shape) for part in parts])
        return pd.DataFrame(columns)

    def notes(self) -> list[str]:
        """What a reader of the numbers should know: the sizes found for tiles, and memories slower than the clock."""
        found = []
        sizes = {name: self.binding.values[name].value for name in self.binding.plan.parameters}
        if sizes and not self.shape:
            found.append("mapping: " + ", ".join(f"{name} = {value:.6g}" for name, value in sizes.items()))
        period_ns = float(np.min(1e9 / self.binding.hardware.clock_hz))
        for name, memory in self.memories.items():
            if memory.cycle_ns is not None and (slowest := float(np.max(memory.cycle_ns))) > period_ns:
                found.append(
                    f"note: {name} takes {slowest:.3g} ns a cycle, the clock {period_ns:.3g} ns: an access every clock "
                    f"keeps {math.ceil(slowest / period_ns)} banks busy, it has {self._banks(name)}; this latency is not modelled"
                )
            if np.any(memory.between_runs):
                found.append(
                    f"note: the cost of {name} is interpolated between CACTI's capacities: half of such figures are within {INTERPOLATION_ERROR:.0%}"
                )
        return found

    def _banks(self, memory: str) -> Any:
        if self.accounting.single_bank_buffers:
            return 1
        return np.max(self.binding.hardware.memories[memory].attributes.get("banks", 1))

    def _with_area(self, groups: Mapping[tuple[str, ...], dict[str, Any]]) -> dict[tuple[str, ...], dict[str, Any]]:
        """Count, bytes, energy and area by component, unused components included."""
        areas = dict(zip(self.area, _exact_parts(list(self.area.values()), self.area_um2), strict=True))
        names = dict.fromkeys([*(name for (name,) in groups), *areas])
        idle = dict.fromkeys(("count", "bytes", "energy_pj"), 0.0)
        return {(name,): {**groups.get((name,), idle), "area_um2": areas.get(name, 0.0)} for name in names}

    def _by_einsum(self, groups: Mapping[tuple[str, ...], dict[str, Any]]) -> dict[tuple[str, ...], dict[str, Any]]:
        """Unit, cycles, utilization, critical time, DRAM bytes and energy by Einsum, and by stall."""
        critical: dict[str, Any] = dict.fromkeys(self.timings, 0.0)
        for phase in self.phases:
            for name, seconds in phase.critical().items():
                critical[name] = critical.get(name, 0.0) + seconds
        latency = dict(zip(critical, _exact_parts(list(critical.values()), self.latency_s), strict=True))
        moved = self._dram_bytes_by_einsum()
        moved = dict(zip(moved, _exact_parts(list(moved.values()), self.dram_bytes), strict=True))
        rows: dict[tuple[str, ...], dict[str, Any]] = {}
        for name in [*critical, *(name for (name,) in groups if name not in critical)]:
            timing = self.timings.get(name)
            rows[name,] = {
                "unit": timing.unit if timing else "",
                "cycles": timing.cycles if timing else 0,
                "utilization": self.utilization(timing.unit, name) if timing else 0.0,
                "latency_s": latency.get(name, 0.0),
                "dram_bytes": moved.get(name, 0.0),
                "operations": timing.operations if timing else 0,
                "energy_pj": groups[name,]["energy_pj"] if (name,) in groups else 0.0,
            }
        return rows

    def _dram_bytes_by_einsum(self) -> dict[str, Any]:
        architecture = self.binding.hardware.architecture
        names = list(self.timings)
        moved = dict.fromkeys(names, 0.0)
        for entry in self.traffic:
            if architecture.is_dram(entry.memory):
                moved[entry.einsum] = moved[entry.einsum] + entry.bits / 8 * (entry.reads + entry.writes)
        return moved


GROUPINGS = {"einsum": ("einsum",), "component": ("component",), "action": ("einsum", "component", "action", "operand")}
"""How a result opens, and the columns that name its parts."""


def _column(value: Any, shape: tuple[int, ...]) -> Any:
    """A value for every point, as a column holds it: integers past int64 as floats."""
    if isinstance(value, int) and abs(value) >= 2**63:
        value = float(value)
    return np.broadcast_to(value, shape).ravel()


def _exact_parts(parts: Sequence[Any], total: Any) -> list[Any]:
    """The parts on the grid of the total's last bit, on which sums are exact in any order; the largest part takes what
    rounding leaves."""
    grid = np.ldexp(1.0, np.frexp(np.maximum(total, np.finfo(float).tiny))[1] - 53)
    rounded = [np.round(np.asarray(part, dtype=np.float64) / grid) * grid for part in parts]
    rest = total - sum(rounded)
    exact = [part + rest * here for part, here in zip(rounded, _first_largest(rounded), strict=True)]
    return [float(part) if np.ndim(part) == 0 else part for part in exact]


def _first_largest(values: Sequence[Any]) -> list[Any]:
    """For each value whether it is the largest at a point, of equal ones the first."""
    largest = _largest(values)
    found: list[Any] = []
    taken: Any = False
    for value in values:
        found.append((value == largest) & np.logical_not(taken))
        taken = taken | found[-1]
    return found


def _largest(values: Any) -> Any:
    found: Any = None
    for value in values:
        larger = max if isinstance(found, int) and isinstance(value, int) else np.maximum
        found = value if found is None else larger(found, value)
    return found
