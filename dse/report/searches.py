"""Figures of a search: candidates and their front, the best beside the designs as the study has them, which design wins
within which area, and how near samplers come to the exact front."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from dse.report import plots, style
from dse.specs.choices import MODEL_AXIS
from dse.studies.budgets import Budgeted
from dse.studies.convergence import RATIOS
from dse.studies.run import StudyResult
from dse.studies.summary import as_given, compare

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

ENOUGH = 0.95
"""The share of the exact front that a sampler should reach: a line in its figure."""


def search_figures(result: StudyResult) -> Iterator[tuple[str, Drawing]]:
    """Every figure of a search, with its name."""
    assert result.explored is not None
    labels = {name: style.plain(design.label) for name, design in result.study.designs.items()}
    palette = {labels[name]: colour for name, colour in style.colours(result.study.designs).items()}
    yield "front", _front(result, labels, palette)
    axes = [axis for axis in result.axes if axis != MODEL_AXIS]
    if len(axes) == 1:
        for baseline in result.study.baselines[:1]:
            yield "comparison", _comparison(result, baseline, axes[0], labels, palette)
    if result.explored.budgets is not None:
        yield "budgets", _budgets(result, result.explored.budgets, labels, palette)
        if result.explored.budgets.by_axis is not None:
            yield "winners", _winners(result, result.explored.budgets, labels, palette)
    if result.explored.convergence is not None:
        yield "convergence", _convergence(result, result.explored.convergence, labels)


def _front(result: StudyResult, labels: Mapping[str, str], palette: Mapping[str, str]) -> Drawing:
    """Every candidate, the front, and the designs as the study has them."""
    import matplotlib.pyplot as plt

    search, study = result.study.search, result.study
    assert result.explored is not None
    assert search is not None
    columns = [objective.column for objective in search.objectives]
    x, y = (columns[0], "area_um2") if len(columns) == 1 else columns[:2]
    trials = result.explored.trials[result.explored.trials["feasible"]]
    drawing, panel = plt.subplots(figsize=(6.8, 4.0), layout="constrained")
    named = style.shown(trials.assign(design=trials["design"].map(labels)))
    plots.draw_front(panel, named, x, y, "design", palette)
    given = as_given(result)
    for name, row in style.shown(given).set_index("design").iterrows():
        label = labels[str(name)]
        panel.scatter(
            row[x], row[y], s=130, marker="*", color=palette[label], edgecolors="black", linewidths=0.9, zorder=5,
            label=f"{label} as given",
        )  # fmt: skip
    which = "every candidate" if all(how.startswith("all") for how in result.explored.method.values()) else "candidates"
    plots.finish_panel(drawing, panel, f"{study.name}: {which} ({search.accounting} accounting)", "design")
    return drawing


def _comparison(
    result: StudyResult, baseline: str, axis: str, labels: Mapping[str, str], palette: Mapping[str, str]
) -> Drawing:
    """The best designs beside those that the study has, relative to the baseline: geometric means over the models."""
    import matplotlib.pyplot as plt

    search = result.study.search
    assert search is not None
    table = compare(result, baseline)
    table = table[table["accounting"] == search.accounting]
    drawing, panels = plt.subplots(1, 2, figsize=(8.4, 3.6), layout="constrained")
    for panel, value in zip(panels, ("speedup", "energy"), strict=True):
        for name, rows in table.groupby("design", sort=False):
            for which, line in (("given", ":"), ("searched", "-")):
                label = f"{labels[str(name)]}, {'as given' if which == 'given' else 'both searched'}"
                colour = palette[labels[str(name)]]
                panel.plot(
                    rows[axis],
                    rows[f"{value}_{which}"],
                    line,
                    color=colour,
                    marker="o",
                    markersize=4,
                    label=label,
                )
        panel.axhline(1, color="#555555", linewidth=0.8)
        panel.set_xscale("log", base=2)
        panel.set_xticks(sorted(set(table[axis])), [style.tick(place) for place in sorted(set(table[axis]))])
        panel.set_xlabel(style.label(axis))
        panel.set_ylim(bottom=0)
        relative = {
            "speedup": f"Speedup over {labels[baseline]}",
            "energy": f"Energy relative to {labels[baseline]}",
        }
        panel.set_ylabel(relative[value])
    handles, names = panels[0].get_legend_handles_labels()
    columns = len(names) if len(names) <= 4 else -(-len(names) // 2)
    drawing.legend(handles, names, loc="outside lower center", ncols=columns)
    drawing.suptitle(
        f"{result.study.name}: geometric means over the models ({search.accounting} accounting)", fontsize=10
    )
    return drawing


def _budgets(result: StudyResult, budgets: Budgeted, labels: Mapping[str, str], palette: Mapping[str, str]) -> Drawing:
    """The best of each design over the budget, and relative to the first baseline."""
    import matplotlib.pyplot as plt

    assert result.study.search is not None
    frame, objective = style.shown(budgets.overall), budgets.objective
    frame["budget"] = frame["budget_um2"] * 1e-6
    baseline = next((name for name in result.study.baselines if (frame["design"] == name).any()), None)
    count = 1 if baseline is None else 2
    drawing, panels = plt.subplots(1, count, figsize=(1.0 + 4.0 * count, 3.8), layout="constrained", squeeze=False)
    base = frame[frame["design"] == baseline].set_index("budget")[objective]
    for number, name in enumerate(result.study.search.ranges):
        rows, label = frame[frame["design"] == name], labels[name]
        shape = {"marker": ("o", "s", "^", "D", "v", "P", "X")[number % 7], "markersize": 5, "color": palette[label]}
        panels[0, 0].plot(rows["budget"], rows[objective], label=label, **shape)
        if baseline is not None:
            both = rows[rows["budget"].isin(base.index)].set_index("budget")[objective]
            panels[0, 1].plot(both.index, base.reindex(both.index) / both, **shape)
    metric = style.label(objective).split(",")[0]
    for panel in panels[0]:
        panel.set_xscale("log")
        panel.set_yscale("log")
        for axis in (panel.xaxis, panel.yaxis):
            _plain_ticks(axis)
        panel.set_xlabel("Area budget (mm2)")
    panels[0, 0].set_ylabel(f"{metric}, best within the budget")
    if baseline is not None:
        name = metric.split(" (")[0]
        ratio = "Speedup" if name == "Latency" else f"{name} saved, as a factor,"
        panels[0, 1].set_ylabel(f"{ratio} over {labels[baseline]}")
    drawing.legend(loc="outside lower center", ncols=len(labels))
    drawing.suptitle(_heading(result, "best designs by area"), fontsize=10)
    return drawing


def _winners(result: StudyResult, budgets: Budgeted, labels: Mapping[str, str], palette: Mapping[str, str]) -> Drawing:
    """A map of the design that wins, by budget and the axis of the sweep; in each cell, how far the next is behind."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    assert budgets.by_axis is not None
    assert budgets.axis is not None
    frame, axis = budgets.by_axis, budgets.axis
    columns, rows = sorted(set(frame["budget_um2"])), list(dict.fromkeys(frame[axis]))
    size = (1.6 + 0.78 * len(columns), 1.6 + 0.42 * len(rows))
    drawing, panel = plt.subplots(figsize=size, layout="constrained")
    for _, cell in frame.groupby(["budget_um2", axis]):
        ranked = cell.sort_values("behind", kind="stable")
        x, y = columns.index(ranked["budget_um2"].iloc[0]), rows.index(ranked[axis].iloc[0])
        label = labels[ranked["design"].iloc[0]]
        panel.add_patch(Rectangle((x, y), 1, 1, facecolor=palette[label], edgecolor="white", linewidth=1.5))
        behind = f"\n{ranked['behind'].iloc[1]:.2f}x" if len(ranked) > 1 else ""
        panel.annotate(
            f"{label}{behind}", (x + 0.5, y + 0.5), ha="center", va="center", fontsize=7.5,
            color=style.ink_on(palette[label]),
        )  # fmt: skip
    panel.set_xlim(0, len(columns))
    panel.set_ylim(0, len(rows))
    panel.grid(visible=False)
    panel.tick_params(length=0)
    panel.set_xticks([place + 0.5 for place in range(len(columns))], [f"{budget * 1e-6:.4g}" for budget in columns])
    panel.set_yticks([place + 0.5 for place in range(len(rows))], [_place(place) for place in rows])
    panel.set_xlabel("Area budget (mm2)")
    panel.set_ylabel(style.label(axis))
    metric = style.label(budgets.objective).split(" (")[0].lower()
    drawing.suptitle(_heading(result, f"least {metric}, and by how much the next is behind"), fontsize=10)
    return drawing


