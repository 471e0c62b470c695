"""Mappings that the mapper finds, through specs and files: known optima, round trips, demands and refusals."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dse.api import evaluate, map_bound, map_front, map_workload
from dse.specs.mapspace import OBJECTIVES
from dse.specs.source import SpecError
from dse.studies.check import check_file

Write = Callable[[str, object], Path]


@pytest.mark.parametrize("objective", ["energy", "latency", "edp"])
def test_a_matmul_that_every_level_keeps_has_the_known_optimum(objective: str) -> None:
    """8,814,329,856 pJ at 4,194,304 cycles: M = N = K = 1024 on `three_level`, found by full enumeration elsewhere."""
    found = map_workload("three_level", "matmul", objective=objective)
    assert found.proven
    assert found.result.energy_pj == 8_814_329_856
    assert found.result.latency_s * 1e9 == pytest.approx(4_194_304, rel=1e-15)
    assert found.einsums["Z"].found.proof.size == 1_644_839_287


def test_a_matmul_whose_levels_may_be_bypassed_needs_less() -> None:
    found = map_workload("three_level", "matmul", mapspace="free")
    assert found.result.energy_pj == 5_542_772_736
    assert found.result.energy_pj <= 8_327_790_000  # an upper bound by hand
    assert found.result.latency_s * 1e9 == pytest.approx(4_194_304, rel=1e-15)


WORKLOADS: dict[str, dict[str, list[int]]] = {
    "matmul": {"m": [8, 12, 64, 100], "n": [7, 16, 36], "k": [5, 24, 128]},
    "conv": {"m": [2, 4], "c": [1, 3], "p": [2, 6], "q": [1, 4], "r": [1, 3], "s": [1, 2], "stride": [1, 2]},
    "depthwise": {"c": [4, 6], "p": [4, 6], "q": [1, 4], "r": [1, 3], "s": [1, 2], "stride": [1, 2]},
}


@pytest.mark.parametrize("imperfect", [False, True])
@pytest.mark.parametrize("seed", range(50))
def test_a_mapping_that_is_written_and_read_again_costs_the_same(
    seed: int, imperfect: bool, write_spec: Write, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    workload = draw.choice(sorted(WORKLOADS))
    sizes: dict[str, Any] = {name: draw.choice(values) for name, values in WORKLOADS[workload].items()}
    hardware = {"rows": draw.choice([2, 4]), "cols": draw.choice([2, 4, 6]), "registers": draw.choice([8, 32])}
    hardware["buffer"] = draw.choice(["256 B", "2 KiB", "128 KiB"])
    objective = draw.choice(sorted(OBJECTIVES))
    mapspace = demands(write_spec, imperfect="all") if imperfect else "free"
    found = map_workload("three_level", workload, mapspace=mapspace, objective=objective, **sizes, **hardware)
    path = tmp_path / "found.mapping.yaml"
    path.write_text(found.to_yaml())
    read = evaluate("three_level", workload, mapping=str(path), **sizes, **hardware)
    assert read.totals() == found.result.totals()
    for metric, total in (("energy", read.energy_pj), ("latency", read.latency_s)):
        assert sum(each.best.costs[metric] for each in found.einsums.values()) == pytest.approx(total, rel=1e-12)
    if objective == "dram":
        moved = sum(each.best.costs["dram"] for each in found.einsums.values())
        assert moved == pytest.approx(read.dram_bytes, rel=1e-12)


def test_a_cascade_with_parts_and_iterations_is_mapped_and_written_with_its_parts(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"batch": 1, "heads": 1, "head_dim": 4, "seq_len": 16}
    found = map_workload("three_level", "attention_1pass", rows=4, cols=4, M0=4, **sizes)
    assert found.proven
    for each in found.einsums.values():
        for level in each.best.nest:
            assert all(rank != "m1" for loops in level.spatial.values() for rank, _ in loops), "M1 steps in order"
    path = tmp_path / "found.mapping.yaml"
    path.write_text(found.to_yaml())
    read = evaluate("three_level", "attention_1pass", mapping=str(path), rows=4, cols=4, **sizes)
    assert read.totals() == found.result.totals()


def test_an_einsum_of_numbers_alone_is_mapped() -> None:
    found = map_workload("three_level", "cascade_2", length=16)
    assert found.proven
    assert found.result.energy_pj == pytest.approx(sum(e.best.costs["energy"] for e in found.einsums.values()))


def test_a_front_is_over_every_unit_that_can_run_the_einsum(write_spec: Write) -> None:
    memory = {"class": "relative_memory", "type": "buffer", "width": "16 bit"}
    unit = {"components": {"pe": {"class": "relative_pe", "width": "16 bit"}}, "ops": {"mac": {"mac": 1}}}
    chip = {
        "name": "chip",
        "clock": "1 GHz",
        "memories": {
            "DRAM": {"class": "dram", "type": "relative", "width": "16 bit"},
            "GLB": memory | {"capacity": "1 KiB"},
        },
        "units": {"one": unit | {"path": ["DRAM", "GLB"]}, "many": unit | {"path": ["DRAM", "GLB", {"x": 4}]}},
    }
    path = str(write_spec("chip.yaml", chip))
    sizes = {"m": 4, "n": 4, "k": 4}
    points = map_front(path, "matmul", metrics=("energy", "latency"), **sizes)["Z"].points
    for objective, metric in (("energy", "energy_pj"), ("latency", "latency_s")):
        least = getattr(map_workload(path, "matmul", objective=objective, **sizes).result, metric)
        assert min(point.costs[objective] for point in points) == pytest.approx(least)


def test_jobs_do_not_change_what_is_found() -> None:
    given: dict[str, Any] = {"batch": 1, "heads": 1, "head_dim": 8, "seq_len": 16, "buffer": "1 KiB"}
    alone = map_workload("three_level", "attention_3pass", **given)
    together = map_workload("three_level", "attention_3pass", jobs=2, **given)
    assert alone.to_yaml() == together.to_yaml()
    assert [each.found for each in alone.einsums.values()] == [each.found for each in together.einsums.values()]


@pytest.mark.parametrize(
    ("architecture", "workload", "sizes"),
    [
        ("eyeriss", "conv", {"m": 8, "c": 6, "p": 14, "q": 14}),
        ("nvdla_like", "conv_int8", {"m": 64, "c": 64, "p": 14, "q": 14}),
        ("simba_like", "conv_int8", {"m": 16, "c": 16, "p": 7, "q": 7, "r": 1, "s": 1}),
        ("tpu_v1_like", "matmul_int8", {}),
    ],
)
def test_shipped_architectures_are_mapped_under_their_own_demands(
    architecture: str, workload: str, sizes: dict[str, int]
) -> None:
    found = map_workload(architecture, workload, **sizes)
    assert found.proven
    (each,) = found.einsums.values()
    assert found.result.energy_pj == pytest.approx(each.best.costs["energy"], rel=1e-12)
    free = each.problem.constraints
    for level in each.best.nest:
        assert free.keep.get(level.memory, frozenset()) <= set(level.keep)
        assert not free.bypass.get(level.memory, frozenset()) & set(level.keep)
        for axis, loops in level.spatial.items():
            assert {rank for rank, _ in loops} <= free.ranks[axis]


def test_the_front_of_energy_and_latency_starts_at_one_optimum_and_ends_at_the_other() -> None:
    given = {"c": 2, "m": 4, "p": 4, "q": 4, "s": 1}
    front = map_front("eyeriss", "conv", metrics=("energy", "latency"), **given)["O"].points
    least = {
        objective: map_workload("eyeriss", "conv", objective=objective, **given) for objective in ("energy", "latency")
    }
    assert front[0].costs["energy"] == pytest.approx(least["energy"].result.energy_pj)
    assert front[0].costs["latency"] == pytest.approx(least["energy"].result.latency_s)
    assert front[-1].costs["latency"] == pytest.approx(least["latency"].result.latency_s)
    assert front[-1].costs["energy"] == pytest.approx(least["latency"].result.energy_pj)
    assert len(front) >= 2


def test_the_least_traffic_of_a_matmul_falls_with_capacity_to_each_tensor_once() -> None:
    """Without a buffer each operation moves its operands; with room for one tensor and a row of each other, each is moved once."""
    points = map_bound("three_level", "matmul", memory="GLB", m=16, n=16, k=16)["Z"].points
    traffic = [point.costs["dram"] for point in points]
    capacity = [point.costs["capacity"] for point in points]
    assert capacity == sorted(capacity)
    assert traffic == sorted(traffic, reverse=True)
    operations, word = 16**3, 2
    assert traffic[0] == (4 * operations - 16**2) * word
    assert traffic[-1] == 3 * 16**2 * word
    assert capacity[-1] == (16 * 16 + 16 + 16) * word  # all of Z, a column of A, a row of B


# ---- demands and refusals


def demands(write_spec: Write, **what: Any) -> str:
    return str(write_spec("d.mapspace.yaml", {"name": "d", **what}))


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ({"keep": {"GLB": ["Y"]}}, "unknown tensor 'Y'"),
        ({"keep": {"L2": ["A"]}}, "unknown memory 'L2'"),
        ({"ranks": {"x": ["q"]}}, "unknown rank variable 'q'"),
        ({"ranks": {"z": ["m"]}}, "unknown memory or axis 'z'"),
        ({"factors": {"GLB": {"q": 2}}}, "unknown rank variable 'q'"),
        ({"order": {"GLB": ["m", "w"]}}, "unknown rank variable 'w'"),
        ({"unit": "cube"}, "unknown unit 'cube'"),
        ({"einsums": {"X": {"keep": {"GLB": ["A"]}}}}, "unknown Einsum 'X'"),
        ({"utilization": 1.5}, "utilization is from 0 to 1"),
        ({"utilization": True}, "utilization: "),
        ({"keep": {"GLB": "A"}}, "keep: a list of tensors, or all; found 'A'"),
        ({"keep": {"GLB": [1]}}, "keep: a list of tensors, or all; found [1]"),
        ({"factors": {"x": {"m": "4..2"}}}, "m: no factor is 4 at least and 2 at most"),
        ({"factors": {"x": {"m": 0}}}, "m is a whole number from 1 to 2^53, found 0"),
        ({"factors": {"x": {"m": "<= foo"}}}, "unknown parameter 'foo'"),
        ({"order": {"DRAM": ["m", "m"]}}, "order: 'm' stands there twice for DRAM"),
        ({"imperfect": ["q"]}, "unknown rank variable 'q'"),
        ({"imperfect": "m"}, "imperfect: a list of rank variables, or all; found 'm'"),
        ({"keeps": {}}, "unknown key 'keeps'"),
    ],
)
def test_an_unknown_name_is_refused_with_file_and_line(write_spec: Write, what: dict[str, Any], says: str) -> None:
    path = demands(write_spec, **what)
    with pytest.raises(SpecError) as refused:
        map_workload("three_level", "matmul", mapspace=path)
    (line,) = refused.value.lines
    place, message = line.split(": ", 1)
    assert place.startswith(path)
    assert int(place.rsplit(":", 1)[1]) > 1
    assert says in message


@pytest.mark.parametrize(
    ("what", "one", "other"),
    [
        ({"keep": {"GLB": ["A"]}, "bypass": {"GLB": ["A"]}}, "GLB keeps A", "GLB lets it pass by"),
        ({"ranks": {"x": ["n"]}, "factors": {"x": {"m": 4}}}, "m has a factor of 4 at x", "x leaves m out"),
        (
            {"factors": {"x": {"m": 16}, "RF": {"m": ">= 128"}}},
            "RF has m: 128 at least",
            "x has m: 16 at least, M is 1024",
        ),
        ({"factors": {"x": {"m": 8, "n": 4}}}, "x has n: 4 at least", "x has m: 8 at least, axis x has 16"),
    ],
)
def test_two_demands_that_clash_are_both_named(write_spec: Write, what: dict[str, Any], one: str, other: str) -> None:
    with pytest.raises(SpecError, match="no mapping can have both") as refused:
        map_workload("three_level", "matmul", mapspace=demands(write_spec, **what))
    assert one in str(refused.value)
    assert other in str(refused.value)
    assert str(refused.value).count("d.mapspace.yaml:") == 2


def test_a_factor_that_no_divisor_gives_is_refused(write_spec: Write) -> None:
    with pytest.raises(SpecError, match=r"no factor of M = 1024 is 3 at RF; its divisors: 1, 2, 4, 8"):
        map_workload("three_level", "matmul", mapspace=demands(write_spec, factors={"RF": {"m": 3}}))


def test_imperfect_fan_outs_fill_an_array_that_no_divisor_fills(write_spec: Write) -> None:
    """M = N = 13, K = 1 on 4 x 4 PEs: 13 is prime, so with factors that divide one PE works. With M over 4 PEs of a row, 8 x 2
    of them take 2 x 7 rounds; 4 x 4 take 4 x 4, 12 x 1 take 2 x 13."""
    sizes: dict[str, Any] = {"m": 13, "n": 13, "k": 1, "rows": 4, "cols": 4}
    divided = map_workload("three_level", "matmul", mapspace="free", objective="latency", **sizes)
    path = demands(write_spec, imperfect="all", factors={"x": {"m": 4}})
    found = map_workload("three_level", "matmul", mapspace=path, objective="latency", **sizes)
    assert found.proven
    assert divided.result.timings["Z"].cycles == 169
    assert found.result.timings["Z"].cycles == 14
    assert found.data["einsums"]["Z"]["imperfect"] == ["m", "n"]


def test_imperfect_ranks_are_refused_where_tiles_overlap_and_where_einsums_are_fused(write_spec: Write) -> None:
    with pytest.raises(SpecError, match="O: p must be divided, for it indexes I, whose tiles overlap"):
        map_workload("three_level", "conv", mapspace=demands(write_spec, imperfect=["p"]))
    path = demands(write_spec, imperfect="all")
    with pytest.raises(SpecError, match=r"d.mapspace.yaml:\d+: fused Einsums are mapped with factors that divide"):
        map_workload("three_level", "attention_3pass", mapspace=path, fuse=True, seq_len=16, batch=1, heads=1)


def test_factors_are_bounded_fixed_or_ranged_and_orders_hold(write_spec: Write) -> None:
    path = demands(
        write_spec,
        factors={"RF": {"k": "<= 2"}, "GLB": {"m": "4..8"}, "x": {"n": "cols / 2"}},
        order={"DRAM": ["k", "n"]},
        utilization=0.5,
    )
    found = map_workload("three_level", "matmul", mapspace=path, m=64, n=64, k=64)
    dram, buffer, registers = found.einsums["Z"].best.nest
    assert dict(registers.temporal).get("k", 1) <= 2
    assert 4 <= dict(buffer.temporal).get("m", 1) <= 8
    assert dict(buffer.spatial["x"])["n"] == 8
    order = [rank for rank, _ in dram.temporal if rank in "kn"]
    assert order == sorted(order, key="kn".index)
    assert found.result.utilization("array") >= 0.5


@pytest.mark.parametrize(
    ("what", "given", "says"),
    [
        (
            {"factors": {"GLB": {"m": 256, "k": 256}}, "keep": {"GLB": ["A"]}},
            {"buffer": "64 KiB"},
            "GLB needs 128 KiB for the smallest tiles (A 128 KiB), has 64 KiB",
        ),
        (
            {"factors": {"x": {"m": 4}, "DRAM": {"m": 2, "n": 4, "k": 8}}, "utilization": 1},
            {"m": 16, "n": 16, "k": 16},
            "at most 64 of 256 PEs can be busy",
        ),
        (
            {"factors": {"x": {"n": 2}, "y": {"n": 2}, "GLB": {"n": 2}, "RF": {"n": 4}}},
            {"n": 16},
            "factors of n that its demands allow come to 32, never to N = 16",
        ),
        (
            {"ranks": {"x": [], "y": [], "DRAM": [], "GLB": [], "RF": ["m", "k"]}},
            {"m": 4, "n": 4, "k": 4},
            "factors of n that its demands allow come to 1, never to N = 4",
        ),
        (
            {"keep": {"RF": ["A", "B", "Z"]}},
            {"registers": 2},
            "RF needs 6 B for the smallest tiles (A 2 B, B 2 B, Z 2 B), has 4 B",
        ),
        (
            {"ranks": {"x": ["m"], "y": ["n"]}, "utilization": 1},
            {"m": 8, "n": 8},
            "at most 64 of 256 PEs can be busy, 0.25 of them; utilization demands 1",
        ),
    ],
)
def test_no_valid_mapping_is_explained(
    write_spec: Write, what: dict[str, Any], given: dict[str, Any], says: str
) -> None:
    with pytest.raises(SpecError, match="Z has no valid mapping: on array") as refused:
        map_workload("three_level", "matmul", mapspace=demands(write_spec, **what), **given)
    assert says in str(refused.value)


def test_a_memory_that_is_too_small_for_what_fan_outs_leave_is_named_with_what_it_needs(write_spec: Write) -> None:
    """Full use of the array leaves each register file four elements of A to hold at once."""
    path = demands(
        write_spec,
        ranks={"x": ["n"], "y": ["n"], "DRAM": [], "GLB": []},
        keep={"RF": ["A"]},
    )
    with pytest.raises(SpecError, match=r"RF needs 32 B for the smallest tiles \(A 32 B\), has 16 B"):
        map_workload("three_level", "matmul", mapspace=path, m=4, n=256, k=4, registers=8)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"objective": "speed"}, "unknown objective 'speed'"),
        ({"seq_len": 4}, "unknown parameter 'seq_len'"),
        ({"m": "2 MiB"}, "m takes a plain number"),
        ({"mapspace": "nowhere"}, "unknown mapspace 'nowhere'"),
    ],
)
def test_wrong_arguments_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        map_workload("three_level", "matmul", **given)


def test_a_unit_that_cannot_compute_an_einsum_is_refused() -> None:
    with pytest.raises(SpecError, match="no unit of tpu_v1_like does what GM needs"):
        map_workload("tpu_v1_like", "attention_3pass", batch=1, heads=1, seq_len=16)


def test_a_front_or_bound_over_the_wrong_thing_is_refused() -> None:
    with pytest.raises(SpecError, match="unknown metric 'area'"):
        map_front("three_level", "matmul", metrics=("energy", "area"))
    with pytest.raises(SpecError, match="two or three different metrics"):
        map_front("three_level", "matmul", metrics=("energy",))
    with pytest.raises(SpecError, match="array has no 'L2' inside DRAM"):
        map_bound("three_level", "matmul", memory="L2", m=4, n=4, k=4)


@pytest.mark.parametrize(
    ("size", "says"),
    [
        (0, "M0 is a whole number of 1 or more, found 0"),
        (2.5, "M0 is a whole number of 1 or more, found 2.5"),
        (3, r"M = 8 does not divide by 3 \(M0\); nearest divisors: 2 and 4"),
        (16, r"M = 8 does not divide by 16 \(M0\)"),
    ],
)
def test_a_part_that_cannot_be_is_refused_before_the_search(size: float, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        map_workload("three_level", "attention_1pass", batch=1, heads=1, head_dim=4, seq_len=8, M0=size)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ({"architecture": "nowhere"}, "unknown architecture 'nowhere'"),
        ({"workload": "nothing"}, "unknown workload 'nothing'"),
        ({"factors": {"x": {"m": -4}}}, "m is a whole number"),
        ({"factors": {"x": {"m": "4..2"}}}, "no factor is 4 at least and 2 at most"),
        ({"ranks": {"x": ["q"]}}, "unknown rank variable 'q'"),
    ],
)
def test_checking_a_file_of_demands_finds_what_mapping_would(
    write_spec: Write, what: dict[str, Any], says: str
) -> None:
    data = {"name": "d", "architecture": "three_level", "workload": "matmul", **what}
    path = write_spec("d.mapspace.yaml", data)
    with pytest.raises(SpecError, match=says) as refused:
        check_file(path)
    assert int(str(refused.value).split(": ", 1)[0].rsplit(":", 1)[1]) >= 1
