"""Inputs that once were priced wrong, or ended in a traceback or a hang: each is refused in one line, or right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dse
from dse.model.nest import Level, Loop, Operand, count_accesses
from dse.specs.source import SpecError
from dse.specs.study import load_study_file
from dse.studies.check import check_file
from dse.studies.run import run_study, with_settings
from tests.model.test_edges import GEMM, SMALL, mapping, price

Write = Callable[[str, object], Path]


def refused(use: Callable[[], Any]) -> str:
    with pytest.raises(SpecError) as raised:
        use()
    (line,) = raised.value.lines
    return line


def workload(write: Write, **changes: Any) -> str:
    base = {"name": "w", "ranks": {"M": 64, "P": 16}, "inputs": ["A[m,p]"], "einsums": ["Z[p] = A[m,p]"]}
    path = write("w.yaml", {**base, **changes})
    return refused(lambda: check_file(path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ranks": {"M": "1024 bit", "P": 16}}, "M takes a plain number, found an amount of data"),
        ({"inputs": ["A[m,p]", "A[p]"]}, "input A is declared twice"),
        ({"einsums": ["Z[m,p] = A[m,p]"]}, "at least one Einsum that computes"),
        ({"einsums": ["Z[p] = A[m,p] where m < QQ"]}, "unknown rank 'QQ'"),
        ({"partition": {"M": ["M1", "M1"]}}, "each part has a name of its own"),
        ({"einsums": ["Z[p] = " + " + ".join(["A[m,p]"] * 300)]}, "an Einsum has at most 400"),
        ({"einsums": ["Z[p] = A[m," + "9" * 400 + "*p]"]}, "expected a variable (m), a rank shape (M) or an integer"),
        ({"einsums": ["Z[p] = B[m,p]"]}, "unknown tensor 'B'; known here: A"),
        ({"einsums": ["Y[p] = A[m,p]", "Z[m] = A[m,p] * Y[m]"]}, "Y[m]: Y has rank P of 16 there, M is 64"),
        ({"einsums": ["Z[m] = max_m(A[m,p])"]}, "max_m reduces 'm', which the output Z[m] keeps"),
        (
            {"iterative": {"m": "P"}, "initial": ["R[0] = 0"], "einsums": ["R[m+1] = R[m] + 1", "Z[p] = A[m,p]"]},
            "'m' iterates until M, found 'P'",
        ),
        (
            {
                "iterative": {"m": "M"},
                "initial": ["R[0] = 0"],
                "einsums": ["Z[m] = A[m,0] * R[M]", "R[m+1] = R[m] + Z[m]"],
            },
            "can never be made: what it waits for waits for it",
        ),
        (
            {"iterative": {"m": "M"}, "initial": ["R[0] = 0"], "einsums": ["Z = A[m,0] * R[m]", "R[m+1] = R[m] + Z"]},
            "can never be made: what it waits for waits for it",
        ),
        (
            {
                "iterative": {"m": "M"},
                "initial": ["R[0] = 0"],
                "einsums": ["R[m+1] = A[m,0] + R[0]", "Z[m] = A[m,0] * R[M]"],
            },
            "R[m+1] never reads R[...m...], so nothing iterates",
        ),
        ({"iterative": {"q": "Q"}}, "iterative variable 'q' is used by no Einsum"),
        ({"iterative": {"m": "M"}, "einsums": ["R[m+1] = R[m] + 1", "Z[p] = A[m,p]"]}, "R[m] is read before R is made"),
        ({"einsums": ["Z[p] = A[m,p] where q < 3"]}, "filter 'q < 3' uses 'q'; the Einsum has p, m"),
        ({"reference": "Z = matmull(A, A)"}, "unknown reference 'matmull'; did you mean 'matmul'?"),
        ({"reference": "Z = matmul(A)"}, "matmul takes 2 inputs, found 1"),
        ({"reference": "Z"}, "expected OUTPUT = function(INPUT, ...)"),
    ],
)
def test_workloads(changes: dict[str, Any], message: str, write_spec: Write) -> None:
    found = workload(write_spec, **changes)
    assert message in found
    assert found.split(":")[0].endswith("w.yaml")


@pytest.mark.parametrize(
    ("ranks", "inputs", "einsum", "message"),
    [
        ({"P": 400, "R": 16, "H": 20}, ["I[h]", "F[r]"], "Z[p] = I[p+r] * F[r]", "I[p+r] reaches from 0 to 414, I[h] has 0 to 19"),
        ({"P": 4, "H": 20}, ["I[h,p]"], "Z[p] = 2 * I[999,p]", "I[999,p] reaches from 999 to 999, I[h,p] has 0 to 19"),
        ({"P": 4, "R": 16, "H": 20}, ["I[h]", "F[r]"], "Z[p] = I[p-r] * F[r]", "I[p-r] reaches from -15 to 3"),
        (dict.fromkeys("ABCDP", 2**53), ["I[a,b,c,d,p]"], "Z[p] = I[a,b,c,d,p]", "Z has 5.9e+79 points; at most 1e+60 are counted"),
    ],
)  # fmt: skip
def test_indices_stay_inside_their_tensors(
    ranks: Any, inputs: Any, einsum: str, message: str, write_spec: Write
) -> None:
    variables = [v for v in (*"abcdpr",) if v in einsum]
    own = {
        "unit": "array",
        "loops": {"DRAM": variables},
        "keep": {"DRAM": ["Z", "I", *(["F"] if "F[" in einsum else [])]},
    }
    plan = mapping(parameters={}, einsums={"Z": own})
    ops = {"mac": {"mac": 1}, "add": {"add": 1}, "mul": {"multiply": 1}}
    unit = {**SMALL["units"]["array"], "components": {"mac": {"class": "fp_mac", "width": "16 bit"}}, "ops": ops}
    chip = {**SMALL, "units": {"array": unit}}
    case = {"name": "w", "ranks": ranks, "inputs": inputs, "einsums": [einsum]}
    assert message in refused(lambda: price(write_spec, architecture=chip, workload=case, plan=plan))


@pytest.mark.parametrize("value", [0, -256, 0.5])
def test_a_partition_has_a_positive_size(value: float) -> None:
    assert "M0 is a whole number from 1 to 2^53" in refused(
        lambda: dse.evaluate("fusemax", "attention_1pass", M0=value)
    )


def test_a_share_is_a_share_wherever_it_comes_from() -> None:
    for wrong in (-1, 2, 1e18):
        assert "share is from 0 to 1" in refused(lambda: dse.evaluate("flat", "attention_3pass", spilled=wrong))


def test_operations_and_parameters_stand_once(write_spec: Write) -> None:
    unit = {**SMALL["units"]["array"], "ops": {"mac": {"mac": 1}, "mul_add": {"mac": 50}}}
    chip = {**SMALL, "units": {"array": unit}}
    assert "op 'mul_add' is 'mac', which stands here already" in refused(lambda: price(write_spec, architecture=chip))
    own = {**GEMM, "parameters": {"buffer": 8}}
    assert "buffer is a parameter of gemm and of small" in refused(lambda: price(write_spec, workload=own))


def test_a_constant_factor_is_checked_where_it_stands(write_spec: Write) -> None:
    for factor in ("-4", "0", "2.5"):
        plan = mapping()
        plan["einsums"]["Z"]["loops"]["DRAM"] = ["m", "n", f"k:{factor}"]
        assert "is a whole number from 1 to 2^53" in refused(lambda: price(write_spec, plan=plan))


def test_sizes_far_past_int64_are_priced() -> None:
    found = dse.evaluate("fusemax", "attention_1pass", seq_len="64G")
    frame = found.to_frame("einsum")
    assert frame["energy_pj"].sum() == found.energy_pj > 1e27


def test_a_parameter_with_a_unit_may_be_set(write_spec: Write) -> None:
    plan = mapping(
        parameters={"T": {"largest_divisor_of": "M / 16", "fits": "GLB"}, "cap": "32 KiB"}, capacity={"GLB": "cap"}
    )
    smaller, larger = (
        price(write_spec, plan=plan, cap=size).binding.values["T"].value for size in ("32 KiB", "64 KiB")
    )
    assert smaller < larger
    assert "cap takes an amount of data" in refused(lambda: price(write_spec, plan=plan, cap="4 MHz"))


def test_many_meetings_of_a_spatial_window_are_counted_at_once() -> None:
    """65,536 x 65,536 places of a halo fall on 131,071 elements: too many places to list, as was once tried."""
    side = 2**16
    levels = [Level("L0", (), (Loop("p", side), Loop("r", side)))]
    (counts,) = count_accesses(levels, [Operand("I", ((("p", 1), ("r", 1)),), False, (True,))]).values()
    assert counts.reads == 2 * side - 1


STUDY = {"name": "s", "designs": {"x": {"architecture": "a.yaml", "workload": "w.yaml", "mapping": "m.mapping.yaml"}}}


def study(write: Write, files: dict[str, str] | None = None, **changes: Any) -> Any:
    for name, data in {
        "a.yaml": {**SMALL, "parameters": {"buffer": "64 KiB", "rows": 16}},
        "w.yaml": GEMM,
        "m.mapping.yaml": mapping(),
    }.items():
        write(name, data)
    for name, text in (files or {}).items():
        write(name, text)
    return load_study_file(write("s.yaml", {**STUDY, **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sweep": {"buffer": ["64 KiB", 1048576]}}, "buffer takes an amount of data (bit, B, KiB, MiB, GiB), found a plain number: '1048576'"),
        ({"sweep": {"rows": [8, "16 bit"]}}, "rows takes a plain number, found an amount of data"),
        ({"sweep": {"rows": [8, 8]}}, "rows: 8 stands in the range twice"),
        ({"sweep": {"rows": [8]}, "figures": [{"name": "f", "title": "t", "value": "speedup", "baseline": "x"}]}, "there is no other design to compare with x"),
        ({"sweep": {"rows": [8]}, "designs": {"x": {**STUDY["designs"]["x"], "parameters": {"rows": 4}}}}, "rows is swept; x cannot fix it too"),
        ({"sweep": {"rows": [8]}, "designs": {"x": {**STUDY["designs"]["x"], "choices": "a\0b"}}}, "cannot read"),
    ],
)  # fmt: skip
def test_studies(changes: dict[str, Any], message: str, write_spec: Write) -> None:
    assert message in refused(lambda: study(write_spec, **changes))


def test_a_table_of_choices_with_a_mark_and_units_is_read(write_spec: Write) -> None:
    design = {"x": {**STUDY["designs"]["x"], "choices": "c.csv"}}
    table = {"c.csv": "\ufeffbuffer,T\r\n64 KiB,4\r\n128 KiB,8\r\n"}
    found = run_study(study(write_spec, table, designs=design, sweep={"buffer": ["64 KiB", "128 KiB"]})).frame
    assert found["buffer_bytes"].tolist() == [65536, 131072]
    assert found["dram_bytes"].nunique() == 2
    for text, message in (
        ("rows,buffer\n8,64 KiB\n16,1 MHz\n", "buffer takes an amount of data"),
        ("rows,T,T\n8,1,2\n", "a column stands there twice"),
    ):
        assert message in refused(lambda: study(write_spec, {"c.csv": text}, designs=design, sweep={"rows": [8, 16]}))


def test_an_axis_that_changes_nothing_gives_equal_rows(write_spec: Write) -> None:
    found = run_study(study(write_spec, sweep={"rows": [8, 16]})).frame
    assert found["rows"].tolist() == [8, 16]
    assert found["energy_pj"].nunique() == 1


def test_a_swept_parameter_cannot_be_set(write_spec: Write) -> None:
    swept = study(write_spec, sweep={"rows": [8, 16]})
    assert "rows is swept by s; change its sweep instead" in refused(lambda: with_settings(swept, ["x.rows=4"]))
    assert "buffer takes an amount of data" in refused(lambda: with_settings(swept, ["x.buffer=4"]))
