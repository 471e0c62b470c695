"""The `sensitivity:` block of a study: which assumptions are uncertain, within what and why, and which results are judged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dse.specs.parameters import locate
from dse.specs.quantity import DIMENSION_NAMES, Dimension
from dse.specs.search import METRICS
from dse.specs.source import Key, Source, SpecModel

RELATIVE: Mapping[str, tuple[str, bool]] = {"speedup": ("latency_s", True), "energy": ("energy_pj", False)}
"""Values that are relative to a baseline by themselves: their metric, and whether it is the baseline's over the design's."""
FEWEST_SAMPLES, MOST_SAMPLES = 64, 1 << 17


class WrittenFactor(SpecModel):
    """An assumption: either a range with its scale, or values of which each is as likely."""

    targets: list[str]
    low: Any = None
    high: Any = None
    scale: Literal["log", "linear"] | None = None
    values: list[Any] | None = None
    because: str
    label: str | None = None


class WrittenHeadline(SpecModel):
    """A result that is judged: a metric of a design, over a baseline's where one is named, and a mean over the points."""

    value: str
    design: str
    baseline: str | None = None
    mean: Literal["geometric", "arithmetic", "sum", "worst"] = "arithmetic"


class WrittenSensitivity(SpecModel):
    """The block as written."""

    factors: dict[str, WrittenFactor]
    headlines: dict[str, WrittenHeadline]
    samples: int = 1024
    seed: int = Field(default=0, ge=0)
    accounting: str | None = None


@dataclass(frozen=True)
class Factor:
    """An uncertain assumption and its distribution: uniform from `low` to `high`, or in their logarithms; or, where there
    are `values`, each as likely. All in base units of `dimension`; `targets` are (design, parameter) that it sets at once."""

    name: str
    label: str
    targets: tuple[tuple[str, str], ...]
    dimension: Dimension
    low: float
    high: float
    log: bool = False
    values: tuple[float, ...] = ()
    range_text: str = ""

    def quantile(self, share: NDArray[np.float64]) -> NDArray[np.float64]:
        """The value below which a share (0 to 1) of the distribution lies."""
        if self.values:
            places = np.minimum((share * len(self.values)).astype(np.int64), len(self.values) - 1)
            return np.array(self.values, dtype=np.float64)[places]
        if self.log:
            return np.asarray(np.exp(math.log(self.low) + share * math.log(self.high / self.low)))
        return np.asarray(self.low + share * (self.high - self.low))


@dataclass(frozen=True)
class Headline:
    """A result that is judged: `metric` of a design, over the `baseline`'s where there is one (under it where `inverse`),
    put together over the points by a mean, a sum or the worst."""

    name: str
    value: str
    metric: str
    design: str
    baseline: str | None
    inverse: bool
    mean: str

    @property
    def designs(self) -> tuple[str, ...]:
        """The designs that it takes."""
        return (self.design,) if self.baseline is None else (self.design, self.baseline)


@dataclass(frozen=True)
class Sensitivity:
    """A checked block. `samples` is Saltelli's N: N (factors + 2) sets of assumptions are priced."""

    factors: tuple[Factor, ...]
    headlines: tuple[Headline, ...]
    samples: int
    seed: int
    accounting: str


def check_sensitivity(
    written: WrittenSensitivity,
    dimensions: Mapping[str, Mapping[str, Dimension]],
    swept: Sequence[str],
    searched: Sequence[str],
    accountings: Sequence[str],
    source: Source,
) -> Sensitivity:
    """Check a block against the designs' parameters (by design and name), the axes of the sweep, and the designs whose
    mappings are searched, which cannot be priced so often. Raises SpecError."""
    key: Key = ("sensitivity",)
    for kind in ("factors", "headlines"):
        if not getattr(written, kind):
            raise source.error((*key, kind), f"{kind}: name one or more")
    taken: dict[str, str] = {}
    factors = []
    for name, factor in written.factors.items():
        for number, target in enumerate(factor.targets):
            if target in taken:
                at = (*key, "factors", name, "targets", number)
                raise source.error(at, f"{target} is a target of {taken[target]} already")
        factors.append(_factor(name, factor, dimensions, swept, source, (*key, "factors", name)))
        taken |= dict.fromkeys(factor.targets, name)
    headlines = []
    for name, headline in written.headlines.items():
        headlines.append(_headline(name, headline, list(dimensions), source, (*key, "headlines", name)))
        for design in headlines[-1].designs:
            if design in searched:
                raise source.error(
                    (*key, "headlines", name),
                    f"{name}: {design}'s mapping is searched; a sensitivity takes designs with a mapping",
                )
    count = written.samples
    if count & (count - 1) or not FEWEST_SAMPLES <= count <= MOST_SAMPLES:
        raise source.error(
            (*key, "samples"), f"samples is a power of two from {FEWEST_SAMPLES} to {MOST_SAMPLES:,}, found {count:,}"
        )
    accounting = written.accounting or accountings[0]
    source.check_known(accounting, accountings, (*key, "accounting"), "accounting")
    return Sensitivity(tuple(factors), tuple(headlines), count, written.seed, accounting)


