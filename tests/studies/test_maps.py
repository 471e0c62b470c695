"""Studies whose mappings are searched: known optima, the published linear layers, and what is written of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dse.specs.source import SpecError
from dse.specs.study import load_study, load_study_file
from dse.studies.output import write_results
from dse.studies.run import run_study
from tests.conftest import golden

Write = Callable[[str, object], Path]


def study(**more: Any) -> dict[str, Any]:
    """A small study of one searched design."""
    design = {"architecture": "three_level", "workload": "matmul", "map": {"objective": "energy"}}
    return {
        "name": "s",
        "sweep": {"m": [8, 16]},
        "designs": {"best": {**design, "parameters": {"n": 8, "k": 8}}},
        **more,
    }


def test_the_shipped_optimum_is_the_one_that_its_study_states(tmp_path: Path) -> None:
    """8,814,329,856 pJ at 4,194,304 cycles, and 5,542,772,736 pJ where levels may be bypassed."""
    loaded = load_study("matmul_optimum")
    result = run_study(loaded)
    rows = result.frame.set_index("design")
    assert rows.loc["kept", "energy_pj"] == rows.loc["kept_edp", "energy_pj"] == 8_814_329_856
    assert rows.loc["bypassed", "energy_pj"] == 5_542_772_736
    assert (rows["cycles_array"] == 4_194_304).all()
    assert rows["proven"].all()
    assert rows.loc["kept", "mappings"] == 1_644_839_287
    for number in ("8,814,329,856", "4,194,304", "5,542,772,736"):
        assert number in loaded.about
    write_results(result, tmp_path, None, {})
    nests = (tmp_path / "mappings.txt").read_text()
    assert nests.count("proven: ") == 3
    assert "side by side in x: " in nests


def test_linear_layers_are_as_fast_as_published_and_move_no_more() -> None:
    """The published evaluation's mapper found these under the same demands; one length of each model, and the longest."""
    loaded = load_study("transformer_linear")
    lengths = tuple(value for value in loaded.sweep["seq_len"] if value.value in (1024, 2**20))
    short = replace(loaded, sweep={"model": loaded.sweep["model"], "seq_len": lengths})
    ours = run_study(short, jobs=2).frame.set_index(["design", "model", "seq_len"])
    theirs = golden("linear_layers.csv").set_index(["design", "model", "seq_len"]).loc[ours.index]
    assert len(ours) == 16
    assert ours["proven"].all()
    assert (ours["latency_s"] <= theirs["latency_s"] * (1 + 1e-6)).all()
    assert (ours["dram_bytes"] <= theirs["dram_bytes"]).all()
    assert (ours["dram_bytes"] < theirs["dram_bytes"]).sum() == 4  # XLM, whose layers are the widest


def test_a_star_stands_for_every_model_it_fits(write_spec: Write) -> None:
    design = {"architecture": "eyeriss", "workload": "conv", "map": {}}
    path = write_spec("s.yaml", {"name": "s", "sweep": {"model": ["resnet50_conv5_*"]}, "designs": {"a": design}})
    assert load_study_file(path).sweep["model"] == (
        "resnet50_conv5_reduce_first",
        "resnet50_conv5_3x3",
        "resnet50_conv5_expand",
        "resnet50_conv5_shortcut",
        "resnet50_conv5_reduce",
    )


def test_rows_of_searched_and_of_given_mappings_stand_side_by_side(write_spec: Write) -> None:
    spec = study()
    found = run_study(load_study_file(write_spec("s.yaml", spec))).frame
    assert found["proven"].tolist() == [True, True]
    assert (found["mappings"] > found["priced"]).all()
    assert found["m"].tolist() == [8, 16]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"map": {"objective": "speed"}}, "unknown objective 'speed'"),
        ({"map": {"mapspace": "nowhere"}}, "unknown mapspace 'nowhere'"),
        ({"map": {"mapspace": ""}}, "unknown mapspace ''"),
        ({"map": {"mapspace": "eyeriss"}}, "unknown tensor 'I'"),
        ({"map": {"aim": 1}}, "unknown key 'aim'"),
        ({"mapping": "fusemax"}, "its mapping is searched ('map'), so it takes no 'mapping'"),
        ({"options": {"q_at": "onchip"}}, "so it takes no 'options'"),
    ],
)
def test_a_search_that_cannot_be_is_refused_with_file_and_line(
    write_spec: Write, more: dict[str, Any], says: str
) -> None:
    spec = study()
    spec["designs"]["best"].update(more)
    with pytest.raises(SpecError) as refused:
        load_study_file(write_spec("s.yaml", spec))
    place = str(refused.value).split(": ", 1)[0]
    assert int(place.rsplit(":", 1)[1]) >= 1
    assert says in str(refused.value)


def test_an_empty_map_searches_by_default(write_spec: Write) -> None:
    spec = study()
    spec["designs"]["best"]["map"] = None
    assert run_study(load_study_file(write_spec("s.yaml", spec))).frame["proven"].all()


def test_a_point_without_a_valid_mapping_is_named(write_spec: Write) -> None:
    demands = write_spec("d.mapspace.yaml", {"name": "d", "keep": {"RF": ["A", "B", "Z"]}})
    spec = study()
    spec["designs"]["best"]["map"] = {"mapspace": str(demands)}
    spec["designs"]["best"]["parameters"]["registers"] = 2
    with pytest.raises(SpecError, match=r"RF needs 6 B .*\(best at m 8\)"):
        run_study(load_study_file(write_spec("s.yaml", spec)))


def test_a_part_of_a_rank_is_a_parameter_of_a_design_that_searches(write_spec: Write) -> None:
    small = {"batch": 1, "heads": 1, "head_dim": 4, "M0": 4, "rows": 4, "cols": 4}
    design = {"architecture": "three_level", "workload": "attention_1pass", "map": {}, "parameters": small}
    path = write_spec("s.yaml", {"name": "s", "sweep": {"seq_len": [8]}, "designs": {"a": design}})
    assert run_study(load_study_file(path)).frame["proven"].all()


def test_a_model_that_no_star_fits_is_refused(write_spec: Write) -> None:
    spec = study(sweep={"model": ["vgg*"]})
    with pytest.raises(SpecError, match="no model is called like 'vgg\\*'"):
        load_study_file(write_spec("s.yaml", spec))
