"""A study's sensitivity: what its uncertain assumptions do to its headlines, by Sobol' indices over Saltelli's points."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.model.accounting import Accounting
from dse.model.evaluate import evaluate
from dse.specs.quantity import Quantity
from dse.specs.sensitivity import Factor, Headline, Sensitivity
from dse.specs.source import SpecError
from dse.specs.study import Design, MapSearch, Part, Study
from dse.studies.candidates import ROWS_AT_ONCE, over_points
from dse.studies.points import Point, choices_at, column_of, named, parameters_at
from dse.studies.run import StudyResult, accountings, run_study

METRICS = ("latency_s", "energy_pj", "dram_bytes", "area_um2")
"""What is priced; `edp` follows."""
CONFIDENCE = 0.95
RESAMPLES = 999
"""Resamples of the bootstrap behind the bounds of an index."""
Price = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Values of the factors (n, factors) -> headlines (headlines, n)."""


@dataclass(frozen=True)
class Analysis:
    """What a sensitivity found: `indices` has a row per headline and factor, of falling total order; `distribution` one per
    headline; `samples` one per independent set of assumptions, with its headlines."""

    indices: pd.DataFrame
    distribution: pd.DataFrame
    samples: pd.DataFrame


@dataclass(frozen=True)
class SobolIndices:
    """`points` (2 samples, factors) are independent sets of assumptions and `outputs` (headlines, 2 samples) what comes of
    them; `first` and `total` (headlines, factors) the indices, and their bounds (2: low and high, headlines, factors)."""

    points: NDArray[np.float64]
    outputs: NDArray[np.float64]
    first: NDArray[np.float64]
    total: NDArray[np.float64]
    first_bounds: NDArray[np.float64]
    total_bounds: NDArray[np.float64]


def run_sensitivity(
    study: Study,
    advance: Callable[[str], None] = lambda step: None,
    progress: Callable[[float], None] = lambda share: None,
) -> StudyResult:
    """Price a study as it stands, then its headlines at every set of assumptions. Raises SpecError."""
    result = run_study(study, advance)
    return replace(result, analysis=analyze(study, result.frame, progress))


