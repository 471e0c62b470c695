"""Figures of any table of results: bars, lines, a Pareto front, parts of a whole, a roofline. Each is drawn on one panel.

A table has a row per design point, as results.csv, or per part of one, as breakdown.csv and components.csv. Colours stand
for the values of one column, and mean the same wherever the same `palette` is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dse.report import style
from dse.search.front import pareto_rows
from dse.specs.quantity import BANDWIDTH, INFORMATION, QuantityError
from dse.specs.quantity import number as quantity_of
from dse.specs.source import SpecError
from dse.wording import allowed

Palette = Mapping[str, str]
PART_COLUMNS = ("component", "einsum", "part", "action")
"""Columns that name a part of a whole, in the order in which they are looked for."""
MANY_POINTS = 5000
"""More points than this are a picture in a PDF: as drawings, they would make it slow to open."""
WIDE_RANGE = 30.0
"""Values whose largest is more than this many times the smallest stand on a logarithmic axis."""


def draw_lines(panel: Any, frame: pd.DataFrame, x: str, y: str, color: str | None, palette: Palette) -> None:
    """A line for each value of `color`, over `x`; several rows of one place are drawn as their mean."""
    for number, (name, rows) in enumerate(_groups(frame, color)):
        means = rows.groupby(x, sort=True)[y].mean()
        shape = ("o", "s", "^", "D", "v", "P", "X")[number % 7]
        panel.plot(means.index, means, marker=shape, markersize=4, color=_colour(palette, name, number), label=name)
    _scale(panel.xaxis, frame[x], x)
    _scale(panel.yaxis, frame[y], y)


def draw_bars(panel: Any, frame: pd.DataFrame, x: str, y: str, color: str | None, palette: Palette) -> None:
    """Groups of bars, one for each value of `x`; several rows of one place are drawn as their mean."""
    places = list(dict.fromkeys(frame[x]))
    places = sorted(places) if pd.api.types.is_numeric_dtype(frame[x]) else places
    groups = _groups(frame, color)
    width = 0.84 / len(groups)
    for number, (name, rows) in enumerate(groups):
        heights = rows.groupby(x)[y].mean().reindex(places)
        offset = (number - (len(groups) - 1) / 2) * width
        panel.bar(np.arange(len(places)) + offset, heights, width, color=_colour(palette, name, number), label=name)
    _name_places(panel, places)
    panel.set_xlabel(style.label(x))
    panel.set_ylabel(style.label(y))


def draw_front(panel: Any, frame: pd.DataFrame, x: str, y: str, color: str | None, palette: Palette) -> None:
    """Every row as a point, and a step line through those that no other beats in both `x` and `y`."""
    many = len(frame) > MANY_POINTS
    for number, (name, rows) in enumerate(_groups(frame, color)):
        shape = ("o", "s", "^", "D", "v", "P", "X")[number % 7]
        tint = _colour(palette, name, number)
        panel.scatter(
            rows[x], rows[y], s=14, marker=shape, color=tint, alpha=0.6, linewidths=0, label=name, rasterized=many
        )
    front = frame[pareto_rows(frame[[x, y]].to_numpy(dtype=float))].sort_values(x)
    panel.step(front[x], front[y], where="post", color="black", linewidth=1.2, label="Pareto front")
    panel.scatter(front[x], front[y], s=30, facecolors="none", edgecolors="black", linewidths=1.0)
    _scale(panel.xaxis, frame[x], x)
    _scale(panel.yaxis, frame[y], y)


def draw_breakdown(panel: Any, frame: pd.DataFrame, x: str, y: str, part: str, *, share: bool = False) -> None:
    """A bar for each value of `x`, stacked from what the values of `part` come to; or their shares of the whole."""
    places, parts = list(dict.fromkeys(frame[x])), list(dict.fromkeys(frame[part]))
    table = frame.pivot_table(index=x, columns=part, values=y, aggfunc="sum", sort=False).reindex(places).fillna(0.0)
    if share:
        table = table.div(table.sum(axis=1), axis=0)
    table = _without_slivers(table[parts])
    bottom = np.zeros(len(places))
    for number, name in enumerate(table):
        tint = style.EINSUM_PALETTE[number % len(style.EINSUM_PALETTE)]
        hatch = ("", "//", "..", "xx")[number // len(style.EINSUM_PALETTE) % 4]
        heights = table[name].to_numpy()
        panel.bar(
            np.arange(len(places)), heights, 0.7, bottom, color=tint, hatch=hatch, edgecolor="white", label=str(name)
        )
        bottom += heights
    if not share:
        for place, height in enumerate(bottom):
            panel.annotate(f"{height:.4g}", (place, height), ha="center", va="bottom", fontsize=8)
        panel.set_ylim(0, 1.08 * max(bottom.max(), np.finfo(float).tiny))
    else:
        panel.set_ylim(0, 1)
    _name_places(panel, places)
    panel.set_xlabel(style.label(x))
    panel.set_ylabel(f"Share of {style.label(y).split(' (')[0].lower()}" if share else style.label(y))


SLIVER = 0.005
"""Parts that are less than this share of every bar are drawn as one."""


def _without_slivers(table: pd.DataFrame) -> pd.DataFrame:
    most = table.div(table.sum(axis=1), axis=0).max().to_numpy()
    small = [name for name, share in zip(table, most, strict=True) if share < SLIVER]
    seen = [name for name, share in zip(table, most, strict=True) if 0 < share < SLIVER]
    if len(seen) < 2:
        return table.drop(columns=[name for name in small if name not in seen])
    rest = {f"{len(seen)} others, each under {SLIVER:.1%}": table[seen].sum(axis=1)}
    return table.drop(columns=small).assign(**rest)


def left_over(frame: pd.DataFrame, used: Sequence[str | None]) -> list[str]:
    """Columns that tell rows apart beside those that are drawn: names, and parameters of a sweep."""
    measured = re.compile(
        r"(util|cycles)_|.*_(s|pj|bytes|um2)\Z|(count|bytes|operations|utilization|peak_per_s)\Z|.*_per_s\Z"
    )
    named = ["workload", "unit", "feasible", "proven", "mappings", "priced", *PART_COLUMNS]
    return [
        str(name)
        for name in frame.columns
        if name not in used and name not in named and not measured.match(str(name)) and frame[name].nunique() > 1
    ]


def draw_roofline(panel: Any, frame: pd.DataFrame, color: str | None, palette: Palette) -> None:
    """Operations a second over operations a byte of DRAM traffic, under the roof of each machine: what its bandwidth lets
    through, and what its PEs can do (Williams, Waterman and Patterson, CACM 2009)."""
    busy = frame[(frame["dram_bytes"] > 0) & (frame["latency_s"] > 0)]
    intensity = busy["operations"] / busy["dram_bytes"]
    attained = busy["operations"] / busy["latency_s"]
    roofs = frame[["peak_per_s", "dram_bytes_per_s"]].drop_duplicates()
    ridges = (roofs["peak_per_s"] / roofs["dram_bytes_per_s"]).tolist()
    low, high = min([*intensity, *ridges]) / 4, max([*intensity, *ridges]) * 4
    for number, (name, rows) in enumerate(_groups(busy, color)):
        shape = ("o", "s", "^", "D", "v", "P", "X")[number % 7]
        panel.scatter(
            intensity[rows.index],
            attained[rows.index],
            s=18,
            marker=shape,
            color=_colour(palette, name, number),
            label=name,
        )
    across = np.geomspace(low, high, 200)
    for number, (peak, slope) in enumerate(roofs.itertuples(index=False)):
        roof = np.minimum(peak, slope * across)
        panel.plot(across, roof, color="black", linewidth=1.2, linestyle=("-", "--", ":", "-.")[number % 4])
        panel.annotate(f"{peak / 1e12:.3g} T/s", (high, peak), ha="right", va="bottom", fontsize=8)
        panel.annotate(
            f"{slope / 2**30:.4g} GiB/s", (low, slope * low), ha="left", va="bottom", fontsize=8, rotation=30
        )
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel("Operational intensity (operations per byte of DRAM traffic)")
    panel.set_ylabel("Operations per second")


NEEDED: Mapping[str, tuple[str, ...]] = {
    "bars": ("--x", "--y"),
    "lines": ("--x", "--y"),
    "pareto": ("--x", "--y"),
    "breakdown": ("--y",),
    "roofline": (),
}
"""What `dse plot` must be told for each kind."""
ROOFLINE_COLUMNS = ("operations", "latency_s", "dram_bytes", "peak_per_s", "dram_bytes_per_s")


def draw_table(
    path: Path,
    kind: str | None,
    x: str | None,
    y: str | None,
    color: str | None,
    where: Sequence[str],
    output: Path | None,
) -> Path:
    """Draw a CSV file and return where the figure is. Raises SpecError."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    from dse.studies.output import whole_file

    frame = _chosen(_read(path), where, path)
    kind = kind or ("lines" if x in frame and pd.api.types.is_numeric_dtype(frame[x]) else "bars")
    if kind not in KINDS:
        raise SpecError(f"--kind: unknown kind {kind!r}; {allowed(kind, KINDS)}")
    for option in NEEDED[kind]:
        if {"--x": x, "--y": y}[option] is None:
            raise SpecError(f"--kind {kind} needs {option} COLUMN; {allowed('', map(str, frame.columns))}")
    needed = dict.fromkeys(ROOFLINE_COLUMNS) if kind == "roofline" else {}
    check_columns(frame, {"--x": x, "--y": y, "--color": color, **{name: name for name in needed}}, str(path))
    out = output or path.with_name(f"{path.stem}_{kind}.png")
    labels, palette = _designs_of(path)
    title = ", ".join([path.parent.name if path.name in TABLES else path.stem, *where])
    with mpl.rc_context(style.rc()):
        drawing, panel = plt.subplots(figsize=(6.8, 4.0), layout="constrained")
        try:
            numbers = frame.select_dtypes("number")
            if not np.isfinite(numbers[[name for name in (x, y) if name in numbers]].to_numpy(dtype=float)).all():
                raise SpecError(f"{path}:1: a value that is to be drawn is no finite number")
            named = style.shown(frame)
            if "design" in frame:
                named["design"] = frame["design"].map(lambda name: labels.get(name, name))
                color = color or ("design" if frame["design"].nunique() > 1 else None)
            if kind == "breakdown":
                color = part_column(named) if color in (None, "design") else str(color)
                along = x or ("design" if "design" in named else str(named.columns[0]))
                if several := left_over(frame, (along, color)):
                    raise SpecError(
                        f"{path}:1: a bar would add up rows that differ in {', '.join(several)}; choose with --where "
                        + " --where ".join(f"{name}={frame[name].iloc[0]}" for name in several)
                    )
                draw_breakdown(panel, named, along, str(y), color)
            elif kind == "roofline":
                draw_roofline(panel, named, color, palette)
            else:
                KINDS[kind](panel, named, x, y, color, palette)
            several = left_over(frame, (x, color)) if kind in ("bars", "lines") else []
            finish_panel(drawing, panel, f"{title}: mean over {', '.join(several)}" if several else title, color)
            with whole_file(out) as scratch:
                drawing.savefig(scratch, format=out.suffix.lstrip(".") or "png")
        except (ValueError, TypeError, KeyError, ZeroDivisionError, OverflowError) as error:
            raise SpecError(f"cannot draw {out} from {path}: {' '.join(str(error).split())[:160]}") from None
        finally:
            plt.close(drawing)
    return out


