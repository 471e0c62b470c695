"""`arch_specs/*.yaml` -> `Architecture` -> `Hardware`: memories, units with their paths, and their parameters.

An architecture names component classes and sizes; what they cost is `dse.components`' to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from dse.cascade.einsum import FUNCTIONS, INFIX
from dse.components.estimators import check_installed, estimated_class
from dse.components.library import CLASSES, ComponentClass
from dse.components.own import RowError, own_classes
from dse.components.scaling import BASE_NM, check_technology
from dse.components.tables import ComponentError
from dse.specs.parameters import Located, locate, resolve
from dse.specs.quantity import BANDWIDTH, COUNT, FREQUENCY, INFORMATION, LENGTH, Dimension, Quantity
from dse.specs.source import Key, Source, SpecError, SpecModel, read_csv, read_yaml, show_path, validate
from dse.wording import allowed

ATTRIBUTES: Mapping[str, Dimension | None] = {
    "type": None,
    "width": INFORMATION,
    "capacity": INFORMATION,
    "depth": COUNT,
    "banks": COUNT,
    "ports": COUNT,
    "depth_exponent": COUNT,
}
"""Attributes of components and their dimensions (None: a word)."""
FRACTIONAL = ("depth_exponent",)
"""Attributes that need not be whole."""

DIRECTIONS: Mapping[str, tuple[str, ...]] = {
    "bandwidth": ("reads", "writes"),
    "read_bandwidth": ("reads",),
    "write_bandwidth": ("writes",),
}
"""Bandwidths that a memory may have, and the traffic that each carries."""

OPERATORS = ("neg", *INFIX.values(), *FUNCTIONS)
OPERATION_ALIASES = {"mac": ("mul", "add")}
"""Operations with a name of their own, beside those spelled out as `sub_exp`."""


def operation_name(operators: tuple[str, ...]) -> str:
    """How an operation is written in an architecture: `mac`, `sub_exp`."""
    return next((alias for alias, spelled in OPERATION_ALIASES.items() if spelled == operators), "_".join(operators))


class _Component(SpecModel):
    class_: str = Field(alias="class")
    type: str | None = None
    width: Any = None
    capacity: Any = None
    depth: Any = None
    banks: Any = None
    ports: Any = None
    depth_exponent: Any = None
    energy_scale: Any = None


class _Memory(_Component):
    bandwidth: Any = None
    read_bandwidth: Any = None
    write_bandwidth: Any = None


class _Unit(SpecModel):
    path: list[str | dict[str, Any]]
    components: dict[str, _Component]
    ops: dict[str, dict[str, Any]]


class _Estimator(SpecModel):
    """A component class that a model of hwcomponents prices: its actions and attributes by their names here, and others as
    they are."""

    model: str
    actions: dict[str, str]
    attributes: dict[str, str] = {}
    fixed: dict[str, Any] = {}


class _File(SpecModel):
    name: str
    about: str = ""
    parameters: dict[str, Any] = {}
    clock: Any
    technology: Any = f"{BASE_NM} nm"
    tables: list[str] = []
    estimators: dict[str, _Estimator] = {}
    memories: dict[str, _Memory]
    units: dict[str, _Unit]


@dataclass(frozen=True)
class ComponentSpec:
    """A component as written: its class and attributes, not yet numbers; `bandwidths` by the keys of `DIRECTIONS`;
    `energy_scale` is by what the tables' energies of its actions are multiplied (None: by nothing)."""

    name: str
    class_name: str
    attributes: Mapping[str, Located | str]
    source: Source
    key: Key
    bandwidths: Mapping[str, Located] = field(default_factory=dict)
    energy_scale: Located | None = None


@dataclass(frozen=True)
class OperationSpec:
    """What one operation costs a unit: counts of component actions, and cycles."""

    actions: Mapping[str, Located]
    cycles: Located | None


