"""Checking one spec file of any kind, without running anything."""

from __future__ import annotations

from pathlib import Path

from dse.model.names import check_names
from dse.specs.architecture import load_architecture_file
from dse.specs.library import SUFFIXES, find, load_architecture, load_workload
from dse.specs.mapping import Mapping, load_mapping_file
from dse.specs.mapspace import check_mapspace, load_mapspace_file
from dse.specs.source import SpecError, read_yaml
from dse.specs.study import load_study_file
from dse.specs.workload import load_workload_file
from dse.studies.run import accountings


def check_file(path: Path) -> str:
    """Check a spec file; its kind shows in its keys. Returns what it is. Raises SpecError with every fault found."""
    data, source = read_yaml(path)
    if "designs" in data or "sweep" in data:
        accountings(load_study_file(path))
        return "a study"
    if "units" in data or "memories" in data:
        load_architecture_file(path)
        return "an architecture"
    if path.name.endswith(SUFFIXES["mapspaces"]):
        spec = load_mapspace_file(path)
        named = [getattr(spec, key) for key in ("architecture", "workload")]
        if None in named:
            raise spec.source.error((), "keys 'architecture' and 'workload' are missing: what these demands are for")
        check_mapspace(spec, load_workload(named[1], path), load_architecture(named[0], path))
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


def _check_mapping(mapping: Mapping, path: Path) -> None:
    """Check the names of every choice against the architecture and workload that the mapping is for."""
    for key in ("architecture", "workload"):
        if getattr(mapping, key) is None:
            raise mapping.source.error((), f"key {key!r} is missing: the one this mapping is written for")
    try:
        architecture, workload = (
            load_architecture(str(mapping.architecture), path),
            load_workload(str(mapping.workload), path),
        )
    except SpecError as error:
        raise mapping.source.error(("architecture",), str(error)) from None
    for published in (False, True):
        check_names(workload, architecture, mapping.plan(published=published))
    for option, alternatives in mapping.options.items():
        for choice in alternatives:
            for published in (False, True):
                check_names(workload, architecture, mapping.plan({option: choice}, published=published))
