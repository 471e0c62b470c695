"""Component classes from hwcomponents, the estimators that follow Accelergy, where a person has them installed.

An estimator gives joules, square metres and watts for attributes of its own, a technology in metres among them; it scales
to that technology by itself.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from dse.components.library import Component, ComponentClass, TableConventions
from dse.components.tables import ComponentError, Value
from dse.wording import allowed

PACKAGE = "hwcomponents"
PJ_PER_JOULE, UM2_PER_M2, MW_PER_W, M_PER_NM = 1e12, 1e12, 1e3, 1e-9
MEMORY_ACTIONS = ("read", "write")
TECHNOLOGY = "tech_node"
"""What models call the technology, in metres; those of DRAM take none."""


@dataclass(frozen=True)
class _Figures:
    """What a model says of one component: energies in the order of its actions, and whose figures they are."""

    energy_pj: tuple[float, ...]
    area_um2: float
    leakage_mw: float
    source: str


def check_installed() -> None:
    """Raises ComponentError where the package is not there."""
    try:
        import hwcomponents  # noqa: F401
    except ImportError:
        raise ComponentError(
            f"{PACKAGE} is not installed: pip install 'dse[{PACKAGE}]' (it needs Python 3.12 or newer)"
        ) from None


def estimated_class(
    model: str, actions: Mapping[str, str], attributes: Mapping[str, str], fixed: Mapping[str, Any]
) -> ComponentClass:
    """A class whose figures a model of hwcomponents gives.

    `actions` are its actions by the names that they have here, `attributes` its attributes by those of a component here
    (widths and capacities in bits), `fixed` others as they are.
    """

    @cache
    def at(technology_nm: float, *values: Any) -> _Figures:
        own = {
            name: int(value) if float(value).is_integer() else value
            for name, value in zip(attributes.values(), values, strict=True)
        }
        return _estimate(model, tuple(actions.values()), {TECHNOLOGY: technology_nm * M_PER_NM, **own, **fixed})

    def price(given: Mapping[str, Any], conventions: TableConventions, technology_nm: Value) -> Component:
        asked = np.broadcast_arrays(technology_nm, *(given[name] for name in attributes))
        found = [at(*map(float, values)) for values in zip(*(each.ravel() for each in asked), strict=True)]
        shape = asked[0].shape

        def shaped(values: list[float]) -> Value:
            return np.array(values).reshape(shape) if shape else values[0]

        energy = {action: shaped([own.energy_pj[place] for own in found]) for place, action in enumerate(actions)}
        area, leakage = shaped([own.area_um2 for own in found]), shaped([own.leakage_mw for own in found])
        return Component(energy, area, "; ".join(dict.fromkeys(own.source for own in found)), leakage)

    names = tuple(actions)
    return ComponentClass(
        dict.fromkeys(attributes, True), MEMORY_ACTIONS if set(names) == set(MEMORY_ACTIONS) else names, price
    )


def _estimate(model: str, actions: tuple[str, ...], attributes: Mapping[str, Any]) -> _Figures:
    """What a model says of one component. Raises ComponentError."""
    import hwcomponents

    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of its own code
        _check_names(model, actions, _installed_models())
        try:
            found = hwcomponents.get_model(model, dict(attributes), list(actions))
            energy = tuple(float(getattr(found, action)().energy) * PJ_PER_JOULE for action in actions)
            area, leakage = float(found.area) * UM2_PER_M2, float(found.leak_power) * MW_PER_W
        except Exception as error:  # whatever a model raises
            raise ComponentError(f"{PACKAGE} has no {model} of {_spelled(attributes)}: {_reason(error)}") from None
    kind = type(found)
    takes = [name for name in inspect.signature(kind).parameters if name != TECHNOLOGY]
    for name in attributes:
        if name not in (*takes, TECHNOLOGY):  # it would be left out without a word
            raise ComponentError(f"{PACKAGE}'s {kind.__name__} has no attribute {name!r}; {allowed(name, takes)}")
    for what, value in (*zip(actions, energy, strict=True), ("area", area), ("leakage", leakage)):
        if not (math.isfinite(value) and value >= 0):
            raise ComponentError(
                f"{PACKAGE}'s {kind.__name__} of {_spelled(attributes)} gives {value:g} for {what}, not 0 or more"
            )
    return _Figures(energy, area, leakage, _source(kind))


def _installed_models() -> list[Any]:
    """The classes of all models that are installed."""
    from hwcomponents.find_models import installed_models

    # it keeps what its first caller asked for, classes or wrappers of them; its get_models fails on wrappers
    return [getattr(each, "model_cls", each) for each in installed_models()]


def _check_names(model: str, actions: Iterable[str], models: Iterable[Any]) -> None:
    """Refuse a model that is not installed, and actions that none of its name has. Raises ComponentError."""
    names = {each: _names(each) for each in models}
    kinds = [each for each, called in names.items() if model.lower() in map(str.lower, called)]
    if not kinds:
        known = sorted({each.__name__ if each.__name__ in called else called[0] for each, called in names.items()})
        raise ComponentError(f"{PACKAGE} has no model {model!r}; {allowed(model, known)}")
    known = sorted({action for kind in kinds for action in kind.get_action_names()})
    for action in actions:
        if action not in known:
            raise ComponentError(f"{PACKAGE}'s {model} has no action {action!r}; {allowed(action, known)}")


def _names(kind: Any) -> list[str]:
    """What a model may be asked for as: names of its own, or that of its class."""
    names = kind.component_name
    return [kind.__name__] if names is None else [names] if isinstance(names, str) else list(names)


def _source(kind: type) -> str:
    """Whose figures these are: the estimators' version, the package of the model with its own, the model."""
    package = kind.__module__.partition(".")[0]
    origin = "" if package == PACKAGE else f", {package} {_version(package)}".rstrip()
    return f"{PACKAGE} {_version(PACKAGE)}".rstrip() + f"{origin}, {kind.__name__}"


def _reason(error: Exception) -> str:
    """What went wrong in one line: the first of the message, and of a log after it the line with the cause."""
    lines = [line.strip("| \t") for line in str(error).splitlines() if line.strip("| \t")]
    causes = [
        line
        for line in lines[1:]
        if "Error:" in line or "Exception:" in line or "does not support" in line or "is missing" in line
    ]
    return causes[0] if causes else lines[0] if lines else type(error).__name__


def _spelled(attributes: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in attributes.items()
    )


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