def _factor(
    name: str,
    written: WrittenFactor,
    dimensions: Mapping[str, Mapping[str, Dimension]],
    swept: Sequence[str],
    source: Source,
    key: Key,
) -> Factor:
    if not written.targets:
        raise source.error((*key, "targets"), f"{name}: name one DESIGN.PARAMETER or more")
    if not written.because.strip():
        raise source.error((*key, "because"), f"{name}: say why this range, or where it is from")
    targets: list[tuple[str, str]] = []
    for number, target in enumerate(written.targets):
        at = (*key, "targets", number)
        design, dot, parameter = target.partition(".")
        if not dot:
            raise source.error(at, f"{name}: a target is DESIGN.PARAMETER, found {target!r}")
        source.check_known(design, dimensions, at, "design")
        source.check_known(parameter, dimensions[design], at, "parameter", f"of {design}")
        if parameter in swept:
            raise source.error(at, f"{parameter} is swept; a sensitivity cannot vary it too")
        if (design, parameter) in targets:
            raise source.error(at, f"{target} stands there twice")
        targets.append((design, parameter))
    dimension = dimensions[targets[0][0]][targets[0][1]]
    for number, (design, parameter) in enumerate(targets):
        if dimensions[design][parameter] != dimension:
            kinds = [DIMENSION_NAMES[each] for each in (dimension, dimensions[design][parameter])]
            raise source.error(
                (*key, "targets", number),
                f"{name}: {written.targets[0]} is {kinds[0]}, {design}.{parameter} {kinds[1]}",
            )
    label = written.label or name.replace("_", " ")
    if written.values is not None:
        for other in ("low", "high", "scale"):
            if getattr(written, other) is not None:
                raise source.error((*key, other), f"{name}: either values, or low, high and scale")
        values = tuple(
            _number(name, value, dimension, source, (*key, "values", number))
            for number, value in enumerate(written.values)
        )
        if len(set(values)) < 2 or len(set(values)) < len(values):
            raise source.error((*key, "values"), f"{name}: two values or more, each once; found {list(written.values)}")
        text = ", ".join(map(str, written.values))
        return Factor(name, label, tuple(targets), dimension, min(values), max(values), values=values, range_text=text)
    for end in ("low", "high"):
        if getattr(written, end) is None:
            raise source.error(key, f"{name}: key {end!r} is missing; either low and high, or values")
    low, high = (_number(name, getattr(written, end), dimension, source, (*key, end)) for end in ("low", "high"))
    if low >= high:
        raise source.error(
            (*key, "low"), f"{name}: the range is empty: low is below high, found {written.low} and {written.high}"
        )
    log = written.scale == "log"
    if log and low <= 0:
        raise source.error((*key, "low"), f"{name}: low is above 0 on a scale of logarithms, found {written.low}")
    text = f"{written.low} to {written.high}"
    return Factor(name, label, tuple(targets), dimension, low, high, log, range_text=text)


def _number(name: str, value: Any, dimension: Dimension, source: Source, key: Key) -> float:
    located = locate(value, source, key)
    if located.expression.names:
        raise source.error(key, f"{name}: a range is of numbers with their units, found {value!r}")
    found = located.quantity({}, dimension).value
    if found < 0:
        raise source.error(key, f"{name}: a value is 0 or more, found {value!r}")
    return float(found)


def _headline(name: str, written: WrittenHeadline, designs: Sequence[str], source: Source, key: Key) -> Headline:
    source.check_known(written.value, [*RELATIVE, *METRICS], (*key, "value"), "value")
    source.check_known(written.design, designs, (*key, "design"), "design")
    if written.baseline is not None:
        source.check_known(written.baseline, designs, (*key, "baseline"), "design")
        if written.baseline == written.design:
            raise source.error((*key, "baseline"), f"{name}: {written.design} is compared with itself")
    elif written.value in RELATIVE:
        raise source.error(key, f"{name}: {written.value} is relative; name its baseline")
    metric, inverse = RELATIVE.get(written.value, (written.value, False))
    return Headline(name, written.value, metric, written.design, written.baseline, inverse, written.mean)
