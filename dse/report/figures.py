"""A study's figures: grouped bars over sequence length, a panel a model; utilization stacked by Einsum, a panel a design."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dse.report import style
from dse.specs.study import Figure
from dse.studies.run import StudyResult
from dse.studies.summary import relative_to

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


def draw_figures(result: StudyResult, folder: Path, advance: Callable[[str], None] = lambda step: None) -> None:
    """Draw every figure that the study asks for into `folder`, as PNG and PDF."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    with mpl.rc_context(style.rc()):
        for figure in result.study.figures:
            drawing = _by_einsum(result, figure) if figure.by == "einsum" else _grouped_bars(result, figure)
            for kind in ("png", "pdf"):
                drawing.savefig(
                    folder / f"{figure.name}.{kind}", metadata={"CreationDate": None} if kind == "pdf" else None
                )
            plt.close(drawing)
            advance(figure.name)


def _accounting(result: StudyResult, figure: Figure) -> str:
    return figure.accounting or next(iter(result.study.accounting))


def _grouped_bars(result: StudyResult, figure: Figure) -> Drawing:
    frame = result.frame if figure.baseline is None else relative_to(result.frame, figure.baseline)
    accounting = _accounting(result, figure)
    frame = frame[frame["accounting"] == accounting]
    designs = [name for name in result.study.designs if name != figure.baseline]
    models = list(dict.fromkeys(frame["model"])) if "model" in frame else [""]
    models = [figure.model] if figure.model else models
    columns = min(2, len(models))
    rows = -(-len(models) // columns)
    drawing, axes = _panels(rows, columns, 4.2, 1.8)
    palette = style.colours(designs)
    for number, model in enumerate(models):
        panel = axes[number // columns][number % columns]
        part = frame[frame["model"] == model] if model else frame
        _bars(panel, part, designs, figure.value, palette)
        panel.set_title(model, loc="left")
        if figure.baseline is not None:
            panel.axhline(1, color="#555555", linewidth=0.8)
    for panel in axes.ravel()[len(models) :]:
        panel.set_visible(False)
    for panel in axes[:, 0]:
        panel.set_ylabel(_value_label(figure))
    for panel in axes[-1]:
        panel.set_xlabel(style.label("seq_len"))
    handles, labels = axes[0][0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="lower center", ncols=len(designs))
    drawing.suptitle(f"{figure.title} ({accounting} accounting)", fontsize=10)
    return drawing


def _panels(rows: int, columns: int, width: float, height: float) -> tuple[Drawing, Any]:
    """A grid of panels of a size in inches with shared axes, and room for titles, labels and a legend below."""
    import matplotlib.pyplot as plt

    left, right, top, bottom, across, down = 0.65, 0.12, 0.55, 0.8, 0.2, 0.35
    full_width = left + right + columns * width + (columns - 1) * across
    full_height = top + bottom + rows * height + (rows - 1) * down
    drawing, axes = plt.subplots(
        rows, columns, figsize=(full_width, full_height), sharex=True, sharey=True, squeeze=False
    )
    drawing.subplots_adjust(
        left / full_width,
        bottom / full_height,
        1 - right / full_width,
        1 - top / full_height,
        across / width,
        down / height,
    )
    return drawing, axes


def _bars(panel: Any, frame: pd.DataFrame, designs: list[str], value: str, palette: dict[str, str]) -> None:
    lengths = sorted(frame["seq_len"].unique())
    width = 0.84 / len(designs)
    for number, design in enumerate(designs):
        values = frame[frame["design"] == design].set_index("seq_len")[value].reindex(lengths)
        offset = (number - (len(designs) - 1) / 2) * width
        panel.bar(
            np.arange(len(lengths)) + offset,
            values,
            width,
            color=palette[design],
            edgecolor="white",
            linewidth=0.3,
            label=style.label(design),
        )
    panel.set_xticks(np.arange(len(lengths)), [style.length_label(length) for length in lengths])
    if value.startswith("util_"):
        panel.set_ylim(0, 1.02)


def _value_label(figure: Figure) -> str:
    if figure.value.startswith("util_"):
        return f"Utilization of {figure.value[5:].upper()} array"
    over = style.label(figure.baseline) if figure.baseline else ""
    return {"speedup": f"Speedup over {over.lower()}", "energy": f"Energy / {over.lower()}"}.get(
        figure.value, style.label(figure.value)
    )


def _by_einsum(result: StudyResult, figure: Figure) -> Drawing:
    unit, accounting = figure.value.removeprefix("util_"), _accounting(result, figure)
    frame = result.breakdown
    frame = frame[(frame["accounting"] == accounting) & (frame["unit"] == unit)]
    if figure.model is not None:
        frame = frame[frame["model"] == figure.model]
    designs = list(result.study.designs)
    einsums = list(dict.fromkeys(frame["einsum"]))
    fills = dict(zip(einsums, _einsum_colours(len(einsums)), strict=True))
    drawing, axes = _panels(1, len(designs), 1.8, 2.0)
    for panel, design in zip(axes[0], designs, strict=True):
        table = (
            frame[frame["design"] == design]
            .pivot_table(index="seq_len", columns="einsum", values="utilization", sort=False)
            .sort_index()
        )
        bottom = np.zeros(len(table))
        for einsum in (name for name in einsums if name in table):
            panel.bar(
                np.arange(len(table)),
                table[einsum],
                0.8,
                bottom=bottom,
                color=fills[einsum],
                edgecolor="white",
                linewidth=0.4,
                label=einsum,
            )
            bottom += table[einsum].to_numpy()
        panel.set_xticks(np.arange(len(table)), [style.length_label(length) for length in table.index], fontsize=8)
        panel.set_title(style.label(design), loc="left")
        panel.set_xlabel(style.label("seq_len"), fontsize=8)
        panel.set_ylim(0, 1.02)
    axes[0][0].set_ylabel(_value_label(figure))
    shown: dict[str, Any] = {}
    for panel in axes[0]:
        handles, labels = panel.get_legend_handles_labels()
        shown.update(zip(labels, handles, strict=True))
    drawing.legend(shown.values(), shown.keys(), loc="lower center", ncols=len(shown))
    model = f", {figure.model}" if figure.model else ""
    drawing.suptitle(f"{figure.title}{model} ({accounting} accounting)", fontsize=10)
    return drawing


def _einsum_colours(count: int) -> list[str]:
    palette = (
        "#332288",
        "#88CCEE",
        "#44AA99",
        "#DDCC77",
        "#CC6677",
        "#AA4499",
        "#117733",
        "#882255",
        "#999933",
        "#661100",
    )
    return [palette[number % len(palette)] for number in range(count)]