@dataclass(frozen=True)
class UnitSpec:
    """An array of compute units: the memories on its path, outermost first, each with the fan-out below it."""

    name: str
    path: tuple[tuple[str, Mapping[str, Located]], ...]
    components: Mapping[str, ComponentSpec]
    operations: Mapping[tuple[str, ...], OperationSpec]
    source: Source

    @cached_property
    def memories(self) -> tuple[str, ...]:
        """Memories of the path, outermost first."""
        return tuple(memory for memory, _ in self.path)

    @cached_property
    def axes(self) -> dict[str, int]:
        """Fan-out axes and the position in the path of the memory they stand below."""
        return {axis: depth for depth, (_, fanout) in enumerate(self.path) for axis in fanout}


@dataclass(frozen=True)
class Architecture:
    """What it runs on, as written; `resolve` gives its numbers. `classes` are the component classes that it may name."""

    name: str
    about: str
    parameters: Mapping[str, Located]
    clock: Located
    technology: Located
    classes: Mapping[str, ComponentClass]
    memories: Mapping[str, ComponentSpec]
    units: Mapping[str, UnitSpec]
    source: Source

    def is_dram(self, memory: str) -> bool:
        """Whether a memory's traffic is DRAM traffic: its class says so, or is a person's own and it stands outermost."""
        kind = self.memories[memory].class_name
        outermost = any(unit.path[0][0] == memory for unit in self.units.values())
        return kind == "dram" or (kind not in CLASSES and outermost)

    def resolve(self, overrides: Mapping[str, Quantity] | None = None) -> Hardware:
        """Every size as a number; `overrides` replaces parameters by name. Raises SpecError."""
        values = resolve(self.parameters, {}, overrides)
        fanouts = {
            name: tuple({axis: size.size(values) for axis, size in fanout.items()} for _, fanout in unit.path)
            for name, unit in self.units.items()
        }
        memories: dict[str, MemorySize] = {}
        for name, memory in self.memories.items():
            attributes = evaluate_attributes(memory, values)
            instances: Any = 1
            for unit_name, unit in self.units.items():
                if name in unit.memories:
                    above = fanouts[unit_name][: unit.memories.index(name)]
                    instances = _larger(instances, _product(size for fanout in above for size in fanout.values()))
            capacity = attributes.get("capacity")
            if "depth" in attributes:
                capacity = attributes["depth"] * attributes["width"]
            bandwidths = {key: located.positive(values, BANDWIDTH) / 8 for key, located in memory.bandwidths.items()}
            memories[name] = MemorySize(attributes, capacity, attributes["width"], instances, bandwidths)
        technology = self.technology.positive(values, LENGTH)
        try:
            check_technology(technology)
        except ComponentError as error:
            raise self.technology.source.error(self.technology.key, str(error)) from None
        return Hardware(self, values, self.clock.positive(values, FREQUENCY), technology, memories, fanouts)


@dataclass(frozen=True)
class MemorySize:
    """A memory in numbers: bits per instance (None: unbounded), bits per action, instances.

    `bandwidths` are bytes per second of an instance, by the keys of `DIRECTIONS`.
    """

    attributes: Mapping[str, Any]
    capacity_bits: Any
    width_bits: Any
    instances: Any
    bandwidths: Mapping[str, Any]


@dataclass(frozen=True)
class Hardware:
    """An architecture in numbers: clock in Hz, technology in nm, memories by name, fan-outs by unit and position in its
    path."""

    architecture: Architecture
    values: Mapping[str, Quantity]
    clock_hz: Any
    technology_nm: Any
    memories: Mapping[str, MemorySize]
    fanouts: Mapping[str, tuple[Mapping[str, Any], ...]]

    def unit_count(self, unit: str) -> Any:
        """Compute units of an array."""
        return _product(size for fanout in self.fanouts[unit] for size in fanout.values())


