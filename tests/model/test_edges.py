"""Places where a model goes wrong quietly: sizes at the limits of a type, shared memories, tiles that do not grow in a
line, tensors read where nothing put them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dse
from dse.model.accounting import PUBLISHED
from dse.specs.library import library_folder

Write = Callable[[str, object], Path]

SMALL: dict[str, Any] = {
    "name": "small",
    "parameters": {"buffer": "64 KiB"},
    "clock": "1 GHz",
    "memories": {
        "DRAM": {"class": "dram", "type": "lpddr4", "width": "64 bit", "bandwidth": "25.6 GB/s"},
        "GLB": {"class": "sram", "capacity": "buffer", "width": "256 bit"},
        "RF": {"class": "register_file", "depth": 16, "width": "16 bit"},
    },
    "units": {
        "array": {
            "path": ["DRAM", "GLB", {"x": 16, "y": 16}, "RF"],
            "components": {
                "mac": {"class": "fp_mac", "width": "16 bit"},
                "max": {"class": "fp_max", "width": "16 bit"},
            },
            "ops": {"mac": {"mac": 1}, "relu": {"max": 1}},
        }
    },
}
GEMM = {
    "name": "gemm",
    "ranks": {"M": 1024, "N": 1024, "K": 1024},
    "inputs": ["A[m,k]", "B[k,n]"],
    "einsums": ["Z[m,n] = A[m,k] * B[k,n]"],
}


def mapping(**changes: Any) -> dict[str, Any]:
    gemm = {
        "unit": "array",
        "loops": {"DRAM": ["m", "n", "k:4"], "GLB": ["m:T", "k"]},
        "spatial": {"x": "n:16", "y": "m:16"},
        "keep": {"DRAM": ["A", "B", "Z"], "GLB": ["A", "B", "Z"]},
    }
    base = {"name": "m", "parameters": {"T": {"largest_divisor_of": "M / 16", "fits": "GLB"}}, "einsums": {"Z": gemm}}
    return {**base, "phases": [{"steps": [{"array": ["Z"]}]}], **changes}


def price(write: Write, architecture: Any = SMALL, workload: Any = GEMM, plan: Any = None, **parameters: Any) -> Any:
    paths = [
        str(write(name, data))
        for name, data in (("a.yaml", architecture), ("w.yaml", workload), ("m.mapping.yaml", plan or mapping()))
    ]
    return dse.evaluate(paths[0], paths[1], mapping=paths[2], **parameters)


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint16, np.float32, int])
def test_a_numpy_number_is_the_number(kind: Any) -> None:
    right = dse.evaluate("fusemax", "attention_1pass", seq_len=16384)
    for value in (kind(16384), np.array(16384, dtype=kind), np.array([16384, 16384], dtype=kind)):
        found = dse.evaluate("fusemax", "attention_1pass", seq_len=value)
        assert np.all(found.energy_pj == right.energy_pj)
        assert np.all(found.latency_s == right.latency_s)


@pytest.mark.parametrize("mapping_name", ["fusemax_cascade", "flat"])
@pytest.mark.parametrize("accounting", ["published", "corrected"])
def test_lengths_past_every_integer_type_agree_with_exact_integers(mapping_name: str, accounting: str) -> None:
    workload = "attention_1pass" if mapping_name == "fusemax_cascade" else "attention_3pass"
    options = {"mapping": mapping_name, "accounting": accounting}
    together = dse.evaluate("flat", workload, seq_len=np.array([2**26, 2**28]), **options)
    for number, length in enumerate((2**26, 2**28)):
        alone = dse.evaluate("flat", workload, seq_len=length, **options)
        for name, value in alone.totals().items():
            assert np.broadcast_to(together.totals()[name], (2,))[number] == pytest.approx(value, rel=1e-12), name


def test_lists_are_arrays_and_anything_else_is_refused() -> None:
    assert dse.evaluate("fusemax", "attention_1pass", seq_len=[1024, 2048]).shape == (2,)
    for wrong in ([True], ["1K", "2K"], [], None, object()):
        with pytest.raises(dse.SpecError, match="seq_len: expected a number or an array of numbers"):
            dse.evaluate("fusemax", "attention_1pass", seq_len=wrong)


def test_a_memory_that_a_path_sees_as_one_moves_with_the_bandwidth_of_all(write_spec: Write) -> None:
    """1D registers stand above the 2D array's fan-out as one memory, and are as many as lanes: 16 KiB each way a cycle."""
    text = (library_folder("archs") / "fusemax.yaml").read_text()
    path = write_spec(
        "a.yaml",
        text.replace("depth: lane_registers, width: word,", "depth: lane_registers, width: word, bandwidth: 8 GB/s,"),
    )
    free = dse.evaluate("fusemax", "attention_1pass")
    bound = dse.evaluate(str(path), "attention_1pass", mapping="fusemax")
    moved = sum(entry.reads + entry.writes for entry in bound.traffic if entry.memory == "RF1") * 2
    assert bound.memory_s == pytest.approx(max(free.memory_s, moved / (256 * 8e9)), rel=1e-12)


