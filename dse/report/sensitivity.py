"""Figures and tables of a sensitivity: what each headline hangs on, and how it is distributed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dse.report import style
from dse.specs.sensitivity import Factor, Headline
from dse.studies.run import StudyResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

ORDERS = (("first", "alone (first order)", style.PALETTE[0]), ("total", "with the others (total)", style.PALETTE[1]))
"""The two bars of a factor: columns of the indices, how they are called, and colours."""
BAR = 0.38
BINS = 48
TITLE = 72
"""Characters of a panel's title on one line."""
SMALLEST_NAMED = 0.005
"""Total order from which on a factor is named in a sentence."""


def sensitivity_figures(result: StudyResult) -> Iterator[tuple[str, Drawing]]:
    """Every figure of a sensitivity, with its name."""
    yield "sensitivity", _indices(result)
    yield "distribution", _distribution(result)


def headline_lines(result: StudyResult) -> list[str]:
    """A sentence for each headline: its value, its range, and what matters most."""
    assert result.analysis is not None
    lines = []
    for headline, spread, rows in _headlines(result):
        moving = rows[rows["total_order"] >= SMALLEST_NAMED].iloc[:3]
        parts = [f"{row.factor} ({row.total_order:.2f})" for row in moving.itertuples()]
        reach = f"5-95 % {spread['p05']:.3g} to {spread['p95']:.3g}"
        lines.append(
            f"{headline.name}: {spread['nominal']:.3g} as the study has it, median {spread['median']:.3g}, {reach}; "
            f"hangs (total order) on {', '.join(parts) or 'nothing that varies'}"
        )
    return lines


def _headlines(result: StudyResult) -> Iterator[tuple[Headline, dict[str, float], pd.DataFrame]]:
    """Each headline with its distribution and its indices, of falling total order."""
    assert result.analysis is not None
    assert result.study.sensitivity is not None
    for headline in result.study.sensitivity.headlines:
        distribution = result.analysis.distribution
        own = distribution[distribution["headline"] == headline.name].drop(columns="headline")
        spread = {str(name): float(values.iloc[0]) for name, values in own.items()}
        yield headline, spread, result.analysis.indices[result.analysis.indices["headline"] == headline.name]


def _indices(result: StudyResult) -> Drawing:
    """For each headline a bar of first and one of total order a factor, the largest on top, with 95 % bounds."""
    import matplotlib.pyplot as plt

    assert result.study.sensitivity is not None
    factors = {factor.name: factor for factor in result.study.sensitivity.factors}
    headlines = list(_headlines(result))
    counts = [max(1, int((rows["total_order"] > 0).sum())) for _, _, rows in headlines]
    drawing, panels = plt.subplots(
        len(headlines), 1, figsize=(7.6, 1.0 + sum(1.2 + 0.46 * count for count in counts)), layout="constrained",
        squeeze=False, sharex=True, height_ratios=[count + 0.6 for count in counts],
    )  # fmt: skip
    for panel, (headline, spread, rows) in zip(panels[:, 0], headlines, strict=True):
        moving, still = rows[rows["total_order"] > 0], rows[rows["total_order"] <= 0]
        places = np.arange(len(moving))
        for number, (order, name, colour) in enumerate(ORDERS):
            values = moving[f"{order}_order"].to_numpy()
            bounds = np.maximum(
                [values - moving[f"{order}_low"].to_numpy(), moving[f"{order}_high"].to_numpy() - values], 0
            )
            panel.barh(
                places + (number - 0.5) * BAR, values, BAR, color=colour, label=name, xerr=bounds,
                error_kw={"ecolor": "#333333", "elinewidth": 0.8, "capsize": 2},
            )  # fmt: skip
        panel.set_yticks(places, [_factor_label(factors[name]) for name in moving["factor"]], fontsize=8)
        panel.set_ylim(max(len(moving), 1) - 0.4, -0.6)
        panel.grid(visible=False, axis="y")
        panel.grid(visible=True, axis="x")
        title = f"{_headline_label(result, headline)}: {spread['nominal']:.3g} as the study has it"
        reach = f"5-95 %: {spread['p05']:.3g} to {spread['p95']:.3g}, median {spread['median']:.3g}"
        most = factors[moving["factor"].iloc[0]].label if len(moving) else "nothing that varies"
        lines = [title, reach, style.plain(f"hangs most on {most}")]
        panel.set_title("\n".join(part for line in lines for part in textwrap.wrap(line, TITLE)), loc="left")
        if len(still):
            without = ", ".join(name.replace("_", " ") for name in still["factor"])
            panel.annotate(
                "\n".join(textwrap.wrap(style.plain(f"no effect: {without}"), 44)), (0.98, 0.06),
                xycoords="axes fraction", ha="right", va="bottom", fontsize=8, color="#555555",
            )  # fmt: skip
    panels[-1, 0].set_xlim(left=0)
    panels[-1, 0].set_xlabel("Share of the variance (Sobol' index; whiskers: 95 % bounds)")
    handles, names = panels[0, 0].get_legend_handles_labels()
    drawing.legend(handles, names, loc="outside lower center", ncols=2)
    drawing.suptitle(_heading(result), fontsize=10)
    return drawing


