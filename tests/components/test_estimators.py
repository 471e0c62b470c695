"""Component classes from hwcomponents: against its own numbers where it is installed, and a stand-in for it elsewhere."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dse.components import estimators
from dse.components.estimators import estimated_class
from dse.components.library import TableConventions
from dse.components.tables import ComponentError
from dse.specs.architecture import load_architecture_file
from dse.specs.source import SpecError
from dse.studies.check import check_file

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


class AladdinAdder:
    """A stand-in for a model: w bits at t metres take w*t joules."""

    component_name = ["Adder", "AladdinAdder"]

    def __init__(self, tech_node: float, width: int, kept: str = "", area: float = 3e-12) -> None:
        self.energy, self.area, self.leak_power = width * tech_node, area, 2e-6

    @classmethod
    def get_action_names(cls) -> list[str]:
        return ["add", "read"]

    def add(self) -> SimpleNamespace:
        return SimpleNamespace(energy=self.energy)


class Wire(AladdinAdder):
    """One without names of its own, which fails as CACTI does."""

    component_name = None  # type: ignore[assignment]


AladdinAdder.__module__ = Wire.__module__ = "hwcomponents_library.aladdin"
VERSIONS = {"hwcomponents": "1.0.114", "hwcomponents_library": "1.0.58"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A stand-in for hwcomponents, which drops attributes that a model does not take, as it does; what it was asked for."""
    found: list[dict[str, Any]] = []

    def get_model(name: str, attributes: dict[str, Any], actions: list[str]) -> Any:
        found.append(attributes)
        if name == "Wire":
            raise RuntimeError("no model for it\nLogs:\n|  | TypeError: must be real number\n|  | Traceback")
        taken = ("tech_node", "width", "kept", "area")
        return AladdinAdder(**{key: value for key, value in attributes.items() if key in taken})

    module = ModuleType("hwcomponents")
    module.get_model = get_model  # type: ignore[attr-defined]
    models = ModuleType("hwcomponents.find_models")
    models.installed_models = lambda: [AladdinAdder, SimpleNamespace(model_cls=Wire)]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hwcomponents", module)
    monkeypatch.setitem(sys.modules, "hwcomponents.find_models", models)
    monkeypatch.setattr(estimators, "_version", VERSIONS.__getitem__)
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
    assert found.source == "hwcomponents 1.0.114, hwcomponents_library 1.0.58, AladdinAdder"
    assert kind.price({"width": 8}, TableConventions(), 45).energy_pj["sum"] == pytest.approx(8 * 45e3, rel=1e-12)


@pytest.mark.parametrize(
    ("model", "action", "fixed", "message"),
    [
        ("Wire", "add", {}, "hwcomponents has no Wire of tech_node 2.2e-08, width 8: TypeError: must be real number"),
        (
            "AladinAdder",
            "add",
            {},
            "hwcomponents has no model 'AladinAdder'; did you mean 'AladdinAdder'? allowed: AladdinAdder, Wire",
        ),
        ("adder", "ad", {}, "hwcomponents's adder has no action 'ad'; did you mean 'add'? allowed: add, read"),
        (
            "Adder",
            "add",
            {"kpet": 1},
            "hwcomponents's AladdinAdder has no attribute 'kpet'; did you mean 'kept'? allowed: area, kept, width",
        ),
        (
            "Adder",
            "add",
            {"area": -1e-12},
            "hwcomponents's AladdinAdder of tech_node 2.2e-08, width 8, area -1e-12 gives -1 for area, not 0 or more",
        ),
        (
            "Adder",
            "add",
            {"area": float("nan")},
            "hwcomponents's AladdinAdder of tech_node 2.2e-08, width 8, area nan gives nan for area, not 0 or more",
        ),
    ],
)
def test_what_a_model_cannot_give_is_one_line(
    asked: list[dict[str, Any]], model: str, action: str, fixed: dict[str, Any], message: str
) -> None:
    kind = estimated_class(model, {"sum": action}, {"width": "width"}, fixed)
    with pytest.raises(ComponentError) as error:
        kind.price({"width": 8}, TableConventions(), 22)
    assert str(error.value) == message


def test_a_class_that_reads_and_writes_is_a_memory() -> None:
    kind = estimated_class("SRAM", {"write": "write", "read": "read"}, {"width": "width"}, {})
    assert kind.actions == ("read", "write")


def test_check_says_whose_figures_they_are_and_refuses_what_cannot_be_priced(
    write_spec: Write, asked: list[dict[str, Any]]
) -> None:
    data = {**CHIP, "estimators": {"adder": CHIP["estimators"]["adder"]}}
    data["memories"] = {"DRAM": {"class": "dram", "type": "lpddr4", "width": "64 bit", "bandwidth": "16 GB/s"}}
    assert check_file(write_spec("chip.yaml", data)) == (
        "an architecture; array.adder from hwcomponents 1.0.114, hwcomponents_library 1.0.58, AladdinAdder"
    )
    data["estimators"] = {"adder": {**CHIP["estimators"]["adder"], "model": "Addr"}}
    with pytest.raises(SpecError, match=r"^\S*chip\.yaml:\d+: adder: hwcomponents has no model 'Addr'"):
        check_file(write_spec("chip.yaml", data))


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
    assert re.fullmatch(r"hwcomponents 1\.\S+, hwcomponents_library 1\.\S+, AladdinAdder", found.source)
    assert kinds["off_chip"].price({"width": 64}, TableConventions(), 22).energy_pj["read"] == pytest.approx(512)
