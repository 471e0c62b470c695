"""The `search:` block of a study: which parameters of which designs are free, within what, and what is best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from dse.specs.parameters import locate
from dse.specs.quantity import COUNT, Dimension, Quantity
from dse.specs.source import Key, Source, SpecModel
from dse.wording import allowed

SAMPLERS = ("random", "tpe", "gp", "nsgaii", "nsgaiii", "cmaes", "qmc", "grid")
"""Optuna's samplers by name."""
METHODS = ("auto", "exhaustive", *SAMPLERS)
"""How a space is searched; `auto` enumerates small ones and samples others by TPE."""
METRICS = ("latency_s", "energy_pj", "edp", "dram_bytes", "area_um2")
CONSTRAINTS = ("area_um2", "power_w")
"""What may be bounded: a chip's area, and the mean power at every point."""
ONE_OBJECTIVE = ("cmaes",)
"""Samplers that have no notion of a front."""
MEANS = ("geometric", "arithmetic", "sum", "worst")
LARGEST_RANGE = 1 << 16
"""More values than this no parameter may have."""


class WrittenRange(SpecModel):
    """The values of a parameter, in one of four ways."""

    powers_of_two: list[Any] | None = None
    multiples: list[Any] | None = None
    integers: list[Any] | None = None
    choices: list[Any] | None = None


class WrittenObjective(SpecModel):
    """What is to be small, and how the points of the sweep come together."""

    metric: str
    mean: Literal["geometric", "arithmetic", "sum", "worst"] = "geometric"


class WrittenSearch(SpecModel):
    """The block as written."""

    parameters: dict[str, dict[str, WrittenRange]]
    settle: dict[str, list[str]] = {}
    objectives: list[WrittenObjective]
    constraints: dict[str, Any] = {}
    accounting: str | None = None
    method: str = "auto"
    trials: int = 500
    seed: int = 0
    compare: dict[str, int] = {}


@dataclass(frozen=True)
class Range:
    """A free parameter and its values in order: quantities, or names of a mapping option's alternatives."""

    name: str
    values: tuple[Quantity | str, ...]

    @property
    def is_option(self) -> bool:
        """Whether the values are alternatives of a mapping."""
        return isinstance(self.values[0], str)


@dataclass(frozen=True)
class Objective:
    """A metric to be small, put together over the points by a mean, a sum or the worst."""

    metric: str
    mean: str

    @property
    def column(self) -> str:
        """Its column in tables of candidates; area is the same at every point."""
        return self.metric if self.metric == "area_um2" else f"{self.metric}_{self.mean}"


@dataclass(frozen=True)
class Search:
    """A checked search: ranges by design, options to settle at each point, objectives, and upper bounds by name (and a lower
    one of the area, for chips of equal area within a tolerance).

    `budgets` are the areas in um2, ascending, whose best designs are asked for (none where one area or none is given; the
    largest is the bound); `compare` the samplers, and trials of each, that are held against the exact front.
    """

    ranges: Mapping[str, tuple[Range, ...]]
    settle: Mapping[str, tuple[str, ...]]
    objectives: tuple[Objective, ...]
    at_most: Mapping[str, float]
    accounting: str
    method: str
    trials: int
    seed: int
    budgets: tuple[float, ...] = ()
    compare: Mapping[str, int] = field(default_factory=dict)
    least_area_um2: float = 0.0

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Candidates of each design's space."""
        return {name: math.prod(len(each.values) for each in own) for name, own in self.ranges.items()}