def test_negative_steps_of_an_index_reach_as_far_as_positive_ones(write_spec: Write) -> None:
    reads = {}
    for sign in "+-":
        conv = {
            "name": "c",
            "ranks": {"P": 16, "R": 4},
            "inputs": [f"X[p{sign}r]", "F[r]"],
            "einsums": [f"Y[p] = X[p{sign}r] * F[r]"],
        }
        plan = mapping(
            parameters={},
            einsums={"Y": {"unit": "array", "loops": {"DRAM": ["p", "r"]}, "keep": {"DRAM": ["X", "F", "Y"]}}},
            phases=[{"steps": [{"array": ["Y"]}]}],
        )
        found = price(write_spec, workload=conv, plan=plan)
        reads[sign] = [entry.reads for entry in found.traffic if entry.memory == "DRAM"]
    assert reads["+"] == reads["-"]


@pytest.mark.parametrize("output", ["Y[2*p]", "Y[p,p]", "Y[p+1]", "Y[0]"])
def test_outputs_that_are_not_one_element_a_point_are_refused(output: str, write_spec: Write) -> None:
    bad = {"name": "c", "ranks": {"P": 16}, "inputs": ["X[p]"], "einsums": [f"{output} = 2 * X[p]"]}
    with pytest.raises(dse.SpecError, match=r"w.yaml:\d+: each index of the output"):
        price(write_spec, workload=bad)


def test_the_largest_factor_is_found_where_tiles_grow_with_its_square(write_spec: Write) -> None:
    square = {**GEMM, "ranks": {"M": 768, "N": 768, "K": 64}}
    einsum = {
        "unit": "array",
        "loops": {"DRAM": ["m", "n"], "GLB": ["m:T", "n:T", "k"]},
        "spatial": {"x": "n:16", "y": "m:16"},
        "keep": {"DRAM": ["A", "B", "Z"], "GLB": ["Z"]},
    }
    found = price(write_spec, workload=square, plan=mapping(einsums={"Z": einsum}))
    divisors = [d for d in range(1, 49) if 48 % d == 0]
    assert found.binding.values["T"].value == max(d for d in divisors if (16 * d) ** 2 * 2 <= 64 * 1024)


