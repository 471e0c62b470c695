"""Component classes from a person's own table: each row gives an action's energy and the area at one size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.components.library import CLASSES, Component, ComponentClass, TableConventions, scaled_logic
from dse.components.scaling import BASE_NM
from dse.components.tables import ComponentError, Value

REQUIRED = ("class", "action", "energy_pj")
SIZES = {"width_bits": "width", "depth": "depth", "capacity_bits": "capacity"}
"""Columns that tell sizes apart, and the attributes of a component that they are."""
OPTIONAL = (*SIZES, "area_um2", "leakage_mw", "technology_nm", "source")
Size = tuple[float, ...]


class RowError(ComponentError):
    """A row of a table that cannot be: its number among the rows, and what is wrong."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


@dataclass
class _Class:
    """What a table says of one class: by technology and size, the energy by action, area and leakage."""

    sizes: tuple[str, ...]
    energy: dict[tuple[float, Size], dict[str, float]]
    area: dict[tuple[float, Size], float]
    leakage: dict[tuple[float, Size], float]
    source: str


def own_classes(columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> dict[str, ComponentClass]:
    """The classes of a table. Raises RowError (row -1: the heading)."""
    known = (*REQUIRED, *OPTIONAL)
    for column in REQUIRED:
        if column not in columns:
            raise RowError(-1, f"column {column!r} is missing; required: {', '.join(REQUIRED)}")
    for column in columns:
        if column not in known:
            raise RowError(-1, f"unknown column {column!r}; allowed: {', '.join(known)}")
    found: dict[str, _Class] = {}
    for number, row in enumerate(rows):
        name, action = row["class"].strip(), row["action"].strip()
        if not name or not action:
            raise RowError(number, "a row names a class and an action")
        if name in CLASSES:
            raise RowError(number, f"class {name!r} is one of the tool's own; give yours another name")
        values = {column: _number(number, column, row.get(column) or "") for column in (*known[2:-1],)}
        sizes = tuple(column for column in SIZES if values[column] is not None)
        own = found.setdefault(name, _Class(sizes, {}, {}, {}, row.get("source") or "the table given"))
        if own.sizes != sizes:
            raise RowError(number, f"{name} has sizes in {', '.join(own.sizes) or 'no column'} before, here in others")
        place = (values["technology_nm"] or BASE_NM, tuple(values[column] or 0.0 for column in sizes))
        actions = own.energy.setdefault(place, {})
        if action in actions:
            raise RowError(number, f"a second row for {action!r} of {name} at {_spelled(sizes, place)}")
        if values["energy_pj"] is None:
            raise RowError(number, "energy_pj is missing")
        actions[action] = values["energy_pj"]
        for column, table in (("area_um2", own.area), ("leakage_mw", own.leakage)):
            value = values[column] or 0.0
            if table.setdefault(place, value) != value:
                raise RowError(number, f"{column} of {name} at {_spelled(sizes, place)} is {table[place]:g} above")
    classes = {}
    for name, own in found.items():
        every = {action for actions in own.energy.values() for action in actions}
        for place, actions in own.energy.items():
            if missing := sorted(every - set(actions)):
                raise RowError(
                    -1, f"{name} at {_spelled(own.sizes, place)} has no {missing[0]!r}, which it has elsewhere"
                )
        attributes = {SIZES[column]: True for column in own.sizes}
        ordered = tuple(next(iter(own.energy.values())))
        classes[name] = ComponentClass(
            attributes, ("read", "write") if every == {"read", "write"} else ordered, _pricer(name, own)
        )
    return classes


def _number(row: int, column: str, text: str) -> float | None:
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        raise RowError(row, f"{column} is a number, found {text!r}") from None
    if not (0 <= value < 1e18):
        raise RowError(row, f"{column} is a number of 0 or more, found {text}")
    return value


def _pricer(name: str, own: _Class) -> Any:
    def price(attributes: Mapping[str, Any], conventions: TableConventions, technology_nm: Value) -> Component:
        asked = np.broadcast_arrays(technology_nm, *(attributes[SIZES[column]] for column in own.sizes))
        points = [
            _at(name, own, float(node), tuple(map(float, size)))
            for node, *size in zip(*(each.ravel() for each in asked), strict=True)
        ]
        shape = asked[0].shape

        def shaped(values: list[float]) -> Value:
            return np.array(values).reshape(shape) if shape else values[0]

        energy = {action: shaped([point.energy_pj[action] for point in points]) for action in points[0].energy_pj}
        area, leakage = (shaped([getattr(point, part) for point in points]) for part in ("area_um2", "leakage_mw"))
        return Component(energy, area, own.source, leakage)

    return price


def _at(name: str, own: _Class, node: float, size: Size) -> Component:
    """The row of a size: of this technology, or of 45 nm, scaled as logic. Raises ComponentError."""
    for technology in (node, float(BASE_NM)):
        place = (technology, size)
        if place in own.energy:
            found = Component(own.energy[place], own.area[place], own.source, own.leakage[place])
            return found if technology == node else scaled_logic(found, node)
    there = sorted({_spelled(own.sizes, place) for place in own.energy})
    raise ComponentError(f"no {name} of {_spelled(own.sizes, (node, size))}; the table has {'; '.join(there[:8])}")


def _spelled(sizes: Sequence[str], place: tuple[float, Size]) -> str:
    parts = [f"{SIZES[column]} {value:g}" for column, value in zip(sizes, place[1], strict=True)]
    return ", ".join([*parts, f"{place[0]:g} nm"])
