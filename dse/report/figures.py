"""A study's figures: grouped bars along its numeric axis, a panel a model; utilization stacked by Einsum, a panel a design."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dse.cascade.passes import PassReport, passes_in_words
from dse.report import plots, style
from dse.report.cascades import least_buffer_bytes
from dse.report.searches import search_figures
from dse.report.sensitivity import sensitivity_figures
from dse.search.mapper import Found
from dse.search.workload import FUSED, UNFUSED
from dse.specs.choices import MODEL_AXIS
from dse.specs.library import load_architecture, load_mapping, names
from dse.specs.source import SpecError
from dse.specs.study import Figure
from dse.specs.workload import Workload
from dse.studies.output import whole_file
from dse.studies.points import column_of
from dse.studies.run import StudyResult
from dse.studies.summary import relative_to, tabulate

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


def draw_figures(result: StudyResult, folder: Path, advance: Callable[[str], None] = lambda step: None) -> None:
    """Draw every figure that the study asks for into `folder`, as PNG and PDF."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    with mpl.rc_context(style.rc()):
        own = search_figures(result) if result.explored is not None else ()
        if result.analysis is not None:
            own = sensitivity_figures(result)
        for name, drawing in own:
            drawing.savefig(folder / f"{name}.png")
            drawing.savefig(folder / f"{name}.pdf", metadata={"CreationDate": None})
            plt.close(drawing)
        for figure in result.study.figures:
            draw = _plotted if figure.kind != "bars" else _stacked_by_einsum if figure.by == "einsum" else _grouped_bars
            drawing = draw(result, figure)
            drawing.savefig(folder / f"{figure.name}.png")
            drawing.savefig(folder / f"{figure.name}.pdf", metadata={"CreationDate": None})
            plt.close(drawing)
            advance(figure.name)


def _plotted(result: StudyResult, figure: Figure) -> Drawing:
    """A figure of another kind than bars, on one panel."""
    import matplotlib.pyplot as plt

    frame = style.shown(plotted_rows(result, figure))
    drawing, panel = plt.subplots(figsize=(6.8, 4.0), layout="constrained")
    labels = {name: style.plain(design.label) for name, design in result.study.designs.items()}
    palette = {labels[name]: colour for name, colour in style.colours(result.study.designs).items()}
    color = figure.color or ("design" if frame["design"].nunique() > 1 else MODEL_AXIS if MODEL_AXIS in frame else None)
    named = frame.assign(design=frame["design"].map(labels))
    held = {
        axis: axis if isinstance(values[0], str) else next(iter(column_of(axis, values[0])))
        for axis, values in result.study.sweep.items()
    }
    along = held.get(figure.x or "", figure.x)
    color = held.get(color or "", color)
    several = figure.accounting is None and figure.kind == "breakdown" and frame["accounting"].nunique() > 1
    if figure.kind == "breakdown":
        x = along or "design"
        if several:
            named[x] = named[x].astype(str) + "\n" + named["accounting"]
        plots.draw_breakdown(panel, named, x, figure.value, str(figure.by), share=figure.share)
        color = figure.by
    elif figure.kind == "roofline":
        plots.draw_roofline(panel, named, color, palette)
    else:
        plots.KINDS[figure.kind](panel, named, along, figure.value, color, palette)
    places = [labels[figure.design]] if figure.design else []
    places += [figure.model] if figure.model else []
    places += [f"{style.label(name).split(' (')[0]} {_spelled(value)}" for name, value in figure.at.items()]
    title = ", ".join([style.plain(figure.title), *places])
    plots.finish_panel(
        drawing, panel, title if several else f"{title} ({_accounting(result, figure)} accounting)", color
    )
    return drawing


def breakdown_tables(result: StudyResult) -> Iterator[tuple[str, pd.DataFrame]]:
    """The numbers behind each breakdown by design, with a title."""
    for figure in result.study.figures:
        if figure.kind == "breakdown" and figure.x is None:
            rows = style.shown(plotted_rows(result, figure))
            yield f"{figure.title}: {style.label(figure.value)}", tabulate(rows, str(figure.by), figure.value)