def test_the_largest_factor_is_found_beyond_a_plateau(write_spec: Write) -> None:
    einsum = {
        "unit": "array",
        "loops": {"DRAM": ["m", "n"], "GLB": ["m:T", "k"]},
        "spatial": {"x": "n:16", "y": "m:16"},
        "keep": {"DRAM": ["A", "B", "Z"], "GLB": ["B", "Z"]},
    }
    plan = mapping(einsums={"Z": einsum}, share_space=[["B", "Z"]])
    sizes = np.array([1024, 4096, 65536])
    for length, factor in zip(sizes, price(write_spec, plan=plan, M=sizes).binding.values["T"].value, strict=True):
        need = [max(1024 * 16, 16 * 16 * d) * 2 for d in (factor, 2 * factor)]
        assert need[0] <= 64 * 1024
        assert factor == length // 16 or need[1] > 64 * 1024


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"capacity": {"GLB": "1 GiB"}}, "GLB has 65,536 B, found '1 GiB'"),
        ({"capacity": {"DRAM": "1 GiB"}}, "unknown memory 'DRAM' with a capacity; allowed: GLB, RF"),
        ({"spill": [{"memory": "GLB", "share": -3, "tensors": ["A"]}]}, "share is from 0 to 1, found -3"),
        ({"spill": [{"memory": "DRAM", "share": 0.5, "tensors": ["A"]}]}, "unknown memory 'DRAM' with a capacity and one outside it; allowed: GLB, RF"),
        ({"parameters": {"T": {"largest_divisor_of": "M / 16", "fits": "DRAM"}}}, "unknown memory 'DRAM' with a capacity"),
        ({"phases": [{"steps": [{"array": ["Z"]}, {"stall": "-Z"}]}]}, "stall is 0 or more, found -"),
        ({"parameters": {"T": "X / 16"}}, "unknown parameter 'X' in 'X / 16'"),
        ({"phases": [{"steps": [{"array": ["Z"]}, {"stall": "Y"}]}]}, "unknown parameter 'Y' in 'Y'; "),
    ],
)  # fmt: skip
def test_values_of_a_mapping_that_cannot_be_are_refused(
    changes: dict[str, Any], message: str, write_spec: Write
) -> None:
    with pytest.raises(dse.SpecError) as raised:
        price(write_spec, plan=mapping(**changes))
    assert message in raised.value.lines[0]
    assert "m.mapping.yaml:" in raised.value.lines[0]


def chain(write: Write, keep: list[dict[str, list[str]]], phases: list[Any], sizes: int = 256) -> Any:
    workload = {
        "name": "c",
        "ranks": {"M": sizes, "N": sizes, "K": sizes},
        "inputs": ["A[m,k]", "B[k,n]"],
        "einsums": ["Y[m,n] = A[m,k] * B[k,n]", "Z[m,n] = relu(Y[m,n])"],
    }
    loops = {"DRAM": ["m", "n"], "GLB": []}
    shared = {"unit": "array", "spatial": {"x": "n:16", "y": "m:16"}}
    plan = {
        "name": "m",
        "einsums": {
            "Y": {**shared, "loops": {**loops, "GLB": ["k"]}, "keep": keep[0]},
            "Z": {**shared, "loops": loops, "keep": keep[1]},
        },
        "phases": phases,
    }
    return price(write, workload=workload, plan=plan)


def test_a_tensor_is_read_only_where_it_was_put(write_spec: Write) -> None:
    fused, apart = [{"steps": [{"array": ["Y", "Z"]}]}], [{"steps": [{"array": ["Y"]}]}, {"steps": [{"array": ["Z"]}]}]
    makes = {"DRAM": ["A", "B"], "GLB": ["Y"]}
    assert chain(write_spec, [makes, {"DRAM": ["Z"], "GLB": ["Y"]}], fused).feasible is True
    with pytest.raises(dse.SpecError, match="Z reads Y from DRAM, where nothing puts it; Y keeps it in GLB, RF"):
        chain(write_spec, [makes, {"DRAM": ["Y", "Z"]}], fused)
    with pytest.raises(
        dse.SpecError, match="Z reads Y from GLB in a later phase than Y makes it, and GLB holds a part"
    ):
        chain(write_spec, [makes, {"DRAM": ["Z"], "GLB": ["Y"]}], apart)
    through_dram = [{"DRAM": ["A", "B", "Y"]}, {"DRAM": ["Y", "Z"]}]
    assert chain(write_spec, through_dram, apart).feasible is True


