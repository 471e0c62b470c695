"""Finding specs: by name in the shipped YAML libraries, or by path; loaded once per process."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from dse.specs.architecture import Architecture, load_architecture_file
from dse.specs.mapping import Mapping, load_mapping_file
from dse.specs.mapspace import MapspaceSpec, load_mapspace_file
from dse.specs.parameters import Located, locate
from dse.specs.source import SpecError, read_yaml, show_path
from dse.specs.workload import Workload, load_workload_file
from dse.wording import allowed

Spec = TypeVar("Spec")

SUFFIXES = {"mappings": ".mapping.yaml", "mapspaces": ".mapspace.yaml"}
"""Endings of the kinds that stand beside architectures."""
MODELS_FILE = "models.yaml"
FOLDERS = {
    "archs": "arch_specs",
    "mappings": "arch_specs",
    "mapspaces": "arch_specs",
    "workloads": "workloads",
    "studies": "studies",
}


def library_folder(kind: str) -> Path:
    """The folder that ships specs of a kind: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "library" / FOLDERS[kind]
    return installed if installed.is_dir() else package.parent / FOLDERS[kind]


def names(kind: str) -> list[str]:
    """Names of the shipped specs of a kind: archs, mappings, mapspaces, workloads or studies."""
    paths = sorted(library_folder(kind).glob("*.yaml"))
    if kind in SUFFIXES:
        suffix = SUFFIXES[kind]
        return [path.name.removesuffix(suffix) for path in paths if path.name.endswith(suffix)]
    return [path.stem for path in paths if "." not in path.stem and path.name != MODELS_FILE]


def find(kind: str, name: str, beside: Path | None = None) -> Path:
    """The file of a spec: a path as written (relative to the file that names it), or a shipped name.

    Raises LookupError with what is allowed.
    """
    suffix = SUFFIXES.get(kind, ".yaml")
    here = beside.parent if beside else Path.cwd()
    if name.endswith((".yaml", ".yml")) or "/" in name:
        path = here / name
        if _is_file(path):
            return path
        raise LookupError(f"no file {show_path(path)}")
    for folder in ([here] if beside else []) + [library_folder(kind)]:
        path = folder / f"{name}{suffix}"
        if not name.startswith(".") and _is_file(path):
            return path
    singular = {"archs": "architecture", "studies": "study"}.get(kind, kind[:-1])
    raise LookupError(f"unknown {singular} {name!r}; {allowed(name, names(kind))}, or a path to a YAML file")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long for the disk, or with a NUL in it
        return False


def _find(kind: str, name: str, beside: Path | None) -> Path:
    try:
        return find(kind, name, beside)
    except LookupError as error:
        raise SpecError(str(error)) from None


def load_workload(name: str, beside: Path | None = None) -> Workload:
    """A workload by name or path. Raises SpecError."""
    return _loaded(load_workload_file, _find("workloads", name, beside))


def load_architecture(name: str, beside: Path | None = None) -> Architecture:
    """An architecture by name or path. Raises SpecError."""
    return _loaded(load_architecture_file, _find("archs", name, beside))


def load_mapping(name: str, beside: Path | None = None) -> Mapping:
    """A mapping by name or path. Raises SpecError."""
    return _loaded(_load_mapping, _find("mappings", name, beside))


def load_mapspace(name: str, beside: Path | None = None) -> MapspaceSpec:
    """Demands on mappings by name or path. Raises SpecError."""
    return _loaded(load_mapspace_file, _find("mapspaces", name, beside))


def load_models(beside: Path | None = None) -> dict[str, dict[str, Located]]:
    """The table of models: parameters by model name, from `models.yaml` beside a study or the shipped one."""
    own = beside.parent / MODELS_FILE if beside else None
    return _loaded(_load_models, own if own and own.is_file() else library_folder("workloads") / MODELS_FILE)


def _loaded(load: Callable[[Path], Spec], path: Path) -> Spec:
    """A spec from its file: a shipped one once per process, a person's own as it stands now."""
    shipped = path.parent in {library_folder(kind) for kind in FOLDERS}
    return _load_once(load, path) if shipped else load(path)


_load_once = cache(lambda load, path: load(path))


def _load_mapping(path: Path) -> Mapping:
    return load_mapping_file(path, lambda name, beside: find("mappings", name, beside))


def _load_models(path: Path) -> dict[str, dict[str, Located]]:
    data, source = read_yaml(path)
    models: dict[str, dict[str, Located]] = {}
    for name, row in data.items():
        if not isinstance(row, dict):
            raise source.error((name,), f"{name}: a model gives parameters, e.g. {{heads: 12, head_dim: 64}}")
        models[name] = {label: locate(value, source, (name, label)) for label, value in row.items()}
    return models


def default_mapspace(architecture: str, workload: str) -> str | None:
    """The shipped demands on mappings of a workload to an architecture, where there are some."""
    for name in names("mapspaces"):
        spec = load_mapspace(name)
        if spec.architecture == architecture and spec.workload == workload:
            return name
    return None


def default_mapping(architecture: str, workload: str) -> str:
    """The shipped mapping for a workload on an architecture, or on any: the one named after the architecture first.

    Raises SpecError where there is none.
    """
    fitting: dict[str, Any] = {}
    for name in names("mappings"):
        mapping = load_mapping(name)
        if mapping.architecture in (architecture, None) and mapping.workload == workload:
            fitting[name] = mapping
    if not fitting:
        pairs = sorted(
            {f"{load_mapping(name).architecture or 'any'} {load_mapping(name).workload}" for name in names("mappings")}
        )
        raise SpecError(
            f"no shipped mapping runs {workload} on {architecture}; give one (--mapping, or `mapping` in a study); shipped: {', '.join(pairs)}"
        )
    return architecture if architecture in fitting else next(iter(fitting))