def _spelled(value: Any) -> str:
    return str(value) if isinstance(value, str) else style.tick(value.value)


def plotted_rows(result: StudyResult, figure: Figure) -> pd.DataFrame:
    """The rows that a figure draws, of the table that it opens. Raises SpecError where there is none."""
    tables = {"component": result.components, "einsum": result.breakdown, "part": result.breakdown}
    frame = result.frame if figure.by is None else tables[figure.by]
    if figure.accounting is not None or figure.kind != "breakdown":
        frame = frame[frame["accounting"] == _accounting(result, figure)]
    if figure.design is not None:
        frame = frame[frame["design"] == figure.design]
    if figure.model is not None:
        frame = frame[frame[MODEL_AXIS] == figure.model]
    for name, value in figure.at.items():
        column, wanted = (name, value) if isinstance(value, str) else next(iter(column_of(name, value).items()))
        frame = frame[frame[column] == wanted]
    if not len(frame):
        raise SpecError(f"figure {figure.name}: no row is there to draw")
    if figure.kind == "breakdown" and figure.value == "area_um2":
        frame = frame.drop_duplicates(["design", "accounting", str(figure.by), *([figure.x] if figure.x else [])])
    return frame


def _grouped_bars(result: StudyResult, figure: Figure) -> Drawing:
    frame = result.frame if figure.baseline is None else relative_to(result, figure.baseline)
    frame = _counted(result, figure, frame)
    designs = [name for name in result.study.designs if name != figure.baseline]
    models = list(dict.fromkeys(frame[MODEL_AXIS])) if MODEL_AXIS in frame else [""]
    columns = min(2, len(models))
    drawing, axes = _panels(-(-len(models) // columns), columns, 4.2, 1.8)
    for panel, model in zip(axes.ravel(), models, strict=False):
        _bars(panel, frame[frame[MODEL_AXIS] == model] if model else frame, designs, result, figure)
        panel.set_title(model, loc="left")
        if figure.baseline is not None:
            panel.axhline(1, color="#555555", linewidth=0.8)
    for panel in axes.ravel()[len(models) :]:
        panel.set_visible(False)
    _finish(drawing, axes, result, figure)
    return drawing


def _bars(panel: Any, frame: pd.DataFrame, designs: list[str], result: StudyResult, figure: Figure) -> None:
    axis, palette = _axis(result), style.colours(result.study.designs)
    places = sorted(frame[axis].unique())
    width = 0.84 / len(designs)
    for number, design in enumerate(designs):
        values = frame[frame["design"] == design].set_index(axis)[figure.value].reindex(places)
        offset = (number - (len(designs) - 1) / 2) * width
        label = style.plain(result.study.designs[design].label)
        _draw_bars(panel, np.arange(len(places)) + offset, values, width, 0, palette[design], label)
    panel.set_xticks(np.arange(len(places)), [style.tick(place) for place in places])
    if figure.value.startswith("util_"):
        panel.set_ylim(0, 1.02)


def _stacked_by_einsum(result: StudyResult, figure: Figure) -> Drawing:
    frame = _counted(result, figure, result.breakdown)
    frame = frame[frame["unit"] == figure.value.removeprefix("util_")]
    axis = _axis(result)
    einsums = list(dict.fromkeys(frame["einsum"]))
    fills = {name: style.EINSUM_PALETTE[number % len(style.EINSUM_PALETTE)] for number, name in enumerate(einsums)}
    drawing, axes = _panels(1, len(result.study.designs), 1.8, 2.0)
    for panel, (name, design) in zip(axes[0], result.study.designs.items(), strict=True):
        table = frame[frame["design"] == name].pivot_table(index=axis, columns="einsum", values="utilization")
        bottom = np.zeros(len(table))
        for einsum in (einsum for einsum in einsums if einsum in table):
            height = table[einsum].to_numpy()
            _draw_bars(panel, np.arange(len(table)), height, 0.8, bottom, fills[einsum], einsum)
            bottom += height
        panel.set_xticks(np.arange(len(table)), [style.tick(place) for place in table.index], fontsize=8)
        panel.set_title(style.plain(design.label), loc="left")
        panel.set_ylim(0, 1.02)
    _finish(drawing, axes, result, figure)
    return drawing


def _draw_bars(panel: Any, centres: Any, heights: Any, width: float, bottoms: Any, colour: str, label: str) -> None:
    """Bars of one colour as one artist: a figure has hundreds, and matplotlib draws patches one by one."""
    from matplotlib.collections import PolyCollection

    low, high = np.broadcast_arrays(bottoms, np.asarray(bottoms) + np.asarray(heights))
    left, right = centres - width / 2, centres + width / 2
    corners = [(left, low), (left, high), (right, high), (right, low)]
    boxes = np.stack([np.stack([x, y], axis=-1) for x, y in corners], axis=1)
    bars = PolyCollection(list(boxes), facecolors=colour, edgecolors="white", linewidths=0.3, label=label)
    panel.add_collection(bars)
    panel.autoscale_view()


def _counted(result: StudyResult, figure: Figure, frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the figure's accounting (the study's first where it names none) and model."""
    frame = frame[frame["accounting"] == _accounting(result, figure)]
    return frame if figure.model is None else frame[frame[MODEL_AXIS] == figure.model]


def _accounting(result: StudyResult, figure: Figure) -> str:
    return figure.accounting or next(iter(result.study.accounting))


def _axis(result: StudyResult) -> str:
    """The column of the sweep's one axis beside the model."""
    return next(axis for axis in result.axes if axis != MODEL_AXIS)


def _panels(rows: int, columns: int, width: float, height: float) -> tuple[Drawing, Any]:
    """A grid of panels of a size in inches with shared axes, and room for titles, labels and a legend below."""
    import matplotlib.pyplot as plt

    left, right, top, bottom, across, down = 0.65, 0.12, 0.55, 0.8, 0.2, 0.35
    full = (left + right + columns * width + (columns - 1) * across, top + bottom + rows * height + (rows - 1) * down)
    drawing, axes = plt.subplots(rows, columns, figsize=full, sharex=True, sharey=True, squeeze=False)
    edges = (left / full[0], bottom / full[1], 1 - right / full[0], 1 - top / full[1])
    drawing.subplots_adjust(*edges, across / width, down / height)
    return drawing, axes


def _finish(drawing: Drawing, axes: Any, result: StudyResult, figure: Figure) -> None:
    """Labels on the outer panels, one legend for all below, and a title that names the accounting."""
    axes[0, 0].set_ylim(bottom=0)  # of all panels, and only now: a limit that is set stops the scale from growing
    for panel in axes[:, 0]:
        panel.set_ylabel(_value_label(result, figure))
    for panel in axes[-1]:
        panel.set_xlabel(style.label(_axis(result)))
    shown: dict[str, Any] = {}
    for panel in axes.ravel():
        handles, labels = panel.get_legend_handles_labels()
        shown.update(zip(labels, handles, strict=True))
    drawing.legend(shown.values(), shown.keys(), loc="lower center", ncols=len(shown))
    model = f", {figure.model}" if figure.model else ""
    drawing.suptitle(f"{style.plain(figure.title)}{model} ({_accounting(result, figure)} accounting)", fontsize=10)


def _value_label(result: StudyResult, figure: Figure) -> str:
    if figure.value.startswith("util_"):
        return f"Utilization of {figure.value.removeprefix('util_').upper()} array"
    baseline = style.plain(result.study.designs[figure.baseline].label) if figure.baseline else ""
    relative = {"speedup": f"Speedup over {baseline}", "energy": f"Energy relative to {baseline}"}
    return relative.get(figure.value) or style.label(figure.value)


FIBERS = 256
"""Rows in flight at once in `draw_footprints`, and elements of an inner part: the shipped arrays have 256 columns."""


def draw_footprints(reports: Sequence[tuple[Workload, PassReport]], path: Path) -> None:
    """Draw the least buffer of cascades over sequence length, with the buffers of the shipped architectures as lines."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    lengths = [2**power for power in range(10, 21)]
    with mpl.rc_context(style.rc()):
        drawing, panel = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
        for number, (workload, report) in enumerate(reports):
            sizes = [least_buffer_bytes(workload, report, length, FIBERS, FIBERS) for length in lengths]
            shape = ("o", "s", "^", "D", "v", "P", "X")[number % 7]
            name = f"{workload.name} ({passes_in_words(report.passes)})"
            width = 1.2 + 2.4 * (len(reports) - 1 - number) / max(1, len(reports) - 1)  # so that equal lines both show
            panel.plot(
                lengths,
                sizes,
                marker=shape,
                markersize=4,
                linewidth=width,
                color=style.PALETTE[number % len(style.PALETTE)],
                label=name,
            )
        for name in sorted({load_mapping(each).architecture or "" for each in names("mappings")} - {""}):
            buffer = max((each.capacity_bits or 0) / 8 for each in load_architecture(name).resolve().memories.values())
            panel.axhline(buffer, color="#555555", linewidth=0.8, linestyle="--")
            panel.annotate(f"buffer of {name}", (lengths[0], buffer), fontsize=8, va="bottom")
        panel.set_xscale("log", base=2)
        panel.set_yscale("log", base=2)
        panel.set_xticks(lengths[::2], [style.tick(length) for length in lengths[::2]])
        ticks = [2.0**power for power in range(8, 34, 4)]
        panel.set_yticks(ticks, [style.bytes_tick(size) for size in ticks])
        panel.minorticks_off()
        panel.set_xlabel(f"Length of {reports[0][1].rank} (elements)")
        panel.set_ylabel(f"Least buffer for {FIBERS} rows in flight")
        panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        _save(drawing, path)


WHOLE_DASHES = {UNFUSED: ":", FUSED: "-"}
"""How the bounds of a whole cascade are drawn."""


def draw_bounds(fronts: Mapping[str, Found], path: Path) -> None:
    """Draw the least DRAM traffic of each Einsum over the capacity on chip."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator

    with mpl.rc_context(style.rc()):
        drawing, panel = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
        largest = max(2.0, *(point.costs["capacity"] for found in fronts.values() for point in found.points))
        for number, (name, found) in enumerate(fronts.items()):
            kept = [point.costs for point in found.points if point.costs["capacity"] > 0]
            sizes = [costs["capacity"] for costs in kept] or [1.0]  # an axis of powers has no place for nothing
            moved = [costs["dram"] for costs in kept or [found.points[0].costs]]
            colour = style.PALETTE[number % len(style.PALETTE)]
            width = 1.2 + 2.4 * (len(fronts) - 1 - number) / max(1, len(fronts) - 1)  # so that equal lines both show
            dashes = "-"
            if name in WHOLE_DASHES:
                colour, width, dashes = "black", 2.0, WHOLE_DASHES[name]
            ends = [*sizes, 2 * largest], [*moved, *moved[-1:]]
            panel.step(*ends, where="post", color=colour, linewidth=width, linestyle=dashes, label=name)
            panel.plot(sizes[-1:], moved[-1:], marker="o", markersize=2.5 * width, color=colour)
        panel.set_xscale("log", base=2)
        panel.set_yscale("log", base=2)
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_locator(LogLocator(base=2, numticks=8))
            axis.set_major_formatter(lambda size, _: style.bytes_tick(size))
        panel.minorticks_off()
        panel.set_xlabel("Held on chip at once")
        panel.set_ylabel("Least DRAM traffic")
        panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), title="Einsum")
        _save(drawing, path)


def _save(drawing: Drawing, path: Path) -> None:
    """Write a figure whole. Raises SpecError where it cannot be."""
    import matplotlib.pyplot as plt

    try:
        with whole_file(path) as scratch:
            drawing.savefig(scratch)
    except ValueError as error:
        raise SpecError(f"cannot draw {path}: {error}") from None
    finally:
        plt.close(drawing)