def analyze(study: Study, frame: pd.DataFrame, progress: Callable[[float], None] = lambda share: None) -> Analysis:
    """Distribution and indices of each headline; `frame` has the results of the study as it stands. Raises SpecError."""
    block = study.sensitivity
    assert block is not None
    price = HeadlinePricer(study)
    found = sobol_indices_of(
        price, block.factors, block.samples, block.seed, max(1, ROWS_AT_ONCE // len(price.points)), progress
    )
    nominal = nominal_headlines(block, frame)
    rows, spread = [], []
    for number, headline in enumerate(block.headlines):
        low, median, high = np.quantile(found.outputs[number], (0.05, 0.5, 0.95)).tolist()
        spread.append(
            {"headline": headline.name, "nominal": nominal[number], "median": median, "p05": low, "p95": high}
        )
        for place in np.argsort(-found.total[number], kind="stable"):
            row: dict[str, object] = {"headline": headline.name, "factor": block.factors[place].name}
            for order in ("first", "total"):
                bounds = getattr(found, f"{order}_bounds")[:, number, place]
                row[f"{order}_order"] = getattr(found, order)[number, place]
                row[f"{order}_low"], row[f"{order}_high"] = bounds.tolist()
            rows.append(row)
    samples: dict[str, NDArray[np.float64]] = {}
    for column, factor in enumerate(block.factors):
        ((label, values),) = column_of(factor.name, Quantity(found.points[:, column], factor.dimension)).items()
        samples[label] = values
    samples |= {headline.name: found.outputs[number] for number, headline in enumerate(block.headlines)}
    return Analysis(pd.DataFrame(rows), pd.DataFrame(spread), pd.DataFrame(samples))


def sobol_indices_of(
    price: Price,
    factors: Sequence[Factor],
    samples: int,
    seed: int,
    rows: int,
    progress: Callable[[float], None] = lambda share: None,
) -> SobolIndices:
    """First and total order indices of what `price` gives, about `rows` sets of assumptions a call, with bounds by the
    bootstrap (percentiles, 95 %). 0 where nothing varies.

    Source: Saltelli et al., "Variance based sensitivity analysis of model output", Computer Physics Communications 181
    (2010), as scipy.stats.sobol_indices has it, on scrambled Sobol' points (scipy.stats.qmc).
    """
    from scipy import stats

    count = len(factors)
    shares = stats.qmc.Sobol(2 * count, rng=np.random.default_rng(seed), bits=64).random(samples)
    both = np.stack([factor.quantile(shares[:, place::count]) for place, factor in enumerate(factors)], axis=-1)
    first, second = both[:, 0], both[:, 1]
    step = max(1, rows // (count + 2))
    parts = []
    for start in range(0, samples, step):
        one, other = first[start : start + step], second[start : start + step]
        mixed = np.tile(one, (count, 1, 1))
        mixed[np.arange(count), :, np.arange(count)] = other.T
        values = price(np.concatenate([one, other, *mixed]))
        parts.append(values.reshape(len(values), count + 2, len(one)))
        progress(min(1.0, (start + step) / samples))
    outputs = np.concatenate(parts, axis=2)

    def indices(chosen: NDArray[np.int64]) -> NDArray[np.float64]:
        own = outputs[:, :, chosen]
        values = {"f_A": own[:, 0], "f_B": own[:, 1], "f_AB": own[:, 2:].swapaxes(0, 1).copy()}
        found = stats.sobol_indices(func=values, n=samples)
        return np.stack([found.first_order, found.total_order])

    every = np.arange(samples)
    orders = indices(every)
    bounds = stats.bootstrap(
        [every],
        indices,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        vectorized=False,
        rng=np.random.default_rng(seed),
    ).confidence_interval
    reach = np.stack([bounds.low, bounds.high])
    return SobolIndices(
        points=np.concatenate([first, second]),
        outputs=np.concatenate([outputs[:, 0], outputs[:, 1]], axis=1),
        first=orders[0],
        total=orders[1],
        first_bounds=reach[:, 0],
        total_bounds=reach[:, 1],
    )


def nominal_headlines(block: Sensitivity, frame: pd.DataFrame) -> list[float]:
    """Every headline of the study as it stands."""
    own = frame[frame["accounting"] == block.accounting]
    columns = {
        str(name): {metric: rows[metric].to_numpy(dtype=np.float64) for metric in METRICS}
        for name, rows in own.groupby("design", sort=False)
    }
    return [float(_headline(headline, columns)) for headline in block.headlines]


def _headline(headline: Headline, columns: Mapping[str, Mapping[str, NDArray[np.float64]]]) -> NDArray[np.float64]:
    """A headline from the metrics (..., points) of its designs."""
    ours, *others = (_metric(headline.metric, columns[name]) for name in headline.designs)
    values = ours
    if others:
        with np.errstate(divide="ignore", invalid="ignore"):
            values = others[0] / ours if headline.inverse else ours / others[0]
    return over_points(values, headline.mean)


def _metric(name: str, columns: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    return columns["latency_s"] * columns["energy_pj"] if name == "edp" else columns[name]


class HeadlinePricer:
    """Prices the headlines of a study at sets of assumptions: called with (n, factors), gives (headlines, n)."""

    def __init__(self, study: Study) -> None:
        assert study.sensitivity is not None
        self.study, self.block = study, study.sensitivity
        self.accounting: Accounting = accountings(study)[self.block.accounting]
        self.points = [
            Point(dict(zip(study.sweep, values, strict=True))) for values in itertools.product(*study.sweep.values())
        ]
        needed = dict.fromkeys(name for headline in self.block.headlines for name in headline.designs)
        self.targets = {
            name: {
                column: parameter
                for column, factor in enumerate(self.block.factors)
                for design, parameter in factor.targets
                if design == name
            }
            for name in needed
        }

    def __call__(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        columns = {}
        for name, targets in self.targets.items():
            if targets:
                own, places = np.unique(values[:, list(targets)], axis=0, return_inverse=True)
            else:
                own, places = values[:1, :0], np.zeros(len(values), dtype=np.int64)
            priced = self.design(name, own)
            columns[name] = {metric: each[places.ravel()] for metric, each in priced.items()}
        outputs = []
        for headline in self.block.headlines:
            found = _headline(headline, columns)
            if not np.all(np.isfinite(found)):
                key = ("sensitivity", "headlines", headline.name)
                raise self.study.source.error(key, f"{headline.name} is no number at {self._spelled(values, found)}")
            outputs.append(found)
        return np.stack(outputs)

    def design(self, name: str, own: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Metrics (n, points) of a design at values of the factors that it has: (n, those)."""
        design = self.study.designs[name]
        free = {}
        for place, (column, parameter) in enumerate(self.targets[name].items()):
            varied = own[:, place]
            whole = varied.astype(np.int64) if np.array_equal(varied, np.floor(varied)) else varied
            free[parameter] = Quantity(whole, self.block.factors[column].dimension)
        chip = replace(
            design, parameters={label: each for label, each in design.parameters.items() if label not in free}
        )
        found = {metric: np.zeros((len(own), len(self.points))) for metric in METRICS}
        for part in chip.parts:
            for metric, values in self._part(chip, part, free, len(own)).items():
                found[metric] = values if metric == "area_um2" else found[metric] + values
        return found

    def _part(
        self, design: Design, part: Part, free: Mapping[str, Quantity], count: int
    ) -> dict[str, NDArray[np.float64]]:
        """A part at every point; points with the same options in one call."""
        mapping = part.mapping
        assert not isinstance(mapping, MapSearch)
        chosen = [choices_at(part, point) for point in self.points]
        given = [
            parameters_at(self.study, design, part, point, own, free)
            for point, (_, own) in zip(self.points, chosen, strict=True)
        ]
        groups: dict[tuple[object, ...], list[int]] = {}
        for place, (options, _) in enumerate(chosen):
            groups.setdefault((tuple(sorted(options.items())), tuple(sorted(given[place]))), []).append(place)
        found = {metric: np.empty((count, len(self.points))) for metric in METRICS}
        for members in groups.values():
            options = chosen[members[0]][0]
            shape = (count, len(members))
            together = {}
            for name, first in given[members[0]].items():
                values = [np.broadcast_to(given[place][name].value, count) for place in members]
                together[name] = Quantity(np.stack(values, axis=1).ravel(), first.dimension)
            result = evaluate(design.architecture, part.workload, mapping, together, options, self.accounting)
            feasible = np.broadcast_to(result.feasible, count * len(members))
            if not np.all(feasible):
                self._refuse(design, part, members, together, options, int(np.argmin(feasible)))
            for metric in METRICS:
                priced = np.broadcast_to(getattr(result, metric), count * len(members))
                found[metric][:, members] = priced.reshape(shape)
        return found

    def _refuse(
        self,
        design: Design,
        part: Part,
        members: Sequence[int],
        together: Mapping[str, Quantity],
        options: Mapping[str, str],
        row: int,
    ) -> None:
        """Raise what is wrong with a design at one set of assumptions and one point."""
        alone = {name: Quantity(value.value[row].item(), value.dimension) for name, value in together.items()}
        mapping = part.mapping
        assert not isinstance(mapping, MapSearch)
        try:
            named(
                design,
                self.points[members[row % len(members)]],
                lambda: evaluate(design.architecture, part.workload, mapping, alone, options, self.accounting),
            )
        except SpecError as error:
            held = [
                f"{factor.name} = {alone[parameter].value:g}"
                for factor in self.block.factors
                for name, parameter in factor.targets
                if name == design.name and parameter in alone
            ]
            key = ("sensitivity", "factors")
            raise self.study.source.error(key, f"{design.name} cannot be where {', '.join(held)}: {error}") from None
        raise AssertionError("a point that fails among many fails alone")

    def _spelled(self, values: NDArray[np.float64], found: NDArray[np.float64]) -> str:
        row = values[int(np.argmin(np.isfinite(found)))]
        return ", ".join(
            f"{factor.name} = {value:g}" for factor, value in zip(self.block.factors, row.tolist(), strict=True)
        )
