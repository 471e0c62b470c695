"""Technologies, leakage and tables of a person's own. Sources: Stillmaker and Baas, Integration 2017 (logic); CACTI 7
runs in dse/components/data/sram.csv; below 22 nm the rules that `dse.components.scaling` states."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

import dse
from dse.components.library import CLASSES, TableConventions, price_component
from dse.components.own import RowError, own_classes
from dse.components.scaling import logic_factors, scaled_sram
from dse.components.sram import sram
from dse.components.tables import ComponentError, primitives

FACTORS = {
    45: (1, 1),
    32: (0.46, 0.659),
    22: (0.2517, 0.2941),
    16: (0.19, 0.1735),
    14: (0.17, 0.1388),
    10: (0.1, 0.1178),
    7: (0.059, 0.0943),
}
"""Area and energy of logic relative to 45 nm."""

PLAIN = TableConventions()


@pytest.mark.parametrize("node", FACTORS)
def test_logic_scales_by_the_published_factors(node: int) -> None:
    area, energy = FACTORS[node]
    assert logic_factors(node) == (area, energy)
    for name, size in [("fp_mac", {"width": 16}), ("register_file", {"width": 16, "depth": 12})]:
        base, scaled = (price_component(CLASSES[name], size, PLAIN, each) for each in (45, node))
        assert scaled.area_um2 == pytest.approx(base.area_um2 * area, rel=1e-14)
        for action, each in base.energy_pj.items():
            assert scaled.energy_pj[action] == pytest.approx(each * energy, rel=1e-14)
        assert scaled.leakage_mw == pytest.approx(base.leakage_mw * energy, rel=1e-14)


def test_technologies_may_be_an_array() -> None:
    nodes = np.array([45, 7, 22])
    together = price_component(CLASSES["fp_mac"], {"width": 16}, PLAIN, nodes)
    for place, node in enumerate(nodes.tolist()):
        alone = price_component(CLASSES["fp_mac"], {"width": 16}, PLAIN, node)
        assert together.energy_pj["mac"][place] == alone.energy_pj["mac"]
    buffer = {"capacity": 8 * 2**24, "width": 4096, "banks": 32}
    every = price_component(CLASSES["sram"], buffer, PLAIN, nodes)
    for place, node in enumerate(nodes.tolist()):
        alone = price_component(CLASSES["sram"], buffer, PLAIN, node)
        assert every.energy_pj["read"][place] == pytest.approx(alone.energy_pj["read"], rel=1e-15)
        assert every.area_um2[place] == pytest.approx(alone.area_um2, rel=1e-15)


def test_sram_has_its_own_runs_to_22_nm_and_scales_below() -> None:
    base = sram(2**24, 4096, 32, technology_nm=22)
    for node in (16, 14, 10, 7):
        small = scaled_sram(base, node)
        assert small.area_um2 == pytest.approx(base.area_um2 * node / 22, rel=1e-14)
        assert small.read_pj == pytest.approx(base.read_pj * math.sqrt(node / 22), rel=1e-14)
        assert small.leakage_mw == pytest.approx(base.leakage_mw * 0.79 * math.sqrt(node / 22), rel=1e-14)
        assert small.cycle_ns == base.cycle_ns
    assert scaled_sram(base, 22) == base
    assert sram(2**24, 4096, 32, technology_nm=45).area_um2 == 141957000.0


def test_memory_off_the_chip_does_not_scale() -> None:
    size = {"type": "hbm2", "width": 64}
    assert price_component(CLASSES["dram"], size, PLAIN, 7) == price_component(CLASSES["dram"], size, PLAIN, 45)


def test_fusemax_at_7_nm_shrinks_component_by_component() -> None:
    """Logic by 0.059 and 0.0943; the buffer from its 22 nm run by 7/22 and its root; DRAM not at all."""
    point = {"model": "BERT", "seq_len": "64K"}
    base, small = (
        dse.evaluate("fusemax", "attention_1pass", technology=f"{node} nm", **point)
        .to_frame(by="component")
        .set_index("component")
        for node in (45, 7)
    )
    for name in ("RF1", "RF2", "2d.mac", "2d.max", "1d.mac", "1d.divide"):
        assert small.loc[name, "area_um2"] == pytest.approx(0.059 * base.loc[name, "area_um2"], rel=1e-9)
        assert small.loc[name, "energy_pj"] == pytest.approx(0.0943 * base.loc[name, "energy_pj"], rel=1e-9)
    assert small.loc["DRAM", "energy_pj"] == pytest.approx(base.loc["DRAM", "energy_pj"], rel=1e-9)
    buffer = sram(2**24, 4096, 32, technology_nm=22)
    address = primitives()["address_bit"].area * 15 * 2
    assert small.loc["GLB", "area_um2"] == pytest.approx(buffer.area_um2 * 7 / 22 + address * 0.059, rel=1e-12)


def test_leakage_is_power_times_time() -> None:
    """CACTI's 16 MiB of 32 banks, and each PE's adder and multiplier (Aladdin: 0.0846 and 0.0956 pJ a cycle at 940 MHz)."""
    point = {"model": "BERT", "seq_len": "64K", "accounting": "leaking"}
    result = dse.evaluate("fusemax", "attention_1pass", **point)
    leaks = {entry.component: entry.energy_pj for entry in result.energy if entry.action == "leak"}
    seconds = result.latency_s
    mac = (0.08457446809034999 + 0.09561797872933256) * 0.94  # mW: pJ a cycle x cycles a ns
    assert leaks["2d.mac"] == pytest.approx(256 * 256 * mac * 1e9 * seconds, rel=1e-6)
    buffer = sram(2**24, 4096, 32)
    address = 2 * 15 * 3.938079255563309e-07 * 0.94
    assert leaks["GLB"] == pytest.approx((buffer.leakage_mw + address) * 1e9 * seconds, rel=1e-6)
    plain = dse.evaluate("fusemax", "attention_1pass", model="BERT", seq_len="64K")
    assert result.energy_pj == pytest.approx(plain.energy_pj + sum(leaks.values()), rel=1e-12)
    by_einsum = result.to_frame(by="einsum")
    assert by_einsum["energy_pj"].sum() == result.energy_pj
    assert "leakage" in set(by_einsum["einsum"])
    published = dse.evaluate("fusemax", "attention_1pass", model="BERT", seq_len="64K", accounting="published")
    assert not any(entry.action == "leak" for entry in published.energy)


COLUMNS = ["class", "action", "width_bits", "depth", "energy_pj", "area_um2", "technology_nm"]


def row(*values: object) -> Mapping[str, str]:
    return dict(zip(COLUMNS, map(str, values), strict=True))


def test_a_table_of_ones_own_is_read_as_it_is_and_scaled_from_45_nm() -> None:
    classes = own_classes(
        COLUMNS,
        [
            row("scratch", "read", 16, 64, 0.5, 900, ""),
            row("scratch", "write", 16, 64, 0.6, 900, ""),
            row("scratch", "read", 16, 64, 0.02, 40, 7),
            row("scratch", "write", 16, 64, 0.03, 40, 7),
        ],
    )
    kind, size = classes["scratch"], {"width": 16, "depth": 64}
    assert kind.actions == ("read", "write")
    assert kind.attributes == {"width": True, "depth": True}
    assert price_component(kind, size, PLAIN, 45).energy_pj == {"read": 0.5, "write": 0.6}
    assert price_component(kind, size, PLAIN, 7).energy_pj == {"read": 0.02, "write": 0.03}  # a row of its own
    assert price_component(kind, size, PLAIN, 22).energy_pj["read"] == pytest.approx(0.5 * 0.2941)
    assert price_component(kind, size, PLAIN, np.array([45, 7])).area_um2.tolist() == [900, 40]
    with pytest.raises(
        ComponentError, match=r"no scratch of width 16, depth 32, 45 nm; the table has width 16, depth 64"
    ):
        price_component(kind, {"width": 16, "depth": 32}, PLAIN, 45)


@pytest.mark.parametrize(
    ("columns", "rows", "at", "message"),
    [
        (["class", "action"], [], -1, "column 'energy_pj' is missing"),
        ([*COLUMNS, "colour"], [], -1, "unknown column 'colour'"),
        (COLUMNS, [row("s", "read", 16, 4, -1, 0, "")], 0, "energy_pj is a number of 0 or more, found -1"),
        (COLUMNS, [row("s", "read", 16, 4, "much", 0, "")], 0, "energy_pj is a number, found 'much'"),
        (COLUMNS, [row("s", "read", 16, 4, "nan", 0, "")], 0, "found nan"),
        (
            COLUMNS,
            [row("s", "read", 16, 4, 1, 0, "")] * 2,
            1,
            "a second row for 'read' of s at width 16, depth 4, 45 nm",
        ),
        (COLUMNS, [row("sram", "read", 16, 4, 1, 0, "")], 0, "class 'sram' is one of the tool's own"),
        (COLUMNS, [row("s", "read", 16, 4, 1, 5, ""), row("s", "write", 16, 4, 1, 6, "")], 1, "area_um2 of s at"),
        (COLUMNS, [row("s", "read", 16, 4, 1, 0, ""), row("s", "write", 16, 8, 1, 0, "")], -1, "has no 'write'"),
    ],
)
def test_rows_that_cannot_be_are_refused(
    columns: list[str], rows: list[Mapping[str, str]], at: int, message: str
) -> None:
    with pytest.raises(RowError, match=message) as error:
        own_classes(columns, rows)
    assert error.value.row == at