TABLES = ("results.csv", "breakdown.csv", "components.csv")
"""Files that `dse run` writes in a folder called as the study."""


def _read(path: Path) -> pd.DataFrame:
    try:
        frame = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise SpecError(f"{path}:1: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not len(frame):
        raise SpecError(f"{path}:1: the table has no rows")
    return frame


def _chosen(frame: pd.DataFrame, where: Sequence[str], path: Path) -> pd.DataFrame:
    """The rows that a person asked for. Raises SpecError where none is left."""
    for text in where:
        name, equals, value = text.partition("=")
        if not equals:
            raise SpecError(f"--where {text}: expected COLUMN=VALUE")
        check_columns(frame, {"--where": name}, str(path))
        column = frame[name]
        if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
            try:
                asked = quantity_of(value)
                wanted = asked.value / 8 if asked.dimension in (INFORMATION, BANDWIDTH) else asked.value
            except QuantityError as error:
                raise SpecError(f"--where {text}: {error}") from None
            kept = frame[column == wanted]
        else:
            kept = frame[column.astype(str) == value]
        if not len(kept):
            raise SpecError(f"--where {text}: no row has it; {allowed(value, map(str, column.unique()[:40]))}")
        frame = kept
    return frame


def _designs_of(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Labels of designs, and colours by label, from the run.yaml beside a table; nothing where there is none."""
    import yaml

    try:
        record = yaml.safe_load(path.with_name("run.yaml").read_text(encoding="utf-8"))
        designs = record["study"]["designs"]
        labels = {name: style.plain(str(written.get("label") or name)) for name, written in designs.items()}
        colours = {labels[name]: str(written["colour"]) for name, written in designs.items() if written.get("colour")}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError):
        return {}, {}
    return labels, colours


def finish_panel(drawing: Any, panel: Any, title: str, color: str | None) -> None:
    """A legend outside the data, and a title."""
    handles, labels = panel.get_legend_handles_labels()
    if len(labels) > 1 or (labels and labels[0]):
        panel.legend(handles, labels, loc="center left", bbox_to_anchor=(1.0, 0.5), title=color and style.label(color))
    drawing.suptitle(style.plain(title), fontsize=10)


def part_column(frame: pd.DataFrame) -> str:
    """The column that names parts of a whole. Raises SpecError."""
    for column in PART_COLUMNS:
        if column in frame:
            return column
    raise SpecError(
        f"a breakdown needs a table with one of the columns {', '.join(PART_COLUMNS)}: breakdown.csv or components.csv"
    )


def check_columns(frame: pd.DataFrame, names: Mapping[str, str | None], where: str) -> None:
    """Refuse columns that a table does not have, or that hold no numbers where numbers are drawn. Raises SpecError."""
    for option, name in names.items():
        if name is None:
            continue
        if name not in frame:
            raise SpecError(f"{where}:1: {option}: no column {name!r}; {allowed(name, map(str, frame.columns))}")
        if option == "--y" and not pd.api.types.is_numeric_dtype(frame[name]):
            raise SpecError(f"{where}:1: --y: {name} holds no numbers")


def _groups(frame: pd.DataFrame, color: str | None) -> list[tuple[str, pd.DataFrame]]:
    if color is None:
        return [("", frame)]
    return [(_name(name), rows) for name, rows in frame.groupby(color, sort=False)]


LONGEST_LINE = 56
"""Characters that names of places may have together before they are written at an angle."""


def _name_places(panel: Any, places: Sequence[Any]) -> None:
    names = [_name(place) for place in places]
    panel.set_xticks(np.arange(len(places)), names)
    if sum(max(map(len, name.split("\n"))) + 2 for name in names) > LONGEST_LINE:
        for text in panel.get_xticklabels():
            text.set(rotation=35, ha="right", rotation_mode="anchor", fontsize=8 if len(names) < 12 else 6)


def _name(value: Any) -> str:
    return style.plain(str(value)) if isinstance(value, str) else style.tick(float(value))


def _colour(palette: Palette, name: str, number: int) -> str:
    return palette.get(name, style.PALETTE[number % len(style.PALETTE)])


def _scale(axis: Any, values: pd.Series[Any], column: str) -> None:
    """A label, and a logarithmic scale where the range asks for one: of twos for what comes in powers of two."""
    name = "x" if axis.axis_name == "x" else "y"
    panel = axis.axes
    getattr(panel, f"set_{name}label")(style.label(column))
    if not pd.api.types.is_numeric_dtype(values):
        return
    low, high = float(values.min()), float(values.max())
    if low <= 0 or high / low < WIDE_RANGE:
        return
    whole = np.log2(values.to_numpy(dtype=float))
    twos = bool(np.all(whole == np.round(whole)))
    getattr(panel, f"set_{name}scale")("log", **({"base": 2} if twos else {}))
    if twos:
        ticks = sorted(set(values))
        getattr(panel, f"set_{name}ticks")(ticks, [style.tick(value) for value in ticks])


KINDS: Mapping[str, Callable[..., None]] = {
    "bars": draw_bars,
    "lines": draw_lines,
    "pareto": draw_front,
    "breakdown": draw_breakdown,
    "roofline": draw_roofline,
}
"""What `dse plot` draws, by name."""
