"""Whole transformer layers and chips of several sizes against the published results. Source: tests/data/README.md; the
means are those of Nayak et al., MICRO 2024, section VI."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import dse
from dse.specs.source import SpecError
from dse.specs.study import load_study, load_study_file
from dse.studies.run import StudyResult, run_study
from dse.studies.summary import summarize
from tests.conftest import golden

pytestmark = pytest.mark.xdist_group("end to end")  # its fixtures are made once


@pytest.fixture(scope="module")
def layers() -> StudyResult:
    """The end-to-end study, priced once."""
    return run_study(load_study("fusemax_end_to_end"), jobs=2)


@pytest.fixture(scope="module")
def sizes() -> StudyResult:
    """FuseMax at six array sizes, priced once."""
    return run_study(load_study("fusemax_area_pareto"))


def test_means_over_the_24_points_are_the_published_ones(layers: StudyResult) -> None:
    means = summarize(layers).set_index(["accounting", "design", "baseline"]).loc["published"]
    for design, speedup, energy in [
        ("fusemax", 5.302, 0.833),
        ("fusemax_architecture", 2.005, 0.833),
        ("fusemax_cascade", 0.926, 0.932),
    ]:
        assert means.loc[(design, "flat"), "speedup"] == pytest.approx(speedup, abs=6e-4)
        assert means.loc[(design, "flat"), "energy"] == pytest.approx(energy, rel=0.01)
    assert means.loc[("fusemax", "flat"), "speedup_geomean"] == pytest.approx(4.61, rel=0.005)


@pytest.mark.parametrize(
    ("accounting", "speedup", "energy"), [("published", 5.115, 0.8285), ("corrected", 5.115, 0.8495)]
)
def test_norms_and_residuals_leave_five_times(
    layers: StudyResult, accounting: str, speedup: float, energy: float
) -> None:
    """The parts of a layer run one after another, so that norms add to what the study without them says."""
    study = load_study("fusemax_whole_layer")
    designs = {
        name: replace(design, parts=tuple(part for part in design.parts if part.name == "norms"))
        for name, design in study.designs.items()
    }
    keys = ["accounting", "design", "model", "seq_len"]
    norms, rest = (each.frame.set_index(keys) for each in (run_study(replace(study, designs=designs)), layers))
    whole = (norms[["latency_s", "energy_pj"]] + rest[["latency_s", "energy_pj"]]).loc[accounting]
    ratios = whole.loc["flat"] / whole.loc["fusemax"]
    assert len(ratios) == 24
    assert ratios["latency_s"].mean() == pytest.approx(speedup, abs=6e-4)
    assert (1 / ratios["energy_pj"]).mean() == pytest.approx(energy, abs=6e-4)


def test_a_layer_is_its_attention_and_its_linear_layers(layers: StudyResult) -> None:
    keys = ["design", "model", "seq_len"]
    ours = layers.frame[layers.frame["accounting"] == "published"].set_index(keys)
    attention = golden("published_attention.csv").set_index(keys)
    linear = golden("linear_layers.csv").set_index(keys)
    for key in attention.index:
        design = "flat" if key[0] in ("unfused", "flat", "fusemax_cascade") else "fusemax"
        own = linear.loc[(design, *key[1:])]
        tolerance = 0.0022 if key[0] == "unfused" else 1e-6
        assert ours.loc[key, "latency_s"] <= (attention.loc[key, "latency_s"] + own["latency_s"]) * (1 + tolerance)
        assert ours.loc[key, "dram_bytes"] <= (attention.loc[key, "dram_bytes"] + own["dram_bytes"]) * (1 + tolerance)


def test_parts_open_into_einsums_and_components_that_add_up(layers: StudyResult) -> None:
    keys = ["accounting", "design", "model", "seq_len"]
    whole = layers.frame.set_index(keys)
    for table, columns in [
        (layers.breakdown, ["latency_s", "energy_pj", "dram_bytes", "operations"]),
        (layers.components, ["energy_pj", "area_um2"]),
    ]:
        sums = table.groupby(keys)[columns].sum()
        for column in columns:
            assert sums[column].to_numpy() == pytest.approx(whole.loc[sums.index, column].to_numpy(), rel=1e-12)
    assert set(layers.breakdown["part"]) == {"attention", "linear"}
    busy = layers.breakdown.groupby([*keys, "unit"])["utilization"].sum().xs("2d", level="unit")
    assert busy.to_numpy() == pytest.approx(whole.loc[busy.index, "util_2d"].to_numpy(), rel=1e-9)
    assert (whole["util_2d"] <= 1 + 1e-12).all()


def test_chips_of_six_sizes_are_the_published_ones(sizes: StudyResult) -> None:
    keys = ["model", "rows"]
    ours = sizes.frame[sizes.frame["accounting"] == "published"].set_index(keys)
    theirs = golden("area_pareto.csv").set_index(keys)
    assert len(theirs) == 24
    for column in ("latency_s", "dram_bytes", "area_um2"):
        assert ours.loc[theirs.index, column].to_numpy() == pytest.approx(theirs[column].to_numpy(), rel=1e-12)
    parts = sizes.components[sizes.components["accounting"] == "published"]
    array = parts[parts["component"].isin(["RF2", "2d.mac", "2d.max"])].groupby(keys)["area_um2"].sum()
    columns = np.array(
        [rows for _, rows in theirs.index]
    )  # 1 um2 for each column of the array is in the published sums
    assert (array.loc[theirs.index] + columns).to_numpy() == pytest.approx(theirs["array_2d_um2"].to_numpy(), rel=1e-12)


def test_components_add_up_to_chip_and_energy_exactly() -> None:
    result = run_study(load_study("fusemax_components"))
    for (design, accounting), rows in result.components.groupby(["design", "accounting"]):
        whole = result.frame[(result.frame["design"] == design) & (result.frame["accounting"] == accounting)].iloc[0]
        assert rows["area_um2"].sum() == whole["area_um2"]
        assert rows["energy_pj"].sum() == whole["energy_pj"]


def changed(tmp_path: Path, **more: Any) -> Path:
    """The area study with some of its keys replaced."""
    data = {**load_study("fusemax_area_pareto").data, **more}
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return path


DESIGN = load_study("fusemax_area_pareto").data["designs"]["fusemax"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parameters": {"cols": "rows + bandwidth"}}, "adds a plain number to a bandwidth"),
        ({"parameters": {"cols": "row"}}, r"s.yaml:\d+: cols: unknown parameter 'row'; did you mean 'rows'"),
        ({"parameters": {"cols": "lanes", "lanes": "cols"}}, "depends on itself"),
        ({"parameters": {"buffer": "rows"}}, "buffer takes an amount of data|buffer is an amount of data"),
        ({"parts": {"a": {"workload": "attention_1pass"}}}, "it has parts, so 'workload' stands in each of them"),
        ({"workload": None}, "a design has a workload, or parts"),
    ],
)
def test_designs_that_cannot_be_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = changed(tmp_path, designs={"fusemax": {**DESIGN, **change}}, figures=[])
    with pytest.raises(SpecError, match=message):
        run_study(load_study_file(path))


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        ({"kind": "lines"}, "lines are drawn over a column; name it with 'x'"),
        ({"kind": "lines", "x": "area"}, "unknown column 'area'; did you mean 'area_um2'"),
        ({"kind": "breakdown"}, "a breakdown, and nothing else, is 'by'"),
        ({"kind": "breakdown", "by": "part"}, "no design has parts"),
        ({"kind": "roofline", "design": "flat"}, "unknown design 'flat'"),
        ({"kind": "lines", "x": "rows", "at": {"seq_len": "1K"}}, "unknown axis 'seq_len'"),
        ({"x": "rows"}, "bars take no 'x'"),
        (
            {"kind": "breakdown", "by": "component", "value": "energy_pj", "x": "rows"},
            "add up points that differ in model; name one of each",
        ),
        ({"kind": "breakdown", "by": "component", "value": "util_2d"}, "unknown value 'util_2d' of breakdown"),
        ({"kind": "lines", "x": "rows", "value": "util_2d"}, "unknown value 'util_2d' of lines"),
        ({"kind": "pareto", "x": "design"}, "a front is over numbers, found 'design'"),
    ],
)
def test_figures_that_cannot_be_are_refused(tmp_path: Path, figure: dict[str, Any], message: str) -> None:
    path = changed(tmp_path, figures=[{"name": "f", "title": "t", **figure}])
    with pytest.raises(SpecError, match=message):
        load_study_file(path)


def test_a_setting_reaches_the_part_that_has_it() -> None:
    study = load_study("fusemax_end_to_end")
    one = replace(study, sweep={"model": ("BERT",), "seq_len": study.sweep["seq_len"][:1]})
    one = replace(one, designs={"unfused": one.designs["unfused"]}, baselines=[], figures=[], reference=[])
    assert run_study(one).frame["workload"].tolist() == ["attention_3pass + linear_layers"] * 2


def test_a_designs_own_parameters_come_last(tmp_path: Path) -> None:
    """Over the model's: a batch of 1 for BERT's 64."""
    one = {**DESIGN, "parameters": {**DESIGN["parameters"], "batch": 1}}
    path = changed(
        tmp_path,
        sweep={"model": ["BERT"], "rows": [256]},
        designs={"a": DESIGN, "b": {**one, "label": "b"}},
        figures=[],
    )
    frame = run_study(load_study_file(path)).frame
    frame = frame[frame["accounting"] == "corrected"].set_index("design")
    assert frame.loc["a", "operations"] == 64 * frame.loc["b", "operations"]


def test_two_designs_of_one_label_are_refused(tmp_path: Path) -> None:
    path = changed(tmp_path, designs={"a": DESIGN, "b": deepcopy(DESIGN)}, figures=[])
    with pytest.raises(SpecError, match=r"a and b are both called 'FuseMax \(\+Binding\)' in figures"):
        load_study_file(path)


@pytest.mark.parametrize("architecture", ["flat", "fusemax"])
def test_norms_and_residuals_cost_what_they_cost_by_hand(architecture: str) -> None:
    """BERT at 1K: 65,536 tokens of 768 features, a token a lane of 256. Each norm takes 7 cycles a feature (add, sum, subtract,
    square, two products and a sum) and 5 a token (mean; division, sum, root and reciprocal); X, Z, N twice, O and Y move."""
    found = dse.evaluate(architecture, "norms", mapping="norms", model="BERT", seq_len=1024)
    assert found.unit_cycles("1d") == 2 * 256 * (7 * 768 + 5)
    assert found.dram_bytes == 2 * (6 * 65536 * 768 + 4 * 768)
