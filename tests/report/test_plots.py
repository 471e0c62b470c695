"""Figures of result tables: what they draw, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dse
from dse.report import plots
from dse.search.front import pareto_rows
from dse.specs.source import SpecError

ROWS = pd.DataFrame(
    {
        "design": ["flat", "flat", "fusemax", "fusemax"],
        "seq_len": [1024, 4096, 1024, 4096],
        "latency_s": [1.0, 16.0, 0.1, 1.6],
        "area_um2": [2e8, 2e8, 3e8, 3e8],
        "energy_pj": [1e12, 16e12, 8e11, 1e13],
        "operations": [1e12, 16e12, 1e12, 16e12],
        "dram_bytes": [1e10, 1e11, 1e9, 1e9],
        "peak_per_s": [6e13, 6e13, 6e13, 6e13],
        "dram_bytes_per_s": [4e11, 4e11, 4e11, 4e11],
    }
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "results.csv"
    ROWS.to_csv(path, index=False)
    return path


def naive_front(costs: np.ndarray) -> list[bool]:
    return [not any((other <= row).all() and (other < row).any() for other in costs) for row in costs]


@given(st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=1, max_size=40))
def test_a_front_is_what_comparing_every_pair_gives(rows: list[tuple[int, int, int]]) -> None:
    costs = np.array(rows, dtype=float)
    assert pareto_rows(costs).tolist() == naive_front(costs)


def test_the_front_of_a_table_may_go_up_in_some_columns() -> None:
    frame = pd.DataFrame({"cost": [1, 2, 3, 3], "gain": [1, 3, 2, 3]})
    assert dse.pareto_front(frame, minimize=["cost"], maximize=["gain"]).index.tolist() == [0, 1]
    with pytest.raises(SpecError, match="no column 'gains'; did you mean 'gain'"):
        dse.pareto_front(frame, minimize=["cost"], maximize=["gains"])
    with pytest.raises(SpecError, match="a row has no value"):
        dse.pareto_front(frame.assign(cost=[1.0, np.nan, 2, 3]), minimize=["cost"])
    with pytest.raises(SpecError, match="over one column or more"):
        dse.pareto_front(frame)


@pytest.mark.parametrize("kind", ["bars", "lines", "pareto", "roofline"])
def test_every_kind_is_drawn_to_a_file(table: Path, kind: str) -> None:
    out = plots.draw_table(table, kind, "seq_len", "latency_s", None, [], None)
    assert out == table.with_name(f"results_{kind}.png")
    assert out.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_lines_stand_where_the_rows_are(panel: object) -> None:
    plots.draw_lines(panel, ROWS, "seq_len", "latency_s", "design", {"flat": "#E69F00"})
    first, second = panel.get_lines()  # type: ignore[attr-defined]
    assert first.get_color() == "#E69F00"
    assert (first.get_xdata().tolist(), first.get_ydata().tolist()) == ([1024, 4096], [1, 16])
    assert second.get_ydata().tolist() == [0.1, 1.6]
    assert panel.get_yscale() == "log"  # type: ignore[attr-defined]


def test_a_breakdown_stacks_to_the_whole_and_sums_up_slivers(panel: object) -> None:
    parts = pd.DataFrame(
        {"design": ["a"] * 4, "component": ["mac", "buffer", "tiny", "small"], "energy_pj": [600.0, 399.0, 0.4, 0.6]}
    )
    plots.draw_breakdown(panel, parts, "design", "energy_pj", "component")
    boxes = {bars.get_label(): bars[0] for bars in panel.containers}  # type: ignore[attr-defined]
    assert list(boxes) == ["mac", "buffer", "2 others, each under 0.5%"]
    top = boxes["2 others, each under 0.5%"]
    assert top.get_y() + top.get_height() == pytest.approx(1000)


def test_a_roof_is_what_bandwidth_lets_through_up_to_the_peak(panel: object) -> None:
    plots.draw_roofline(panel, ROWS, "design", {})
    (roof,) = panel.get_lines()  # type: ignore[attr-defined]
    across, up = roof.get_xdata(), roof.get_ydata()
    assert up == pytest.approx(np.minimum(6e13, 4e11 * across))
    points = np.concatenate([dots.get_offsets() for dots in panel.collections])  # type: ignore[attr-defined]
    assert points.tolist() == [[100.0, 1e12], [160.0, 1e12], [1000.0, 1e13], [16000.0, 1e13]]


@pytest.fixture
def panel() -> object:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    drawing, panel = plt.subplots()
    yield panel
    plt.close(drawing)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": "seq_length", "y": "latency_s"}, r"results.csv:1: --x: no column 'seq_length'; did you mean 'seq_len'"),
        ({"x": "seq_len", "y": "design"}, "--y: design holds no numbers"),
        ({"kind": "pie"}, "unknown kind 'pie'"),
        ({"kind": "lines", "x": "seq_len"}, "--kind lines needs --y COLUMN"),
        ({"kind": "breakdown", "y": "energy_pj"}, "a breakdown needs a table with one of the columns component"),
        ({"x": "seq_len", "y": "latency_s", "where": ["design=fuse"]}, "no row has it; did you mean 'fusemax'"),
        ({"x": "seq_len", "y": "latency_s", "where": ["seq_len=many"]}, "--where seq_len=many"),
        ({"x": "seq_len", "y": "latency_s", "where": ["design"]}, "expected COLUMN=VALUE"),
        ({"x": "seq_len", "y": "latency_s", "output": "f.docx"}, "cannot draw"),
    ],
)
def test_what_cannot_be_drawn_is_refused(table: Path, arguments: dict[str, object], message: str) -> None:
    given = {"kind": None, "x": None, "y": None, "color": None, "where": [], "output": None, **arguments}
    given["output"] = given["output"] and table.with_name(str(given["output"]))
    with pytest.raises(SpecError, match=message):
        plots.draw_table(table, **given)  # type: ignore[arg-type]
    assert [path.name for path in table.parent.iterdir()] == ["results.csv"]


def test_rows_that_would_be_added_up_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "components.csv"
    two = [ROWS.assign(component=name) for name in ("mac", "buffer")]
    pd.concat(two).to_csv(path, index=False)
    with pytest.raises(
        SpecError, match="a bar would add up rows that differ in seq_len; choose with --where seq_len=1024"
    ):
        plots.draw_table(path, "breakdown", None, "energy_pj", None, [], None)
    plots.draw_table(path, "breakdown", None, "energy_pj", None, ["seq_len=4K"], None)


def test_sizes_are_asked_for_in_the_columns_unit(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    pd.DataFrame({"buffer_bytes": [65536, 524288], "latency_s": [1.0, 2.0], "n": [1, 2]}).to_csv(path, index=False)
    kept = plots._chosen(plots._read(path), ["buffer_bytes=64 KiB"], path)
    assert kept["latency_s"].tolist() == [1.0]


def test_columns_that_hold_no_numbers_end_with_a_line(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    ROWS.assign(energy_pj="much").to_csv(path, index=False)
    with pytest.raises(SpecError, match="cannot draw"):
        plots.draw_table(path, "lines", "seq_len", "latency_s", None, [], None)
    ROWS.assign(latency_s=np.inf).to_csv(path, index=False)
    with pytest.raises(SpecError, match="a value that is to be drawn is no finite number"):
        plots.draw_table(path, "lines", "seq_len", "latency_s", None, [], None)
    with pytest.raises(SpecError, match="a Pareto front is over numbers"):
        dse.pareto_front(ROWS, minimize=["design"])