def evaluate_attributes(component: ComponentSpec, values: Mapping[str, Quantity]) -> dict[str, Any]:
    """A component's attributes as numbers: widths and capacities in bits."""
    found: dict[str, Any] = {}
    for name, located in component.attributes.items():
        if isinstance(located, str):
            found[name] = located
        elif name in FRACTIONAL:
            found[name] = located.not_negative(values)
        else:
            found[name] = located.size(values, ATTRIBUTES[name] or COUNT)
    return found


def load_architecture_file(path: Path) -> Architecture:
    """Read and check one architecture file. Raises SpecError."""
    data, source = read_yaml(path)
    file = validate(_File, data, source)
    parameters = {name: locate(value, source, ("parameters", name)) for name, value in file.parameters.items()}
    classes = dict(CLASSES)
    for number, table in enumerate(file.tables):
        own = _own_classes(path.parent / table, source, ("tables", number))
        for label in own:
            if label in classes:
                raise source.error(("tables", number), f"class {label!r} is in a table before {table} already")
        classes |= own
    for name, estimator in file.estimators.items():
        classes[name] = _estimated_class(name, estimator, classes, source)
    memories = {}
    for name, memory in file.memories.items():
        spec = _component(name, memory, classes, source, ("memories", name))
        if classes[spec.class_name].actions != ("read", "write"):
            known = [label for label, kind in classes.items() if kind.actions == ("read", "write")]
            does = ", ".join(classes[spec.class_name].actions)
            raise source.error(
                ("memories", name, "class"),
                f"{spec.class_name!r} is no memory, which reads and writes: it does {does}; {allowed(spec.class_name, known)}",
            )
        if "width" not in classes[spec.class_name].attributes:
            raise source.error(
                ("memories", name, "class"),
                f"{name}: the table of {spec.class_name!r} has no width_bits, which a memory needs",
            )
        bandwidths = {
            key: locate(value, source, ("memories", name, key))
            for key in DIRECTIONS
            if (value := getattr(memory, key)) is not None
        }
        memories[name] = replace(spec, bandwidths=bandwidths)
    units = {name: _unit(name, unit, memories, classes, source) for name, unit in file.units.items()}
    if not units:
        raise source.error(("units",), "units: an architecture has at least one unit")
    clock, technology = (locate(getattr(file, key), source, (key,)) for key in ("clock", "technology"))
    architecture = Architecture(file.name, file.about, parameters, clock, technology, classes, memories, units, source)
    values = architecture.resolve().values
    for part in (*memories.values(), *(each for unit in units.values() for each in unit.components.values())):
        if part.energy_scale is not None:
            part.energy_scale.not_negative(values)
    return architecture


def _own_classes(path: Path, source: Source, key: Key) -> dict[str, ComponentClass]:
    """The component classes of a person's own table. Raises SpecError."""
    columns, records = read_csv(path, source, key)
    try:
        return own_classes(columns, [row for _, row in records])
    except RowError as error:
        line = records[error.row][0] if error.row >= 0 else 1
        raise SpecError(f"{show_path(path)}:{line}: {error}") from None


def _estimated_class(
    name: str, written: _Estimator, classes: Mapping[str, ComponentClass], source: Source
) -> ComponentClass:
    """A component class that hwcomponents prices. Raises SpecError."""
    key: Key = ("estimators", name)
    if name in classes:
        raise source.error(key, f"class {name!r} is there already; give the estimator's another name")
    if not written.actions:
        raise source.error((*key, "actions"), "actions: name one or more, as {read: read}")
    known = [attribute for attribute in ATTRIBUTES if attribute != "type"]
    for attribute in written.attributes:
        source.check_known(attribute, known, (*key, "attributes", attribute), "attribute")
    try:
        check_installed()
    except ComponentError as error:
        raise source.error(key, str(error)) from None
    return estimated_class(written.model, written.actions, written.attributes, written.fixed)


