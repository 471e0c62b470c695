"""Checking one spec file of any kind, without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dse.components.library import CLASSES
from dse.model.accounting import CORRECTED
from dse.model.evaluate import component_tables
from dse.model.names import check_names
from dse.specs.architecture import Architecture, load_architecture_file
from dse.specs.library import SUFFIXES, find, load_architecture, load_workload
from dse.specs.mapping import Mapping, load_mapping_file
from dse.specs.mapspace import MapspaceSpec, check_mapspace, factor_bounds, load_mapspace_file
from dse.specs.source import SpecError, read_yaml
from dse.specs.study import load_study_file
from dse.specs.workload import Workload, load_workload_file
from dse.studies.run import accountings


def check_file(path: Path) -> str:
    """Check a spec file; its kind shows in its keys. Returns what it is. Raises SpecError with every fault found."""
    data, source = read_yaml(path)
    if "designs" in data or "sweep" in data:
        accountings(load_study_file(path))
        return "a study"
    if "units" in data or "memories" in data:
        return "; ".join(("an architecture", *_origins(load_architecture_file(path))))
    if path.name.endswith(SUFFIXES["mapspaces"]):
        _check_mapspace(load_mapspace_file(path), path)
        return "demands on mappings"
    if {"phases", "loops", "extends", "architecture", "options"} & set(data) or path.name.endswith(
        SUFFIXES["mappings"]
    ):
        _check_mapping(load_mapping_file(path, lambda name, beside: find("mappings", name, beside)), path)
        return "a mapping"
    if "einsums" in data or "ranks" in data:
        load_workload_file(path)
        return "a workload"
    raise source.error(
        (), "cannot tell what this is: an architecture has units, a mapping phases, a workload ranks, a study designs"
    )


def _origins(architecture: Architecture) -> list[str]:
    """Where the figures of component classes that are not the tool's own come from. Raises SpecError where there are none
    for the sizes that stand in the file."""
    parts = {name: ("", name, spec) for name, spec in architecture.memories.items()}
    for unit in architecture.units.values():
        parts |= {f"{unit.name}.{name}": (unit.name, name, spec) for name, spec in unit.components.items()}
    foreign = {name: (where, own) for name, (where, own, spec) in parts.items() if spec.class_name not in CLASSES}
    if not foreign:
        return []
    tables, _ = component_tables(architecture.resolve(), CORRECTED)
    return [f"{name} from {tables[where][own].source}" for name, (where, own) in foreign.items()]


def _check_mapping(mapping: Mapping, path: Path) -> None:
    """Check the names of every choice against the architecture and workload that the mapping is for."""
    architecture, workload = _written_for(mapping, path)
    for published in (False, True):
        check_names(workload, architecture, mapping.plan(published=published))
    for option, alternatives in mapping.options.items():
        for choice in alternatives:
            for published in (False, True):
                check_names(workload, architecture, mapping.plan({option: choice}, published=published))


def _check_mapspace(spec: MapspaceSpec, path: Path) -> None:
    """Check the names of demands, and that their factors are numbers where parameters have their defaults."""
    architecture, workload = _written_for(spec, path)
    check_mapspace(spec, workload, architecture)
    values = {**architecture.resolve().values, **workload.parameter_values({})}
    for demands in (spec.common, *spec.einsums.values()):
        for demand in demands.factors.values():
            factor_bounds(demand, values)


def _written_for(spec: Mapping | MapspaceSpec, path: Path) -> tuple[Architecture, Workload]:
    """The architecture and workload that a mapping, or demands on one, name. Raises SpecError."""
    for key in ("architecture", "workload"):
        if getattr(spec, key) is None:
            raise spec.source.error((), f"key {key!r} is missing: the one that {spec.name} is written for")
    found: list[Any] = []
    for key, load in (("architecture", load_architecture), ("workload", load_workload)):
        try:
            found.append(load(str(getattr(spec, key)), path))
        except SpecError as error:
            raise spec.source.error((key,), str(error)) from None
    return found[0], found[1]
