"""Component classes: what an architecture names, and the energy per action and area that follow from its attributes.

Given widths and capacities in bits, depths in words; returned energies in pJ, areas in um2 and leakage in mW. The tables
are for 45 nm; other technologies follow by `scaling`. Arrays broadcast.
Source of the closed forms: Accelergy's Aladdin, NeuroSim and CACTI plug-ins as Nayak et al. configure them (MICRO
2024, section VI); of the tables: see `data/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dse.components.scaling import BASE_NM, check_technology, logic_factors, scaled_sram, sram_table_nm
from dse.components.sram import sram, sram_exists
from dse.components.tables import ComponentError, Value, primitives

DIVIDER_ENERGY_90_TO_45 = 0.52705951
"""Energy of 90 nm logic at 45 nm (Stillmaker and Baas 2017), to the digits that the published 36.251153 pJ fixes."""
DIVIDER_AREA_90_TO_45 = 0.35
"""Area of 90 nm logic at 45 nm (Stillmaker and Baas 2017)."""

REGISTER_MIN_WIDTH, REGISTER_MIN_DEPTH = 32, 64
"""Smallest register file that the tables were made for; smaller ones are charged as this one or scaled down from it."""
REGISTER_DEPTH_EXPONENT = 0.78
"""Power of depth that a register file's storage energy scales with, where it names no other as `depth_exponent`."""


@dataclass(frozen=True)
class TableConventions:
    """How the tables are read; `Accounting` holds the documented switches."""

    scale_registers: bool = True
    use_banks: bool = True
    round_energies: bool = False


@dataclass(frozen=True)
class Component:
    """One row of the energy and area reference tables (ERT, ART).

    `energy_pj` per action name; `area_um2` and `leakage_mw` of one instance (0 where no source gives it); `cycle_ns` where
    the component bounds the clock, else None; `between_runs` where the figures are interpolated.
    """

    energy_pj: Mapping[str, Value]
    area_um2: Value
    source: str
    leakage_mw: Value = 0.0
    cycle_ns: Value | None = None
    between_runs: Value = False


@dataclass(frozen=True)
class ComponentClass:
    """A class by name: the attributes it takes (True where required), its actions, and how it is priced."""

    attributes: Mapping[str, bool]
    actions: tuple[str, ...]
    price: Callable[[Mapping[str, Any], TableConventions, Value], Component]


def price_component(
    kind: ComponentClass, attributes: Mapping[str, Any], conventions: TableConventions, technology_nm: Value = BASE_NM
) -> Component:
    """Energy and area of a component of a class. Raises ComponentError for what the tables cannot give."""
    component = kind.price(attributes, conventions, technology_nm)
    if not conventions.round_energies:
        return component
    rounded = {
        action: np.round(energy, 6) if np.ndim(energy) else round(energy, 6)
        for action, energy in component.energy_pj.items()
    }
    return replace(component, energy_pj=rounded)