def _convergence(result: StudyResult, frame: pd.DataFrame, labels: Mapping[str, str]) -> Drawing:
    """The share of the exact front's hypervolume over the number of trials, a line for each sampler and design."""
    import matplotlib.pyplot as plt

    drawing, panels = plt.subplots(1, len(RATIOS), figsize=(8.4, 3.6), layout="constrained", sharey=True)
    samplers, designs = list(dict.fromkeys(frame["sampler"])), list(dict.fromkeys(frame["design"]))
    early = frame[frame["trial"] >= min(SETTLED_AFTER, frame.groupby("sampler")["trial"].max().min())]
    for panel, ratio in zip(panels, RATIOS, strict=True):
        for (sampler, design), rows in frame.groupby(["sampler", "design"], sort=False):
            name = f"{sampler}, {labels[str(design)]}" if len(designs) > 1 else str(sampler)
            dashes = ("-", "--", ":", "-.")[designs.index(design) % 4]
            colour = style.EINSUM_PALETTE[samplers.index(sampler) % len(style.EINSUM_PALETTE)]
            width = 3.0 - 1.8 * samplers.index(sampler) / max(1, len(samplers) - 1)  # so that equal lines both show
            panel.plot(
                rows["trial"], rows[ratio], dashes, color=colour, linewidth=width, drawstyle="steps-post", label=name
            )
        panel.axhline(ENOUGH, color="#555555", linewidth=0.8, linestyle="--")
        panel.annotate(f"{ENOUGH:.0%}", (1, ENOUGH), fontsize=8, va="bottom")
        panel.set_xscale("log")
        _plain_ticks(panel.xaxis, (1,))
        panel.set_xlabel("Trials")
        panel.set_title("of the logarithms" if ratio.endswith("_log") else "of the objectives", loc="left")
    panels[0].set_ylim(max(0.0, min(early[ratio].min() for ratio in RATIOS) - 0.1), 1.01)
    panels[0].set_ylabel("Share of the exact front's hypervolume")
    handles, names = panels[0].get_legend_handles_labels()
    drawing.legend(handles, names, loc="outside lower center", ncols=len(names))
    drawing.suptitle(_heading(result, "samplers against all candidates"), fontsize=10)
    return drawing


SETTLED_AFTER = 20
"""Trials before which a line may start below the figure: they are few, and all samplers are alike there."""


def _heading(result: StudyResult, what: str) -> str:
    assert result.study.search is not None
    return f"{style.plain(result.study.name)}: {what} ({result.study.search.accounting} accounting)"


def _place(value: Any) -> str:
    return style.plain(value) if isinstance(value, str) else style.tick(float(value))


def _plain_ticks(axis: Any, at: tuple[int, ...] = (1, 2, 5)) -> None:
    """A logarithmic axis with ticks at these places of each decade, as plain numbers."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=at))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:g}")