def check_search(
    written: WrittenSearch,
    dimensions: Mapping[str, Mapping[str, Dimension]],
    options: Mapping[str, Mapping[str, Sequence[str]]],
    fixed: Mapping[str, Sequence[str]],
    accountings: Sequence[str],
    source: Source,
) -> Search:
    """Check a search against the designs' parameters (by design and name), their mappings' options and those that are
    fixed or swept already. Raises SpecError."""
    key: Key = ("search",)
    ranges: dict[str, tuple[Range, ...]] = {}
    for design, own in written.parameters.items():
        at = (*key, "parameters", design)
        source.check_known(design, dimensions, at, "design")
        found = []
        for name, values in own.items():
            source.check_known(name, {*dimensions[design], *options[design]}, (*at, name), "parameter", f"of {design}")
            if name in fixed[design]:
                raise source.error((*at, name), f"{name} is swept, or {design} fixes it; a search cannot free it too")
            found.append(
                _range(name, values, dimensions[design].get(name), options[design].get(name), source, (*at, name))
            )
        ranges[design] = tuple(found)
    settle: dict[str, tuple[str, ...]] = {}
    for design, names in written.settle.items():
        at = (*key, "settle", design)
        source.check_known(design, ranges, at, "design")
        free = {each.name for each in ranges[design]}
        for number, name in enumerate(names):
            source.check_known(name, options[design], (*at, number), "option", f"of {design}'s mapping")
            if name in free:
                raise source.error((*at, number), f"{name} is sampled; it cannot be settled too")
        settle[design] = tuple(names)
    if not written.objectives:
        raise source.error((*key, "objectives"), "objectives: name one metric or more")
    for number, objective in enumerate(written.objectives):
        source.check_known(objective.metric, METRICS, (*key, "objectives", number, "metric"), "metric")
    if written.method not in METHODS:
        raise source.error((*key, "method"), f"unknown method {written.method!r}; {allowed(written.method, METHODS)}")
    if written.trials < 1:
        raise source.error((*key, "trials"), f"trials is 1 or more, found {written.trials}")
    if written.method in ONE_OBJECTIVE and len(written.objectives) > 1:
        raise source.error((*key, "method"), f"{written.method} takes one objective, found {len(written.objectives)}")
    accounting = written.accounting or accountings[0]
    source.check_known(accounting, accountings, (*key, "accounting"), "accounting")
    at_most: dict[str, float] = {}
    least_area = 0.0
    budgets: tuple[float, ...] = ()
    for name, value in written.constraints.items():
        at = (*key, "constraints", name)
        source.check_known(name, CONSTRAINTS, at, "constraint")
        if name == "area_um2" and isinstance(value, list):
            budgets = _budgets(name, value, source, at)
            at_most[name] = budgets[-1]
        elif name == "area_um2" and isinstance(value, dict):
            least_area, at_most[name] = _between(name, value, source, at)
        else:
            at_most[name] = _bound(name, value, source, at)
    if budgets and written.objectives[0].metric == "area_um2":
        raise source.error(
            (*key, "objectives", 0),
            "the best design of each budget is that of the first objective, which cannot be area",
        )
    _check_compared(written, source, key)
    objectives = tuple(Objective(each.metric, each.mean) for each in written.objectives)
    if len({each.column for each in objectives}) < len(objectives):
        raise source.error((*key, "objectives"), "objectives: one stands there twice")
    return Search(
        ranges,
        settle,
        objectives,
        at_most,
        accounting,
        written.method,
        written.trials,
        written.seed,
        budgets,
        dict(written.compare),
        least_area,
    )


def _bound(name: str, value: Any, source: Source, key: Key) -> float:
    most = locate(value, source, key).quantity({}, COUNT).value
    if not most > 0:
        raise source.error(key, f"{name} is at most a number above 0, found {value!r}")
    return float(most)


def _between(name: str, value: Mapping[str, Any], source: Source, key: Key) -> tuple[float, float]:
    """Bounds from below and above."""
    if set(value) != {"least", "most"}:
        raise source.error(
            key, f"{name}: a number, a list of budgets, or {{least: ..., most: ...}}, found {dict(value)}"
        )
    least, most = (_bound(name, value[end], source, (*key, end)) for end in ("least", "most"))
    if least > most:
        raise source.error((*key, "least"), f"{name}: at least {value['least']} and at most {value['most']} is nothing")
    return least, most


