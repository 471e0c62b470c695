"""Figures of searches show what their tables hold: the front with the designs as given, budgets, winners, convergence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import yaml
from matplotlib.colors import to_hex

from dse.report import style
from dse.report.figures import draw_figures
from dse.report.searches import search_figures
from dse.specs.study import load_study_file
from dse.studies.explore import run_search
from dse.studies.output import SEARCH_FIGURES, write_results
from dse.studies.run import StudyResult
from dse.studies.summary import as_given

mpl.use("Agg")

COLOURS = {"flat": "#E69F00", "fusemax": "#0072B2"}
SEARCH: dict[str, Any] = {
    "parameters": {
        "flat": {"rows": {"powers_of_two": [128, 256]}, "lanes": {"choices": [256, 1024]}},
        "fusemax": {"rows": {"powers_of_two": [64, 256]}, "buffer": {"powers_of_two": ["8 MiB", "16 MiB"]}},
    },
    "objectives": [{"metric": "latency_s"}, {"metric": "area_um2"}],
    "constraints": {"area_um2": [260e6, 330e6, 500e6]},
    "method": "exhaustive",
    "compare": {"tpe": 30, "random": 20},
}


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    """Two designs at two lengths within three budgets, two samplers beside."""
    designs = {
        name: {"architecture": name, "workload": workload, "mapping": name, "colour": COLOURS[name]}
        for name, workload in (("flat", "attention_3pass"), ("fusemax", "attention_1pass"))
    }
    sweep = {"model": ["BERT", "XLM"], "seq_len": ["4K", "16K"]}
    written = {"name": "two", "sweep": sweep, "designs": designs, "baselines": ["flat"], "search": SEARCH}
    path = tmp_path_factory.mktemp("study") / "two.yaml"
    path.write_text(yaml.safe_dump(written))
    return run_search(load_study_file(path))


@pytest.fixture
def drawings(searched: StudyResult) -> Iterator[dict[str, Any]]:
    import matplotlib.pyplot as plt

    with mpl.rc_context(style.rc()):
        drawn = dict(search_figures(searched))
        for drawing in drawn.values():
            drawing.canvas.draw()
        yield drawn
        for drawing in drawn.values():
            plt.close(drawing)


def test_the_front_marks_the_designs_as_the_study_has_them(searched: StudyResult, drawings: dict[str, Any]) -> None:
    panel = drawings["front"].axes[0]
    marks = {each.get_label(): each for each in panel.collections if str(each.get_label()).endswith("as given")}
    given = as_given(searched).set_index("design")
    assert set(marks) == {"flat as given", "fusemax as given"}
    for name, colour in COLOURS.items():
        mark = marks[f"{name} as given"]
        expected = [given.loc[name, "latency_s_geometric"], given.loc[name, "area_um2"] / 1e6]
        assert mark.get_offsets()[0].tolist() == pytest.approx(expected, rel=1e-12)
        assert to_hex(mark.get_facecolors()[0]).upper() == colour


def test_lines_by_budget_hold_the_best_of_each_design(searched: StudyResult, drawings: dict[str, Any]) -> None:
    assert searched.explored is not None
    assert searched.explored.budgets is not None
    frame = searched.explored.budgets.overall
    panels = drawings["budgets"].axes
    assert [panel.get_xscale() for panel in panels] == ["log", "log"]
    assert [panel.get_xlabel() for panel in panels] == ["Area budget (mm2)"] * 2
    assert panels[1].get_ylabel() == "Speedup over flat"
    base = frame[frame["design"] == "flat"].set_index("budget_um2")["latency_s_geometric"]
    for latency, speedup, (name, colour) in zip(panels[0].lines, panels[1].lines, COLOURS.items(), strict=True):
        own = frame[frame["design"] == name].set_index("budget_um2")["latency_s_geometric"]
        assert latency.get_xdata() == pytest.approx(own.index.to_numpy() / 1e6, rel=1e-12)
        assert latency.get_ydata().tolist() == own.tolist()
        both = own[own.index.isin(base.index)]
        assert speedup.get_ydata() == pytest.approx((base[both.index] / both).to_numpy(), rel=1e-12)
        assert latency.get_color() == speedup.get_color() == colour


def test_each_cell_of_the_map_has_its_winners_colour(searched: StudyResult, drawings: dict[str, Any]) -> None:
    assert searched.explored is not None
    assert searched.explored.budgets is not None
    frame = searched.explored.budgets.by_axis
    assert frame is not None
    panel = drawings["winners"].axes[0]
    budgets, lengths = sorted(set(frame["budget_um2"])), [4096, 16384]
    assert [text.get_text() for text in panel.get_yticklabels()] == ["4K", "16K"]
    cells = {(int(cell.get_x()), int(cell.get_y())): to_hex(cell.get_facecolor()).upper() for cell in panel.patches}
    texts = {tuple(int(place) for place in text.xy): text.get_text() for text in panel.texts}
    assert len(cells) == len(budgets) * len(lengths)
    for (x, y), colour in cells.items():
        own = frame[(frame["budget_um2"] == budgets[x]) & (frame["seq_len"] == lengths[y])]
        winner = own.loc[own["latency_s_geometric"].idxmin(), "design"]
        assert colour == COLOURS[winner]
        assert texts[x, y].split("\n")[0] == winner
        if len(own) == 2:
            ratio = own["latency_s_geometric"].max() / own["latency_s_geometric"].min()
            assert texts[x, y].split("\n")[1] == f"{ratio:.2f}x"


def test_lines_of_samplers_hold_their_shares(searched: StudyResult, drawings: dict[str, Any]) -> None:
    assert searched.explored is not None
    frame = searched.explored.convergence
    assert frame is not None
    assert frame.groupby(["design", "sampler"], sort=False).size().to_dict() == {
        ("flat", "tpe"): 30, ("flat", "random"): 20, ("fusemax", "tpe"): 30, ("fusemax", "random"): 20,
    }  # fmt: skip
    for panel, ratio in zip(drawings["convergence"].axes, ("hypervolume_ratio", "hypervolume_ratio_log"), strict=True):
        lines = {line.get_label(): line for line in panel.lines if not str(line.get_label()).startswith("_")}
        own = frame[(frame["design"] == "fusemax") & (frame["sampler"] == "tpe")]
        assert lines["tpe, fusemax"].get_ydata().tolist() == own[ratio].tolist()
        tints = [line.get_color() for line in lines.values()]
        assert not {tint.upper() for tint in tints} & {colour.upper() for colour in style.PALETTE}


def test_a_legend_is_inside_its_figure(drawings: dict[str, Any]) -> None:
    for drawing in drawings.values():
        for legend in [*drawing.legends, *(panel.get_legend() for panel in drawing.axes if panel.get_legend())]:
            box, page = legend.get_window_extent(), drawing.bbox
            assert page.x0 <= box.x0 <= box.x1 <= page.x1
            assert page.y0 <= box.y0 <= box.y1 <= page.y1


def test_files_are_those_of_the_search(searched: StudyResult, tmp_path: Path) -> None:
    write_results(searched, tmp_path, lambda folder: draw_figures(searched, folder), {})
    made = {path.name for path in tmp_path.iterdir()}
    assert {f"{name}.png" for name in SEARCH_FIGURES} <= made
    assert {"budgets.csv", "budgets_by_seq_len.csv", "convergence.csv", "comparison.csv", "trials.csv"} <= made
    write_results(searched, tmp_path, None, {})
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".png", ".pdf")]


def test_ink_is_what_can_be_read() -> None:
    """Contrast of at least 4.5 to 1 on every colour of designs (WCAG 2.1, level AA)."""
    for colour in style.PALETTE:
        parts = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        light = float(linear @ [0.2126, 0.7152, 0.0722])
        contrast = 1.05 / (light + 0.05) if style.ink_on(colour) == "white" else (light + 0.05) / 0.05
        assert contrast >= 4.5