def _component(
    name: str, written: _Component, classes: Mapping[str, ComponentClass], source: Source, key: Key
) -> ComponentSpec:
    kind = classes.get(written.class_)
    if kind is None:
        raise source.error(
            (*key, "class"), f"unknown component class {written.class_!r}; {allowed(written.class_, classes)}"
        )
    attributes: dict[str, Located | str] = {}
    for attribute in ATTRIBUTES:
        value = getattr(written, attribute)
        if value is None:
            if kind.attributes.get(attribute, False):
                raise source.error(key, f"{name}: a {written.class_} needs {attribute!r}")
            continue
        if attribute not in kind.attributes:
            raise source.error(
                (*key, attribute),
                f"{name}: a {written.class_} has no {attribute!r}; {allowed(attribute, kind.attributes)}",
            )
        attributes[attribute] = value if attribute == "type" else locate(value, source, (*key, attribute))
    scale = None if written.energy_scale is None else locate(written.energy_scale, source, (*key, "energy_scale"))
    return ComponentSpec(name, written.class_, attributes, source, key, energy_scale=scale)


def _unit(
    name: str,
    written: _Unit,
    memories: Mapping[str, ComponentSpec],
    classes: Mapping[str, ComponentClass],
    source: Source,
) -> UnitSpec:
    key: Key = ("units", name)
    path: list[tuple[str, dict[str, Located]]] = []
    axes: set[str] = set()
    for number, step in enumerate(written.path):
        at = (*key, "path", number)
        if isinstance(step, str):
            if step not in memories:
                raise source.error(at, f"unknown memory {step!r}; {allowed(step, memories)}")
            if step in (memory for memory, _ in path):
                raise source.error(at, f"{step} stands in the path twice")
            path.append((step, {}))
            continue
        if not path:
            raise source.error(at, "a path starts with a memory, outermost first")
        for axis, size in step.items():
            if axis in axes:
                raise source.error(
                    (*at, axis), f"axis {axis!r} stands in the path twice; give each fan-out axis a name of its own"
                )
            axes.add(axis)
            path[-1][1][axis] = locate(size, source, (*at, axis))
    if not path:
        raise source.error((*key, "path"), f"{name}: the path names at least one memory")
    components = {
        label: _component(label, part, classes, source, (*key, "components", label))
        for label, part in written.components.items()
    }
    actions: dict[str, str] = {}
    for label, part in components.items():
        for action in classes[part.class_name].actions:
            if action in actions:
                raise source.error(
                    (*key, "components", label),
                    f"{label} and {actions[action]} both do {action!r}; an action has one component",
                )
            actions[action] = label
    operations: dict[tuple[str, ...], OperationSpec] = {}
    for operation, cost in written.ops.items():
        at = (*key, "ops", operation)
        operators = OPERATION_ALIASES.get(operation, tuple(operation.split("_")))
        for operator in operators:
            if operator not in OPERATORS:
                raise source.error(
                    at,
                    f"unknown operator {operator!r} in op {operation!r}; {allowed(operator, {*OPERATORS, *OPERATION_ALIASES})}, or joined by _",
                )
        for action in cost:
            if action != "cycles" and action not in actions:
                raise source.error(
                    (*at, action), f"no component of {name} does {action!r}; {allowed(action, {*actions, 'cycles'})}"
                )
        located = {action: locate(count, source, (*at, action)) for action, count in cost.items()}
        cycles = located.pop("cycles", None)
        if operators in operations:
            raise source.error(at, f"op {operation!r} is {operation_name(operators)!r}, which stands here already")
        operations[operators] = OperationSpec(located, cycles)
    return UnitSpec(name, tuple(path), components, operations, source)


def _product(values: Any) -> Any:
    result: Any = 1
    for value in values:
        result = result * value
    return result


def _larger(left: Any, right: Any) -> Any:
    return max(left, right) if isinstance(left, int) and isinstance(right, int) else np.maximum(left, right)
