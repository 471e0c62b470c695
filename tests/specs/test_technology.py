"""Architectures of other technologies and data types, and with tables of their own, as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import dse
from dse.specs.library import find
from dse.specs.source import SpecError

Write = Callable[[str, object], Path]
POINT = {"model": "BERT", "seq_len": "4K"}


def changed(kind: str, name: str, **more: object) -> dict[str, object]:
    return {**yaml.safe_load(find(kind, name).read_text(encoding="utf-8")), **more}


def test_the_technology_is_a_key_of_the_architecture(write_spec: Write) -> None:
    path = str(write_spec("small.yaml", changed("archs", "fusemax", technology="7 nm")))
    small = dse.evaluate(path, "attention_1pass", mapping="fusemax", **POINT)
    same = dse.evaluate("fusemax", "attention_1pass", technology="7 nm", **POINT)
    assert (small.area_um2, small.energy_pj) == (same.area_um2, same.energy_pj)
    path = str(write_spec("wrong.yaml", changed("archs", "fusemax", technology="5 nm")))
    with pytest.raises(
        SpecError, match=r"wrong.yaml:\d+: no technology of 5 nm; allowed: 45, 32, 22, 16, 14, 10, 7 nm"
    ):
        dse.load_architecture(path)
    path = str(write_spec("wrong.yaml", changed("archs", "fusemax", technology="7")))
    with pytest.raises(SpecError, match=r"technology takes a length \(nm\)"):
        dse.load_architecture(path)
    path = str(write_spec("relative.yaml", changed("archs", "three_level", technology="7 nm")))
    with pytest.raises(SpecError, match="relative energies do not scale"):
        dse.map_workload(path, "matmul", mapspace="free", m=4, n=4, k=4)


def test_each_tensor_moves_bytes_of_its_own_type(write_spec: Write) -> None:
    """Keys and values of 8 bits move half the bytes, in half the room; everything else moves as before. Their
    parts BK and BV, which copy them, follow."""
    halved = changed("workloads", "attention_1pass", types={"K": "fp8", "V": "fp8"})
    path = str(write_spec("halved.yaml", halved))
    tile = {"P1": 1}  # the same tile for both, or more queries would fit
    plain = dse.evaluate("fusemax", "attention_1pass", **POINT, **tile)
    small = dse.evaluate("fusemax", path, mapping="fusemax", **POINT, **tile)
    for result, share in ((plain, 1.0), (small, 0.5)):
        moved = {}
        for entry in result.energy:
            if entry.component == "DRAM":
                moved[entry.operand] = moved.get(entry.operand, 0) + entry.bytes
        batch, length, size = 64 * 12, 4096, 64
        assert moved["Q"] == batch * length * size * 2
        assert moved["BK"] == moved["BV"] == batch * (length // 256) * length * size * 2 * share
    assert small.memory_s == pytest.approx(small.dram_bytes / (400 * 2**30), rel=1e-12)
    assert small.compute_s == plain.compute_s


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"word": "fp9"}, r"w.yaml:\d+: word: unknown data type 'fp9'; did you mean 'fp8'\? allowed: bf16, fp16"),
        ({"types": {"K": "int7"}}, r"w.yaml:\d+: K: unknown data type 'int7'"),
        ({"types": {"KK": "fp8"}}, r"w.yaml:\d+: unknown tensor 'KK'; did you mean 'K'"),
        ({"types": {"K": "2 s"}}, "K takes an amount of data"),
    ],
)
def test_data_types_that_do_not_exist_are_refused(write_spec: Write, change: dict[str, object], message: str) -> None:
    path = str(write_spec("w.yaml", changed("workloads", "attention_3pass", **change)))
    with pytest.raises(SpecError, match=message):
        dse.load_workload(path)


def test_the_mapper_takes_one_width_an_einsum(write_spec: Write) -> None:
    path = str(write_spec("w.yaml", changed("workloads", "matmul", types={"A": "fp8"})))
    with pytest.raises(
        SpecError, match=r"w.yaml:\d+: Z: the mapper takes tensors of one width; found bits: A 8, B 16, Z 16"
    ):
        dse.map_workload("three_level", path, mapspace="free", m=4, n=4, k=4)
    path = str(write_spec("w.yaml", changed("workloads", "matmul", word="fp8")))
    half = dse.map_workload("three_level", path, mapspace="free", m=16, n=16, k=16)
    whole = dse.map_workload("three_level", "matmul", mapspace="free", m=16, n=16, k=16)
    assert half.result.dram_bytes == whole.result.dram_bytes / 2


TABLE = "class,action,width_bits,depth,energy_pj,area_um2\nscratch,read,16,64,0.5,900\nscratch,write,16,64,0.6,900\n"


def test_a_component_may_come_from_a_table_of_ones_own(write_spec: Write) -> None:
    write_spec("mine.csv", TABLE)
    chip = changed("archs", "fusemax", tables=["mine.csv"])
    chip["memories"] = {**chip["memories"], "RF2": {"class": "scratch", "width": "16 bit", "depth": 64}}  # type: ignore[dict-item]
    path = str(write_spec("chip.yaml", chip))
    rows = (
        dse.evaluate(path, "attention_1pass", mapping="fusemax", **POINT)
        .to_frame(by="component")
        .set_index("component")
    )
    assert rows.loc["RF2", "area_um2"] == pytest.approx(256 * 256 * 900)
    action = dse.evaluate(path, "attention_1pass", mapping="fusemax", **POINT)
    for entry in action.energy:
        if entry.component == "RF2":
            assert entry.energy_pj == pytest.approx(entry.count * {"read": 0.5, "write": 0.6}[entry.action])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            TABLE.replace(",energy_pj", "").replace(",0.5", "").replace(",0.6", ""),
            r"mine.csv:1: column 'energy_pj' is missing",
        ),
        (TABLE.replace("0.6", "-0.6"), r"mine.csv:3: energy_pj is a number of 0 or more, found -0.6"),
        (TABLE.replace("write", "read"), r"mine.csv:3: a second row for 'read' of scratch"),
        (TABLE.replace(",900\nscratch,write", "\nscratch,write"), r"mine.csv:2: 6 values expected"),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(write_spec: Write, table: str, message: str) -> None:
    write_spec("mine.csv", table)
    path = str(write_spec("chip.yaml", changed("archs", "fusemax", tables=["mine.csv"])))
    with pytest.raises(SpecError, match=message):
        dse.load_architecture(path)


def test_a_table_must_give_a_memory_its_width_and_a_class_once(write_spec: Write) -> None:
    write_spec("mine.csv", TABLE.replace(",width_bits", "").replace(",16,64", ",64"))
    chip = changed("archs", "fusemax", tables=["mine.csv"])
    chip["memories"] = {**chip["memories"], "RF2": {"class": "scratch", "depth": 64}}  # type: ignore[dict-item]
    with pytest.raises(SpecError, match=r"RF2: the table of 'scratch' has no width_bits, which a memory needs"):
        dse.load_architecture(str(write_spec("chip.yaml", chip)))
    write_spec("mine.csv", TABLE)
    write_spec("more.csv", TABLE)
    chip = changed("archs", "fusemax", tables=["mine.csv", "more.csv"])
    with pytest.raises(SpecError, match="class 'scratch' is in a table before more.csv already"):
        dse.load_architecture(str(write_spec("chip.yaml", chip)))


def test_an_outermost_memory_of_ones_own_is_dram(write_spec: Write) -> None:
    write_spec("mine.csv", "class,action,width_bits,energy_pj\nhbm9,read,64,100\nhbm9,write,64,100\n")
    chip = changed("archs", "fusemax", tables=["mine.csv"])
    chip["memories"] = {  # type: ignore[dict-item]
        **chip["memories"],
        "DRAM": {"class": "hbm9", "width": "64 bit", "bandwidth": "400 GiB/s"},
    }
    own = dse.evaluate(str(write_spec("chip.yaml", chip)), "attention_1pass", mapping="fusemax", **POINT)
    plain = dse.evaluate("fusemax", "attention_1pass", **POINT)
    assert own.dram_bytes == plain.dram_bytes > 0