def test_the_tensor_behind_a_final_view_still_leaves(write_spec: Write) -> None:
    workload = {**GEMM, "einsums": [*GEMM["einsums"], "ZT[n,m] = Z[m,n]"]}
    plan = mapping()
    plan["einsums"]["Z"]["keep"] = {"DRAM": ["A", "B"], "GLB": ["A", "B", "Z"]}
    with pytest.raises(dse.SpecError, match="Z: Z enters or leaves gemm, so DRAM must keep it"):
        price(write_spec, workload=workload, plan=plan)


def test_what_depends_on_an_overflow_sees_it(write_spec: Write) -> None:
    parameters = {"T": 64, "over": {"overflow_of": "GLB"}, "half": "over / 2"}
    plan = {"spill": [{"memory": "GLB", "share": "over", "tensors": ["B"]}], "parameters": parameters}
    whole = price(write_spec, plan=mapping(**plan)).dram_bytes
    plan["spill"][0]["share"] = "half"
    half = price(write_spec, plan=mapping(**plan)).dram_bytes
    none = price(write_spec, plan=mapping(**plan), over=0).dram_bytes
    assert none < half < whole
    assert whole - half == pytest.approx(half - none, rel=1e-9)


def test_an_action_has_one_component(write_spec: Write) -> None:
    twice = {"mac": {"class": "fp_mac", "width": "16 bit"}, "wide": {"class": "fp_mac", "width": "32 bit"}}
    unit = {**SMALL["units"]["array"], "components": twice, "ops": {"mac": {"mac": 1}}}
    with pytest.raises(dse.SpecError, match="wide and mac both do 'mac'; an action has one component"):
        price(write_spec, architecture={**SMALL, "units": {"array": unit}})


def test_a_buffer_that_is_innermost_holds_all_of_a_fused_phase(write_spec: Write) -> None:
    """On a path that ends at a shared buffer, tiles of fused Einsums stand in it together."""
    unit = {**SMALL["units"]["array"], "path": ["DRAM", "GLB", {"x": 16, "y": 16}]}
    shared = {**SMALL, "parameters": {"buffer": "16 KiB"}, "units": {"array": unit}}
    workload = {
        "name": "c",
        "ranks": {"M": 64, "N": 64},
        "inputs": ["A[m,n]"],
        "einsums": ["Y[m,n] = relu(A[m,n])", "Z[m,n] = relu(Y[m,n])"],
    }
    each = {"unit": "array", "loops": {"GLB": ["m", "n"]}, "spatial": {"x": "n:16", "y": "m:16"}}
    plan = {
        "name": "m",
        "einsums": {"Y": {**each, "keep": {"DRAM": ["A"]}}, "Z": {**each, "keep": {"DRAM": ["Z"]}}},
        "phases": [{"steps": [{"array": ["Y", "Z"]}]}],
    }
    with pytest.raises(dse.SpecError, match="GLB needs 24,576 B for A 8,192 B, Y 8,192 B, Z 8,192 B; has 16,384 B"):
        price(write_spec, architecture=shared, workload=workload, plan=plan)


def test_points_without_an_sram_in_the_tables_are_marked() -> None:
    sides = np.array([256, 96, 128])
    found = dse.evaluate("fusemax", "attention_1pass", rows=sides, cols=sides, seq_len=3 * 2**12)
    assert found.feasible.tolist() == [True, False, True]
    assert found.to_frame()["feasible"].tolist() == [True, False, True]
    with pytest.raises(dse.SpecError, match="no SRAM 1536 bit wide"):
        dse.evaluate("fusemax", "attention_1pass", rows=96, cols=96, seq_len=3 * 2**12)


def test_the_published_block_is_only_for_the_published_accounting() -> None:
    corrected, published = (
        dse.evaluate("flat", "attention_1pass", mapping="fusemax_cascade", accounting=name)
        for name in ("corrected", PUBLISHED)
    )
    assert published.unit_cycles("1d") > corrected.unit_cycles("1d")
    charged = [entry for entry in published.energy if entry.einsum == "SLN" and entry.action == "exp"]
    assert [entry.energy_pj for entry in charged] == [0]
