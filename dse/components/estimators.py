"""Component classes from hwcomponents, the estimators that follow Accelergy, where a person has them installed.

An estimator gives joules, square metres and watts for attributes of its own, a technology in metres among them; it scales
to that technology by itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from dse.components.library import Component, ComponentClass, TableConventions
from dse.components.tables import ComponentError, Value

PACKAGE = "hwcomponents"
PJ_PER_JOULE, UM2_PER_M2, MW_PER_W, M_PER_NM = 1e12, 1e12, 1e3, 1e-9
MEMORY_ACTIONS = ("read", "write")


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
    def at(technology_nm: float, *values: Any) -> tuple[tuple[float, ...], float, float]:
        own = {
            name: int(value) if float(value).is_integer() else value
            for name, value in zip(attributes.values(), values, strict=True)
        }
        return _estimate(model, tuple(actions.values()), {"tech_node": technology_nm * M_PER_NM, **own, **fixed})

    def price(given: Mapping[str, Any], conventions: TableConventions, technology_nm: Value) -> Component:
        asked = np.broadcast_arrays(technology_nm, *(given[name] for name in attributes))
        found = [at(*map(float, values)) for values in zip(*(each.ravel() for each in asked), strict=True)]
        shape = asked[0].shape

        def shaped(values: list[float]) -> Value:
            return np.array(values).reshape(shape) if shape else values[0]

        energy = {action: shaped([own[0][place] for own in found]) for place, action in enumerate(actions)}
        area, leakage = shaped([own[1] for own in found]), shaped([own[2] for own in found])
        return Component(energy, area, f"{PACKAGE} {_version()}, {model}", leakage)

    names = tuple(actions)
    return ComponentClass(
        dict.fromkeys(attributes, True), MEMORY_ACTIONS if set(names) == set(MEMORY_ACTIONS) else names, price
    )


def _estimate(
    model: str, actions: tuple[str, ...], attributes: Mapping[str, Any]
) -> tuple[tuple[float, ...], float, float]:
    """Energy by action in pJ, area in um2 and leakage in mW. Raises ComponentError."""
    import hwcomponents

    try:
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of its own code
            found = hwcomponents.get_model(model, dict(attributes), list(actions))
            energy = tuple(float(getattr(found, action)().energy) * PJ_PER_JOULE for action in actions)
            return energy, float(found.area) * UM2_PER_M2, float(found.leak_power) * MW_PER_W
    except Exception as error:  # whatever a model raises
        raise ComponentError(f"{PACKAGE} has no {model} of {_spelled(attributes)}: {_reason(error)}") from None


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


def _version() -> str:
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return ""
