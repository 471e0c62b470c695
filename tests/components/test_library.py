"""Energy and area of component classes against the published reference tables.

Source: energy and area reference tables of the evaluation artifact of Nayak et al., MICRO 2024 (45 nm, 16-bit values),
rounded there to 1e-6 pJ.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from dse.components.library import CLASSES, TableConventions, price_component
from dse.components.tables import ComponentError

PUBLISHED = TableConventions(scale_registers=False, use_banks=False, round_energies=True)
MIB = 8 * 2**20


@pytest.mark.parametrize(
    ("name", "attributes", "energies", "area"),
    [
        ("sram", {"capacity": 16 * MIB, "width": 4096}, {"read": 12512.760572, "write": 15751.460572}, 84201374.5226),
        ("sram", {"capacity": 32 * MIB, "width": 4096}, {"read": 23854.664592, "write": 27097.564592}, 175717186.15744),
        ("register_file", {"depth": 12, "width": 16}, {"read": 2.190435, "write": 1.902435}, None),
        ("register_file", {"depth": 32, "width": 16}, {"read": 2.194455, "write": 1.906455}, None),
        ("register_file", {"depth": 4, "width": 16}, {"read": 2.182395, "write": 1.894395}, None),
        ("register_file", {"depth": 16, "width": 16}, {"read": 2.190435, "write": 1.902435}, None),
        ("fp_mac", {"width": 16}, {"mac": 17.1645, "add": 8.3395, "multiply": 8.825}, 1545.0),
        ("fp_max", {"width": 16}, {"max": 0.028036}, 49.28944),
        ("fp_divider", {"width": 16}, {"divide": 36.251153}, 542650 / 8 * 0.35),
        ("fp_exp", {"width": 16}, {"exp": 94.6475}, 8240.0),
        ("dram", {"type": "hbm2", "width": 64}, {"read": 249.6, "write": 249.6}, 0.0),
    ],
)
def test_published_tables(
    name: str, attributes: dict[str, object], energies: dict[str, float], area: float | None
) -> None:
    component = price_component(CLASSES[name], attributes, PUBLISHED)
    assert dict(component.energy_pj) == pytest.approx(energies, abs=1e-9)
    if area is not None:
        assert component.area_um2 == pytest.approx(area, rel=1e-12)


def test_adders_scale_with_width_and_multipliers_with_its_square() -> None:
    narrow, wide = (
        price_component(CLASSES["fp_mac"], {"width": width}, TableConventions()).energy_pj for width in (8, 32)
    )
    assert wide["add"] / narrow["add"] == pytest.approx(4)
    assert wide["multiply"] / narrow["multiply"] == pytest.approx(16)


def test_small_register_files_cost_less_only_where_they_are_scaled() -> None:
    """Storage energy scales by width/32 and (depth/64)^0.78, area by width/32 and depth/64; address generators do not."""
    size = {"depth": 4, "width": 16}
    unscaled = price_component(CLASSES["register_file"], size, TableConventions(scale_registers=False))
    scaled = price_component(CLASSES["register_file"], size, TableConventions(scale_registers=True))
    address_pj, address_um2 = 0.000276038 + 2 * 0.0040197174, 2 * 2 * 5.81742
    assert scaled.energy_pj["write"] - address_pj == pytest.approx(64 * 0.02947 * 0.5 * (4 / 64) ** 0.78, rel=1e-12)
    assert scaled.energy_pj["read"] - scaled.energy_pj["write"] == pytest.approx(
        32 * 0.009 * 0.5 * (4 / 64) ** 0.78, rel=1e-12
    )
    assert (scaled.area_um2 - address_um2) / (unscaled.area_um2 - address_um2) == pytest.approx(0.5 * 4 / 64, rel=1e-12)


def test_registers_shrink_with_their_words_as_asked() -> None:
    """Accelergy's Aladdin plug-in has the power 0.78; with 0 a register file of any depth is charged as 64 words."""
    size = {"depth": 4, "width": 32}
    by_default, same, whole, linear = (
        price_component(CLASSES["register_file"], {**size, **own}, TableConventions()).energy_pj["write"]
        for own in ({}, {"depth_exponent": 0.78}, {"depth_exponent": 0}, {"depth_exponent": 1})
    )
    address_pj = 0.000276038 + 2 * 0.0040197174
    assert by_default == same
    assert whole - address_pj == pytest.approx(64 * 0.02947, rel=1e-12)
    assert linear - address_pj == pytest.approx(4 * 0.02947, rel=1e-12)


def test_large_register_files_are_the_same_either_way() -> None:
    size = {"depth": 128, "width": 64}
    either = [
        price_component(CLASSES["register_file"], size, TableConventions(scale_registers=scale))
        for scale in (False, True)
    ]
    assert either[0] == either[1]


def test_attributes_may_be_arrays() -> None:
    depths = np.array([4, 12, 32, 128])
    together = price_component(CLASSES["register_file"], {"depth": depths, "width": 16}, TableConventions())
    for number, depth in enumerate(depths):
        alone = price_component(CLASSES["register_file"], {"depth": int(depth), "width": 16}, TableConventions())
        assert together.energy_pj["read"][number] == pytest.approx(alone.energy_pj["read"], rel=1e-15)


def test_every_class_states_the_actions_that_it_prices() -> None:
    samples = {
        "width": 16,
        "depth": 64,
        "capacity": 16 * MIB,
        "type": "hbm2",
        "banks": 1,
        "ports": 1,
        "depth_exponent": 0.78,
    }
    for name, kind in CLASSES.items():
        own = {"sram": {"width": 4096}, "relative_memory": {"type": "buffer"}}.get(name, {})
        attributes = {**{key: samples[key] for key in kind.attributes}, **own}
        component = price_component(kind, attributes, TableConventions())
        assert tuple(component.energy_pj) == kind.actions
        assert all(math.isfinite(energy) and energy > 0 for energy in component.energy_pj.values())
        assert component.source


def test_an_unknown_dram_is_refused() -> None:
    with pytest.raises(
        ComponentError, match="unknown DRAM type 'ddr9'; allowed: lpddr4, lpddr, ddr3, gddr5, hbm2, relative"
    ):
        price_component(CLASSES["dram"], {"type": "ddr9", "width": 64}, TableConventions())