def _distribution(result: StudyResult) -> Drawing:
    """A histogram of each headline, with the value of the study as it stands and the 5-95 % range."""
    import matplotlib.pyplot as plt

    assert result.analysis is not None
    headlines = list(_headlines(result))
    drawing, panels = plt.subplots(
        1, len(headlines), figsize=(0.8 + 3.8 * len(headlines), 3.4), layout="constrained", squeeze=False
    )
    for panel, (headline, spread, _) in zip(panels[0], headlines, strict=True):
        values = result.analysis.samples[headline.name].to_numpy()
        panel.hist(values, bins=BINS, weights=np.full(len(values), 1 / len(values)), color=style.PALETTE[3])
        panel.axvspan(spread["p05"], spread["p95"], color="#cccccc", alpha=0.45, zorder=0, label="5-95 %")
        panel.axvline(spread["median"], color="black", linewidth=1, linestyle="--", label="median")
        panel.axvline(spread["nominal"], color=style.PALETTE[4], linewidth=1.6, label="as the study has it")
        panel.set_xlabel(_headline_label(result, headline))
    panels[0, 0].set_ylabel("Share of the samples")
    handles, names = panels[0, 0].get_legend_handles_labels()
    drawing.legend(handles, names, loc="outside lower center", ncols=3)
    drawing.suptitle(_heading(result), fontsize=10)
    return drawing


def _heading(result: StudyResult) -> str:
    block = result.study.sensitivity
    assert block is not None
    count = f"{block.samples * (len(block.factors) + 2):,} sets of assumptions"
    return style.plain(f"{result.study.name}: {count} ({block.accounting} accounting)")


def _factor_label(factor: Factor) -> str:
    return style.plain(f"{factor.label}\n{factor.range_text}")


MEANS = {"geometric": "geometric mean", "arithmetic": "mean", "sum": "sum", "worst": "worst"}


def _headline_label(result: StudyResult, headline: Headline) -> str:
    designs: Any = result.study.designs
    ours = designs[headline.design].label
    metric = style.label(headline.metric).split(" (")[0].lower() if headline.metric != "edp" else "energy x delay"
    if headline.baseline is None:
        text = f"{style.label(headline.metric) if headline.metric != 'edp' else 'EDP (pJ s)'} of {ours}"
    elif headline.inverse:
        text = f"Speedup of {ours} over {designs[headline.baseline].label}"
    else:
        text = f"{metric.capitalize()} of {ours} over {designs[headline.baseline].label}'s"
    return style.plain(f"{text}, {MEANS[headline.mean]}")