def component_exists(
    kind: ComponentClass, attributes: Mapping[str, Any], conventions: TableConventions, technology_nm: Value = BASE_NM
) -> Any:
    """Where the tables can price a component of these attributes: True or False, or an array of them."""
    if kind is not CLASSES["sram"]:
        return True
    banks, ports = (attributes.get(key, 1) if conventions.use_banks else 1 for key in ("banks", "ports"))
    return sram_exists(attributes["capacity"] // 8, attributes["width"], banks, ports, sram_table_nm(technology_nm))


def scaled_logic(component: Component, technology_nm: Value) -> Component:
    """A component of logic in another technology than 45 nm. Raises ComponentError."""
    area, energy = logic_factors(technology_nm)
    return replace(
        component,
        energy_pj={action: each * energy for action, each in component.energy_pj.items()},
        area_um2=component.area_um2 * area,
        leakage_mw=component.leakage_mw * energy,
    )


def _logic(
    price: Callable[[Mapping[str, Any], TableConventions], Component],
) -> Callable[[Mapping[str, Any], TableConventions, Value], Component]:
    """A component that scales as logic does."""
    return lambda attributes, conventions, technology_nm: scaled_logic(price(attributes, conventions), technology_nm)


def _normalised(
    price: Callable[[Mapping[str, Any], TableConventions], Component],
) -> Callable[[Mapping[str, Any], TableConventions, Value], Component]:
    """A component whose energies are relative to one technology's multiply-add, and say nothing of another."""

    def in_base(attributes: Mapping[str, Any], conventions: TableConventions, technology_nm: Value) -> Component:
        if np.any(np.asarray(technology_nm) != BASE_NM):
            raise ComponentError("relative energies do not scale; leave the technology at 45 nm")
        return price(attributes, conventions)

    return in_base


def _dram(attributes: Mapping[str, Any], conventions: TableConventions, technology_nm: Value) -> Component:
    """Off-chip memory, whose energy a bit is its own, not the chip's technology's."""
    kinds = {name[5:-4]: cell for name, cell in primitives().items() if name.startswith("dram_")}
    cell = kinds.get(attributes["type"])
    if cell is None:
        raise ComponentError(f"unknown DRAM type {attributes['type']!r}; allowed: {', '.join(kinds)}")
    energy = cell.energy_pj(attributes["width"])
    return Component({"read": energy, "write": energy}, 0.0, cell.source)


def _sram(attributes: Mapping[str, Any], conventions: TableConventions, technology_nm: Value) -> Component:
    """CACTI's macro plus an address generator for reading and one for writing."""
    banks, ports = (attributes.get(key, 1) if conventions.use_banks else 1 for key in ("banks", "ports"))
    capacity, width = attributes["capacity"], attributes["width"]
    check_technology(technology_nm)
    macro = scaled_sram(sram(capacity // 8, width, banks, ports, sram_table_nm(technology_nm)), technology_nm)
    address = scaled_logic(_address_generator(capacity / width), technology_nm)
    address_pj = address.energy_pj["step"]
    return Component(
        {"read": macro.read_pj + address_pj, "write": macro.write_pj + address_pj},
        macro.area_um2 + 2 * address.area_um2,
        "CACTI 7; NeuroSim address generators",
        macro.leakage_mw + 2 * address.leakage_mw,
        macro.cycle_ns,
        macro.between_runs,
    )


def _register_file(attributes: Mapping[str, Any], conventions: TableConventions) -> Component:
    """Flip-flops with a comparator a word for writing, each bit read out, and two address generators."""
    bit, compare = primitives()["register_bit_read"], primitives()["comparator"]
    width, depth = attributes["width"], attributes["depth"]
    table_width, table_depth = np.maximum(REGISTER_MIN_WIDTH, width), np.maximum(REGISTER_MIN_DEPTH, depth)
    address = _address_generator(depth)
    address_pj = address.energy_pj["step"]
    storage = 1.0, 1.0
    if conventions.scale_registers:
        shrink = width / table_width
        exponent = attributes.get("depth_exponent", REGISTER_DEPTH_EXPONENT)
        storage = shrink * (depth / table_depth) ** exponent, shrink * (depth / table_depth)
    write = table_depth * compare.energy * storage[0]
    read = write + table_width * bit.energy * storage[0]
    area = (bit.area * table_width * table_depth + compare.area * table_depth) * storage[1]
    leakage = (bit.leakage * table_width * table_depth + compare.leakage * table_depth) * storage[1]
    energies = {"read": read + address_pj, "write": write + address_pj}
    return Component(energies, area + 2 * address.area_um2, bit.source, leakage + 2 * address.leakage_mw)


def _address_generator(depth: Value) -> Component:
    """An incrementer wide enough to count `depth` words, at 45 nm."""
    base, per_bit = primitives()["address_base"], primitives()["address_bit"]
    bits = np.maximum(1, np.ceil(np.log2(depth)))
    energy = base.energy + per_bit.energy * bits
    return Component({"step": energy}, per_bit.area * bits, base.source, per_bit.leakage * bits)


def _fp_mac(attributes: Mapping[str, Any], conventions: TableConventions) -> Component:
    adder, multiplier = primitives()["fp_adder"], primitives()["fp_multiplier"]
    width = attributes["width"]
    add, multiply = adder.energy_pj(width), multiplier.energy_pj(width)
    area = adder.area_um2(width) + multiplier.area_um2(width)
    leakage = adder.leakage_mw(width) + multiplier.leakage_mw(width)
    return Component({"mac": add + multiply, "add": add, "multiply": multiply}, area, multiplier.source, leakage)


def _int_mac(attributes: Mapping[str, Any], conventions: TableConventions) -> Component:
    """An integer multiplier and an adder of 32 bits behind it, which sums its products."""
    adder, multiplier = primitives()["int_adder"], primitives()["int_multiplier"]
    width = attributes["width"]
    add, multiply = adder.energy_pj(32), multiplier.energy_pj(width)
    area = adder.area_um2(32) + multiplier.area_um2(width)
    return Component({"mac": add + multiply, "add": add, "multiply": multiply}, area, multiplier.source)


def _fp_max(attributes: Mapping[str, Any], conventions: TableConventions) -> Component:
    compare, select = primitives()["comparator"], primitives()["multiplexer"]
    width = attributes["width"]
    energy = compare.energy_pj(width) + select.energy_pj(width)
    area = compare.area_um2(width) + select.area_um2(width)
    return Component({"max": energy}, area, compare.source, compare.leakage_mw(width) + select.leakage_mw(width))


def _fp_divider(attributes: Mapping[str, Any], conventions: TableConventions) -> Component:
    divider = primitives()["divider"]
    width = attributes["width"]
    energy = divider.energy_pj(width) * DIVIDER_ENERGY_90_TO_45
    return Component({"divide": energy}, divider.area_um2(width) * DIVIDER_AREA_90_TO_45, divider.source)


def _fp_exp(attributes: Mapping[str, Any], conventions: TableConventions) -> Component:
    """An exponential unit of five multiply-adds and one multiply in a row."""
    adder, multiplier = primitives()["fp_adder"], primitives()["fp_multiplier"]
    width = attributes["width"]
    energy = 5 * (adder.energy_pj(width) + multiplier.energy_pj(width)) + multiplier.energy_pj(width)
    area = 5 * (adder.area_um2(width) + multiplier.area_um2(width)) + multiplier.area_um2(width)
    leakage = 5 * adder.leakage_mw(width) + 6 * multiplier.leakage_mw(width)
    return Component({"exp": energy}, area, "5 multiply-adds and a multiply: " + multiplier.source, leakage)


def _relative_memory(attributes: Mapping[str, Any], conventions: TableConventions) -> Component:
    """A memory of Eyeriss's normalised hierarchy: an access of a word costs so many multiply-adds; no area is given."""
    kinds = {
        name.removeprefix("relative_"): cell for name, cell in primitives().items() if name.startswith("relative_")
    }
    del kinds["mac"]
    cell = kinds.get(attributes["type"])
    if cell is None:
        raise ComponentError(f"unknown relative memory {attributes['type']!r}; allowed: {', '.join(kinds)}")
    energy = cell.energy_pj(attributes["width"])
    return Component({"read": energy, "write": energy}, 0.0, cell.source)


def _relative_pe(attributes: Mapping[str, Any], conventions: TableConventions) -> Component:
    cell = primitives()["relative_mac"]
    return Component({"mac": cell.energy_pj(attributes["width"])}, 0.0, cell.source)


_WIDTH = {"width": True}
_SRAM = {"capacity": True, "width": True, "banks": False, "ports": False}
CLASSES: Mapping[str, ComponentClass] = {
    "dram": ComponentClass({"type": True, "width": True}, ("read", "write"), _dram),
    "sram": ComponentClass(_SRAM, ("read", "write"), _sram),
    "register_file": ComponentClass(
        {"depth": True, "width": True, "depth_exponent": False}, ("read", "write"), _logic(_register_file)
    ),
    "relative_memory": ComponentClass(
        {"type": True, "capacity": True, "width": True}, ("read", "write"), _normalised(_relative_memory)
    ),
    "relative_pe": ComponentClass(_WIDTH, ("mac",), _normalised(_relative_pe)),
    "fp_mac": ComponentClass(_WIDTH, ("mac", "add", "multiply"), _logic(_fp_mac)),
    "int_mac": ComponentClass(_WIDTH, ("mac", "add", "multiply"), _logic(_int_mac)),
    "fp_max": ComponentClass(_WIDTH, ("max",), _logic(_fp_max)),
    "fp_divider": ComponentClass(_WIDTH, ("divide",), _logic(_fp_divider)),
    "fp_exp": ComponentClass(_WIDTH, ("exp",), _logic(_fp_exp)),
}
"""Every component class that an architecture may name. A memory's action moves `width` bits: a DRAM burst, a row of an
SRAM, a word of a register file."""