def _budgets(name: str, values: Sequence[Any], source: Source, key: Key) -> tuple[float, ...]:
    """Bounds of which each has a best design, ascending."""
    if not values:
        raise source.error(key, f"{name}: no budget; give a number, or a list of one or more")
    found = [_bound(name, value, source, (*key, number)) for number, value in enumerate(values)]
    for number, value in enumerate(found[1:], 1):
        if value <= found[number - 1]:
            raise source.error(
                (*key, number), f"{name}: budgets ascend, found {values[number]!r} after {values[number - 1]!r}"
            )
    return tuple(found)


def _check_compared(written: WrittenSearch, source: Source, key: Key) -> None:
    """Samplers are compared with the exact front of two objectives, which takes all candidates. Raises SpecError."""
    if not written.compare:
        return
    at = (*key, "compare")
    for name, trials in written.compare.items():
        source.check_known(name, SAMPLERS, (*at, name), "sampler")
        if trials < 1:
            raise source.error((*at, name), f"trials is 1 or more, found {trials}")
        if name in ONE_OBJECTIVE:
            raise source.error((*at, name), f"{name} takes one objective; fronts are compared of two")
    if written.method != "exhaustive":
        raise source.error(at, "samplers are compared with the front of all candidates: give method: exhaustive")
    if len(written.objectives) != 2:
        raise source.error(at, f"fronts are compared of two objectives, found {len(written.objectives)}")


def _range(
    name: str,
    written: WrittenRange,
    dimension: Dimension | None,
    alternatives: Sequence[str] | None,
    source: Source,
    key: Key,
) -> Range:
    given = [kind for kind in WrittenRange.model_fields if getattr(written, kind) is not None]
    if len(given) != 1:
        kinds = ", ".join(WrittenRange.model_fields)
        raise source.error(key, f"{name}: one of {kinds}, found {' and '.join(given) or 'none'}")
    kind, values = given[0], getattr(written, given[0])
    at = (*key, kind)
    if kind == "choices" and alternatives is not None:
        for number, value in enumerate(values):
            source.check_known(str(value), alternatives, (*at, number), "choice", f"of {name}")
        found: tuple[Quantity | str, ...] = tuple(str(value) for value in values)
    elif dimension is None:
        raise source.error(at, f"{name} is an option; give its alternatives as choices")
    else:
        found = tuple(_quantities(name, kind, values, dimension, source, at))
    if not found:
        raise source.error(at, f"{name}: the range is empty")
    if len(set(map(str, found))) < len(found):
        raise source.error(at, f"{name}: a value stands there twice")
    return Range(name, found)


def _quantities(
    name: str, kind: str, values: Sequence[Any], dimension: Dimension, source: Source, key: Key
) -> list[Quantity]:
    numbers = []
    for number, value in enumerate(values):
        step_of_multiples = kind == "multiples" and number == 2
        located = locate(value, source, (*key, number))
        if located.expression.names:
            raise source.error((*key, number), f"{name}: a range is of numbers with their units, found {value!r}")
        located.positive({}, dimension)
        numbers.append(located.quantity({}, dimension).value)
        if step_of_multiples and numbers[-1] <= 0:
            raise source.error((*key, number), f"{name}: a step is above 0")
    if kind == "choices":
        return [Quantity(value, dimension) for value in numbers]
    if len(numbers) != (3 if kind == "multiples" else 2):
        form = "[least, most, step]" if kind == "multiples" else "[least, most]"
        raise source.error(key, f"{name}: {kind} is {form}, found {len(numbers)} values")
    low, high = numbers[:2]
    if low > high:
        raise source.error(key, f"{name}: the range is empty: {values[0]} is more than {values[1]}")
    if kind == "powers_of_two":
        count = math.floor(math.log2(high / low) + 1e-9) + 1
        steps = [low * 2**number for number in range(count)]
    else:
        step = numbers[2] if kind == "multiples" else 1
        count = int((high - low) // step) + 1
        if count > LARGEST_RANGE:
            raise source.error(key, f"{name}: {count:,} values; a parameter has at most {LARGEST_RANGE:,}")
        steps = [low + number * step for number in range(count)]
    return [Quantity(value, dimension) for value in steps]
