"""Component classes from hwcomponents: against its own numbers where it is installed, and a stand-in for it elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dse.components.estimators import estimated_class
from dse.components.library import TableConventions
from dse.components.tables import ComponentError
from dse.specs.architecture import load_architecture_file
from dse.specs.source import SpecError

Write = Callable[[str, object], Path]

CHIP: dict[str, Any] = {
    "name": "chip",
    "clock": "1 GHz",
    "technology": "22 nm",
    "estimators": {
        "off_chip": {
            "model": "LPDDR4",
            "actions": {"read": "read", "write": "write"},
            "attributes": {"width": "width"},
        },
        "adder": {"model": "AladdinAdder", "actions": {"sum": "add"}, "attributes": {"width": "width"}},
    },
    "memories": {"DRAM": {"class": "off_chip", "width": "64 bit", "bandwidth": "16 GB/s"}},
    "units": {
        "array": {
            "path": ["DRAM", {"x": 4}],
            "components": {"adder": {"class": "adder", "width": "16 bit"}},
            "ops": {"add": {"sum": 1}},
        }
    },
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A stand-in whose adder of w bits at t metres takes w*t joules; what it was asked for."""
    found: list[dict[str, Any]] = []

    def get_model(name: str, attributes: dict[str, Any], actions: list[str]) -> Any:
        found.append(attributes)
        if name != "AladdinAdder":
            raise RuntimeError("no model for it\nLogs:\n|  | TypeError: must be real number\n|  | Traceback")
        energy = attributes["width"] * attributes["tech_node"]
        return SimpleNamespace(add=lambda: SimpleNamespace(energy=energy), area=3e-12, leak_power=2e-6)

    module = ModuleType("hwcomponents")
    module.get_model = get_model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hwcomponents", module)
    return found


def test_figures_are_in_pj_um2_and_mw_and_each_size_is_asked_for_once(asked: list[dict[str, Any]]) -> None:
    kind = estimated_class("AladdinAdder", {"sum": "add"}, {"width": "width"}, {"kept": "as it is"})
    widths = np.array([8, 16, 8, 32])
    found = kind.price({"width": widths}, TableConventions(), 22)
    np.testing.assert_allclose(found.energy_pj["sum"], widths * 22e-9 * 1e12, rtol=1e-12)
    np.testing.assert_allclose(found.area_um2, [3.0] * 4, rtol=1e-12)
    np.testing.assert_allclose(found.leakage_mw, [2e-3] * 4, rtol=1e-12)
    assert [each["width"] for each in asked] == [8, 16, 32]
    assert all(each["tech_node"] == pytest.approx(22e-9, rel=1e-12) and each["kept"] == "as it is" for each in asked)
    assert kind.price({"width": 8}, TableConventions(), 45).energy_pj["sum"] == pytest.approx(8 * 45e3, rel=1e-12)


def test_what_a_model_cannot_give_is_one_line(asked: list[dict[str, Any]]) -> None:
    kind = estimated_class("Nope", {"read": "read", "write": "write"}, {"width": "width"}, {})
    assert kind.actions == ("read", "write")
    with pytest.raises(ComponentError) as error:
        kind.price({"width": 8}, TableConventions(), 22)
    assert str(error.value) == "hwcomponents has no Nope of tech_node 2.2e-08, width 8: TypeError: must be real number"


def test_without_the_package_the_file_and_line_say_what_to_install(
    write_spec: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hwcomponents", None)
    with pytest.raises(
        SpecError, match=r"chip\.yaml:5: hwcomponents is not installed: pip install 'dse\[hwcomponents\]'"
    ):
        load_architecture_file(write_spec("chip.yaml", CHIP))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sram": CHIP["estimators"]["adder"]}, "class 'sram' is there already"),
        ({"mine": {"model": "X", "actions": {}}}, "actions: name one or more"),
        ({"mine": {"model": "X", "actions": {"a": "b"}, "attributes": {"widht": "w"}}}, "unknown attribute 'widht'"),
        ({"mine": {"model": "X"}}, "estimators.mine"),
    ],
)
def test_mistakes_are_refused(
    write_spec: Write, asked: list[dict[str, Any]], change: dict[str, Any], message: str
) -> None:
    data = {**CHIP, "estimators": {**CHIP["estimators"], **change}}
    with pytest.raises(SpecError, match=message):
        load_architecture_file(write_spec("chip.yaml", data))
    assert not asked


def test_a_chip_costs_what_its_estimators_say(write_spec: Write) -> None:
    """LPDDR4 is 8 pJ a bit in hwcomponents' CACTI tables; Aladdin's adder comes to its own figure, scaled by it."""
    hwcomponents = pytest.importorskip("hwcomponents", reason="hwcomponents needs Python 3.12 and an installation")
    pytest.importorskip("hwcomponents_library")
    chip = load_architecture_file(write_spec("chip.yaml", CHIP))
    adder = hwcomponents.get_model("AladdinAdder", {"tech_node": 22e-9, "width": 16})
    kinds = chip.classes
    found = kinds["adder"].price({"width": 16}, TableConventions(), 22)
    assert found.energy_pj["sum"] == pytest.approx(adder.add().energy * 1e12, rel=1e-12)
    assert found.area_um2 == pytest.approx(adder.area * 1e12, rel=1e-12)
    assert found.source.startswith("hwcomponents 1.")
    assert kinds["off_chip"].price({"width": 64}, TableConventions(), 22).energy_pj["read"] == pytest.approx(512)
