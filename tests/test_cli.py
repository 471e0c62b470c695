"""The command line as a person uses it: output, exit codes, files, and what an interruption leaves."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import yaml

from dse.cli import main

from .studies.test_sensitivity import data as small_sensitivity


class Run:
    """What a call of `dse` did."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> object:
    """Call `dse` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Run:
        monkeypatch.setattr(sys, "argv", ["dse", *arguments])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        shown = capsys.readouterr()
        return Run(code, shown.out, shown.err)

    return run


def test_the_study_writes_all_its_files_and_prints_both_headlines(call, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    done = call("run", "fusemax_attention", "-o", "out")
    assert done.code == 0
    assert done.out.rstrip().endswith("240 rows: out/results.csv")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    figures = {f"figure_{number}.{kind}" for number in ("6a", "6b", "7", "8", "9") for kind in ("png", "pdf")}
    assert names == {"results.csv", "breakdown.csv", "components.csv", "run.yaml"} | figures
    frame = pd.read_csv(tmp_path / "out/results.csv")
    assert list(frame.columns[:15]) == [
        "design", "accounting", "workload", "model", "seq_len", "latency_s", "energy_pj", "dram_bytes", "area_um2",
        "util_2d", "util_1d", "cycles_2d", "cycles_1d", "compute_s", "memory_s",
    ]  # fmt: skip
    assert frame.groupby("accounting").size().to_dict() == {"corrected": 120, "published": 120}
    assert not frame.isna().any().any()
    assert all(pd.api.types.is_numeric_dtype(frame[column]) for column in frame.columns[4:])
    record = yaml.safe_load((tmp_path / "out/run.yaml").read_text())
    assert record["study"]["name"] == "fusemax_attention"
    assert set(record["versions"]) == {"dse", "numpy", "scipy", "pandas", "matplotlib"}
    for text in ("6.723", "0.7875", "1302.952", "1391.819", "corrected"):
        assert text in done.out


def test_a_sensitivity_writes_its_tables_and_figures_and_says_what_matters(call, write_spec, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = write_spec("small.yaml", small_sensitivity())
    done = call("run", str(path), "-o", "out")
    assert done.code == 0
    assert "Sobol' indices" in done.out
    assert "\nspeedup: " in done.out
    names = {path.name for path in (tmp_path / "out").iterdir()}
    figures = {f"{name}.{kind}" for name in ("sensitivity", "distribution") for kind in ("png", "pdf")}
    tables = {f"{name}.csv" for name in ("results", "breakdown", "components", *SENSITIVITY_TABLES)}
    assert names == {*tables, *figures, "run.yaml"}
    table = call("run", str(path), "-o", "out", "--no-figures", "--format", "csv").out
    assert table == (tmp_path / "out/sensitivity.csv").read_text()
    assert not figures & {path.name for path in (tmp_path / "out").iterdir()}


SENSITIVITY_TABLES = ("sensitivity", "distribution", "samples")


def test_the_default_folder_is_named_after_the_study(call, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert call("run", "fusemax_attention", "--no-figures").code == 0
    assert {path.name for path in (tmp_path / "results/fusemax_attention").iterdir()} == {
        "results.csv",
        "breakdown.csv",
        "components.csv",
        "run.yaml",
    }


def test_settings_change_a_design_and_are_recorded(call, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    done = call("run", "fusemax_attention", "-o", "out", "--no-figures", "--set", "flat.lanes=1024", "--format", "json")
    rows = {(row["accounting"], row["design"], row["baseline"]): row for row in json.loads(done.out)}
    assert rows["published", "fusemax", "flat"]["speedup"] == pytest.approx(3.89, abs=0.005)
    assert rows["published", "unfused", "flat"]["speedup_published"] is None
    assert yaml.safe_load((tmp_path / "out/run.yaml").read_text())["settings"] == {"set": ["flat.lanes=1024"]}


def test_a_run_that_fails_leaves_earlier_results_as_they_were(call, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "out").mkdir()
    (tmp_path / "out/results.csv").write_text("old\n")
    failed = call("run", "fusemax_attention", "-o", "out", "--set", "fusemax.rows=100")
    assert failed.code == 2
    assert "M = 1024 does not divide by 100" in failed.err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["results.csv"]
    assert (tmp_path / "out/results.csv").read_text() == "old\n"


def test_a_folder_that_cannot_be_written_is_named(call, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "file").write_text("")
    failed = call("run", "fusemax_attention", "--no-figures", "-o", "file")
    assert failed.code == 2
    assert failed.err == "cannot write to file: File exists; give another folder with -o\n"


@pytest.mark.parametrize("by", ["einsum", "component", "action"])
def test_evaluate_opens_a_point_whose_parts_add_up(call, by: str) -> None:  # type: ignore[no-untyped-def]
    arguments = ("evaluate", "fusemax", "attention_1pass", "--model", "BERT", "--seq-len", "64K")
    total = json.loads(call(*arguments, "--format", "json").out)[0]
    parts = pd.DataFrame(json.loads(call(*arguments, "--by", by, "--format", "json").out))
    assert parts["energy_pj"].sum() == total["energy_pj"]
    if by == "einsum":
        assert parts["latency_s"].sum() == total["latency_s"]
        assert parts["dram_bytes"].sum() == total["dram_bytes"]
    shown = call(*arguments, "--by", by)
    assert shown.code == 0
    assert "mapping: M0 = 256, P0 = 256, P1 = 128" in shown.out


def test_evaluate_takes_parameters_and_options(call) -> None:  # type: ignore[no-untyped-def]
    done = call("evaluate", "flat", "attention_3pass", "--set", "lanes=512", "--set", "q_at=onchip", "--format", "json")
    changed = json.loads(done.out)[0]
    plain = json.loads(call("evaluate", "flat", "attention_3pass", "--format", "json").out)[0]
    assert changed["latency_s"] == plain["latency_s"] / 2
    assert changed["dram_bytes"] < plain["dram_bytes"]


def test_list_show_and_check_go_round(call, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    rows = json.loads(call("list", "--format", "json").out)
    assert {row["kind"] for row in rows} == {"archs", "mappings", "mapspaces", "workloads", "studies", "models"}
    assert all(row["about"] for row in rows)
    assert {row["name"] for row in json.loads(call("list", "studies", "--format", "json").out)} >= {"fusemax_attention"}
    workload = call("show", "attention_1pass").out
    assert workload.startswith("# workloads/attention_1pass.yaml\n")
    (tmp_path / "mine.yaml").write_text(workload)
    assert call("check", "mine.yaml").out == "mine.yaml: a workload\n"
    assert "BERT: {batch: 64" in call("show", "BERT").out


def test_check_prints_a_line_for_each_fault(call, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "a.yaml").write_text("units: {}\nmemory: 1\n")
    (tmp_path / "b.yaml").write_text("einsums: [\n")
    failed = call("check", "a.yaml", "b.yaml")
    assert failed.code == 2
    lines = failed.err.splitlines()
    assert lines[0].startswith("a.yaml:2: unknown key 'memory'")
    assert lines[-1].startswith("b.yaml:2: not YAML:")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["run", "nope"],
            "unknown study 'nope'; allowed: fusemax_area_pareto, fusemax_attention, fusemax_components, fusemax_end_to_end, fusemax_whole_layer, iso_area_fair, iso_area_frontier, iso_area_published, matmul_optimum, resnet50_eyeriss, search_convergence, sensitivity, transformer_linear, or a path to a YAML file",
        ),
        (["run", "none.yaml"], "no file none.yaml"),
        (
            ["run", "fusemax_attention", "--set", "flat.lans=4"],
            "--set flat.lans=4: flat has no parameter 'lans'; did you mean 'lanes'?",
        ),
        (
            ["run", "fusemax_attention", "--set", "flet.lanes=4"],
            "--set flet.lanes=4: unknown design 'flet'; did you mean 'flat'?",
        ),
        (
            ["run", "fusemax_attention", "--set", "lanes"],
            "--set lanes: expected DESIGN.PARAMETER=VALUE; designs: unfused, flat,",
        ),
        (
            ["run", "fusemax_attention", "--set", "flat.lanes=few"],
            "--set flat.lanes=few: expected a number with its unit",
        ),
        (
            ["run", "fusemax_attention", "--set", "flat.q_at=there"],
            "--set flat.q_at=there: q_at has no choice 'there'; allowed: offchip, onchip",
        ),
        (["evaluate", "fusemx", "attention_1pass"], "unknown architecture 'fusemx'; did you mean 'fusemax'?"),
        (
            ["evaluate", "fusemax", "attention_3pass"],
            "no shipped mapping runs attention_3pass on fusemax; give one (--mapping",
        ),
        (
            ["evaluate", "fusemax", "attention_1pass", "--by", "level"],
            "--by: unknown grouping 'level'; allowed: action, component, einsum",
        ),
        (
            ["evaluate", "fusemax", "attention_1pass", "--seq-len", "-5"],
            "P is a whole number from 1 to 2^53, found -5 from 'seq_len'",
        ),
        (["evaluate", "fusemax", "attention_1pass", "--set", "rows"], "--set rows: expected PARAMETER=VALUE"),
        (
            ["evaluate", "fusemax", "attention_1pass", "--set", "buffer=300MiB"],
            "GLB: no SRAM of 314,572,800 bytes at 4096 bit",
        ),
        (["evaluate", "fusemax", "attention_1pass", "--set", "cols=100"], "P / P0 = 10.24 is no whole number"),
        (
            ["evaluate", "fusemax", "attention_1pass", "--format", "xml"],
            "--format: unknown format 'xml'; allowed: csv, json, table",
        ),
        (["evaluate", "fusemax"], "Missing argument 'workload'"),
        (
            ["list", "chips"],
            "unknown kind 'chips'; did you mean 'archs'? allowed: archs, mappings, mapspaces, models, studies, workloads",
        ),
        (["show", "nothing"], "nothing ships under 'nothing'"),
        (["frobnicate"], "No such command 'frobnicate'"),
        (["run", "--frob"], "No such option: --frob"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(call, arguments: list[str], message: str) -> None:  # type: ignore[no-untyped-def]
    failed = call(*arguments)
    assert failed.code == 2
    assert failed.out == ""
    assert len(failed.err.splitlines()) == 1
    assert message in failed.err


def test_help_lists_the_commands_and_exits_well(call) -> None:  # type: ignore[no-untyped-def]
    shown = call("--help")
    assert shown.code == 0
    for command in ("run", "evaluate", "map", "list", "show", "check"):
        assert f"  {command} " in shown.out


def test_an_interrupted_run_leaves_no_file_behind(tmp_path: Path) -> None:
    program = "import signal, dse.cli; signal.signal(signal.SIGINT, signal.default_int_handler); dse.cli.main()"
    command = [sys.executable, "-c", program, "run", "fusemax_attention", "-o", str(tmp_path / "out")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("out/.unfinished-*/*.csv")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "stopped; nothing was half written\n"
    assert list(tmp_path.iterdir()) == []


def test_passes_of_several_workloads_and_as_records(call) -> None:  # type: ignore[no-untyped-def]
    several = call("passes", "attention_3pass", "attention_2pass", "attention_1pass", "split_kv", "--rank", "M")
    heads = [line for line in several.out.splitlines() if not line.startswith(" ")]
    assert heads == [
        "attention_3pass: 3 passes over M",
        "attention_2pass: 2 passes over M",
        "attention_1pass: 1 pass over M",
        "split_kv: 1 pass over M",
    ]
    record = json.loads(call("passes", "attention_3pass", "--format", "json").out)
    assert (record["workload"], record["rank"], record["passes"]) == ("attention_3pass", "M", 3)
    assert [barrier["einsum"] for barrier in record["barriers"]] == ["SN", "A"]
    assert record["einsums"] == {"QK": 1, "GM": 1, "SN": 2, "SD": 2, "A": 3, "AV": 3}
    assert record["footprints"]["QK"] == "M"
    assert record["ranks"] == {"B": 1, "H": 1, "E": 1, "P": 1, "M": 3, "F": 1}
    assert "  over the other ranks: B 1, H 1, E 1, P 1, F 1\n" in call("passes", "attention_3pass").out
    assert len(json.loads(call("passes", "matmul", "ffn", "--format", "json").out)) == 2
    assert call("passes", "matmul", "ffn", "--format", "csv").out.splitlines()[0] == "workload,rank,passes,barriers"


def test_a_reduced_cascade_is_a_file_that_works(call, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "one.yaml").write_text(call("passes", "--reduce", "attention_3pass").out)
    assert call("check", "one.yaml").out == "one.yaml: a workload\n"
    assert call("passes", "one.yaml").out.startswith("attention_3pass_reduced: 1 pass over M\n")
    assert call("verify", "one.yaml").code == 0
    written = call("passes", "--reduce", "log_sum_exp", "-o", "lse.yaml")
    assert written.out.endswith("1 pass over V\nlse.yaml\n")
    assert call("verify", "lse.yaml").code == 0
    assert call("passes", "--reduce", "matmul", "ffn").err == "--reduce takes one workload, found 2\n"


def test_the_least_buffer_is_drawn(call, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert call("passes", "attention_3pass", "attention_1pass", "--figure", "least.png").code == 0
    assert (tmp_path / "least.png").read_bytes().startswith(b"\x89PNG")
    failed = call("passes", "attention_3pass", "--figure", "least.nothing")
    assert failed.code == 2
    assert "cannot draw least.nothing" in failed.err


def test_verify_says_right_or_wrong(call, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    right = call("verify", "attention_3pass", "--set", "seq_len=40", "--set", "batch=1")
    assert right.code == 0
    assert "attention_3pass is AV = attention(Q, K, V): largest relative error" in right.out
    text = call("show", "attention_3pass").out.replace("SN[b,h,m,p] / SD[b,h,p]", "SN[b,h,m,p] * SD[b,h,p]")
    (tmp_path / "broken.yaml").write_text(text)
    wrong = call("verify", "broken.yaml")
    assert wrong.code == 1
    assert "the first tensor that differs is A" in wrong.err
    (tmp_path / "silent.yaml").write_text(
        "\n".join(line for line in text.splitlines() if not line.startswith("reference"))
    )
    assert "attention_3pass names no reference" in call("verify", "silent.yaml").err
    assert call("verify", "attention_1pass", "--set", "M0=5").code == 2
    assert "unknown parameter 'M5'" in call("verify", "attention_1pass", "--set", "M5=5").err


SMALL_MATMUL = ("map", "three_level", "matmul", "--set", "m=64", "--set", "n=32", "--set", "k=64")


def test_map_prints_a_loop_nest_its_cost_and_the_proof(call) -> None:  # type: ignore[no-untyped-def]
    shown = call(*SMALL_MATMUL)
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert lines[0] == "Z on array"
    assert lines[1] == "DRAM: A 8 KiB, B 4 KiB, Z 4 KiB"
    assert any(line.strip().startswith("side by side in x: ") for line in lines)
    assert any(line.startswith("proven: ") and " mappings; " in line for line in lines)
    assert lines[-2].startswith("energy: ")
    assert "of DRAM traffic" in lines[-2]
    assert lines[-1].startswith("held at most: GLB ")


def test_map_writes_a_mapping_that_evaluate_prices_the_same(call) -> None:  # type: ignore[no-untyped-def]
    found = json.loads(call(*SMALL_MATMUL, "-o", "best.mapping.yaml", "--format", "json").out)
    sizes = list(SMALL_MATMUL[3:])
    priced = call("evaluate", "three_level", "matmul", "--mapping", "best.mapping.yaml", *sizes, "--format", "json")
    (totals,) = json.loads(priced.out)
    assert [row["einsum"] for row in found] == ["Z"]
    assert totals["energy_pj"] == found[0]["energy_pj"]
    assert totals["latency_s"] == pytest.approx(found[0]["latency_s"], rel=1e-12)
    assert found[0]["proven"] is True
    assert call("check", "best.mapping.yaml").out == "best.mapping.yaml: a mapping\n"


def test_map_gives_fronts_and_bounds_as_tables_and_a_figure(call, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    front = pd.read_csv(io.StringIO(call(*SMALL_MATMUL, "--front", "energy,capacity", "--format", "csv").out))
    assert list(front.columns) == ["einsum", "energy_pj", "buffer_bytes"]
    assert front["energy_pj"].is_monotonic_increasing
    assert front["buffer_bytes"].is_monotonic_decreasing
    bound = call(*SMALL_MATMUL, "--bound", "GLB", "--figure", "bound.png", "--format", "csv")
    table = pd.read_csv(io.StringIO(bound.out))
    assert table["dram_bytes"].is_monotonic_decreasing
    assert table["dram_bytes"].iloc[-1] == 2 * (64 * 64 + 64 * 32 + 64 * 32)
    assert (tmp_path / "bound.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--objective", "speed"],
            "unknown objective 'speed'; did you mean 'edp'? allowed: dram, edp, energy, latency",
        ),
        (["--front", "energy"], "two or three different metrics"),
        (["--figure", "f.png"], "--figure draws what --bound MEMORY finds"),
        (["--front", "energy,dram", "-o", "f.yaml"], "--front and --bound each print a table of their own"),
        (["--front", "energy,dram", "--objective", "edp"], "--front and --bound each print a table of their own"),
        (["--bound", "GLB", "--mapspace", "free"], "--bound holds for any mapping; give it without --mapspace"),
        (["-o", "nowhere/best.yaml"], "there is no folder"),
        (["-o", ""], "it is no regular file"),
        (["--bound", "L9"], "--bound: array has no 'L9' inside DRAM"),
        (["--set", "registers=2"], "RF needs 6 B for the smallest tiles (A 2 B, B 2 B, Z 2 B), has 4 B"),
        (["--mapspace", "none.yaml"], "no file none.yaml"),
    ],
)
def test_map_refuses_what_cannot_be_in_one_line(call, arguments: list[str], message: str) -> None:  # type: ignore[no-untyped-def]
    failed = call(*SMALL_MATMUL, *arguments)
    assert failed.code == 2
    assert failed.out == ""
    assert len(failed.err.splitlines()) == 1
    assert message in failed.err
