"""`arch_specs/*.mapspace.yaml` -> `Mapspace`: what a person demands of the mappings that the mapper may choose from.

Demands at the top hold for every Einsum that has the ranks and tensors they name; those under `einsums` hold for one.
A slot is a memory (its temporal loops) or an axis (its spatial ones). A demand on a slot holds on units that have it:
name the `unit` where another one could run the Einsum too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from dse.specs.architecture import Architecture
from dse.specs.parameters import Located, locate
from dse.specs.quantity import Quantity
from dse.specs.source import Key, Source, SpecModel, read_yaml, validate
from dse.specs.workload import Workload

ALL = "all"
"""Instead of a list of tensors: every tensor of the Einsum; of imperfect ranks: every one that may be."""

OBJECTIVES: Mapping[str, tuple[str, ...]] = {
    "energy": ("energy", "latency", "capacity"),
    "latency": ("latency", "energy", "capacity"),
    "edp": ("edp", "energy", "latency", "capacity"),
    "dram": ("dram", "energy", "latency", "capacity"),
}
"""What may be minimised, and what breaks ties in turn: energy in pJ, latency in s, DRAM traffic and the capacity used of
the outermost bounded memory in bytes."""

_BOUND = re.compile(r"(?P<relation><=|>=)\s*(?P<bound>.+)\Z")
_RANGE = re.compile(r"(?P<least>.+?)\s*\.\.\s*(?P<most>.+)\Z")


class _Demands(SpecModel):
    unit: str | None = None
    keep: dict[str, Any] = {}
    bypass: dict[str, Any] = {}
    ranks: dict[str, list[str]] = {}
    factors: dict[str, dict[str, Any]] = {}
    order: dict[str, list[str]] = {}
    utilization: float | None = Field(default=None, strict=True)
    imperfect: Any = None


class _File(_Demands):
    name: str
    about: str = ""
    architecture: str | None = None
    workload: str | None = None
    fuse: list[list[str]] = []
    einsums: dict[str, _Demands] = {}


@dataclass(frozen=True)
class FactorDemand:
    """Bounds of a factor as written: `4` (just that), `<= 4`, `>= 4` or `2..4`."""

    least: Located | None
    most: Located | None


@dataclass(frozen=True)
class Demands:
    """What is demanded of one Einsum's mapping; every entry has the key that it stands at."""

    unit: str | None
    keep: Mapping[str, tuple[str, ...]]
    bypass: Mapping[str, tuple[str, ...]]
    ranks: Mapping[str, tuple[str, ...]]
    factors: Mapping[tuple[str, str], FactorDemand]
    order: Mapping[str, tuple[str, ...]]
    utilization: float | None
    key: Key
    imperfect: tuple[str, ...] | None = None


@dataclass(frozen=True)
class MapspaceSpec:
    """A file of demands: those on every Einsum, and on some by name; `groups` are those to be fused, if any."""

    name: str
    about: str
    architecture: str | None
    workload: str | None
    common: Demands
    einsums: Mapping[str, Demands]
    source: Source
    groups: tuple[tuple[str, ...], ...] = ()

    def demands(self, einsum: str) -> list[Demands]:
        """What holds for an Einsum, its own demands last."""
        return [self.common, *([self.einsums[einsum]] if einsum in self.einsums else [])]


FREE = MapspaceSpec("free", "", None, None, Demands(None, {}, {}, {}, {}, {}, None, ()), {}, Source("no constraints"))
"""Nothing demanded."""


def load_mapspace_file(path: Path) -> MapspaceSpec:
    """Read and check one file of demands. Raises SpecError."""
    data, source = read_yaml(path)
    file = validate(_File, data, source)
    einsums = {name: _demands(written, source, ("einsums", name)) for name, written in file.einsums.items()}
    common = _demands(file, source, ())
    groups = tuple(tuple(group) for group in file.fuse)
    return MapspaceSpec(file.name, file.about, file.architecture, file.workload, common, einsums, source, groups)


def _demands(written: _Demands, source: Source, key: Key) -> Demands:
    def named(section: str, what: str, at: Key, names: Any) -> tuple[str, ...]:
        if names != ALL and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise source.error(at, f"{section}: a list of {what}, or all; found {names!r:.60}")
        return (ALL,) if names == ALL else tuple(names)

    def tensors(section: str, lists: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        return {memory: named(section, "tensors", (*key, section, memory), names) for memory, names in lists.items()}

    factors = {}
    for slot, ranks in written.factors.items():
        for rank, value in ranks.items():
            factors[slot, rank] = _factor(value, source, (*key, "factors", slot, rank))
    for memory, order in written.order.items():
        for number, rank in enumerate(order):
            if rank in order[:number]:
                raise source.error((*key, "order", memory, number), f"order: {rank!r} stands there twice for {memory}")
    share = written.utilization
    if share is not None and not 0 <= share <= 1:
        raise source.error((*key, "utilization"), f"utilization is from 0 to 1, found {share:g}")
    return Demands(
        written.unit,
        tensors("keep", written.keep),
        tensors("bypass", written.bypass),
        {slot: tuple(ranks) for slot, ranks in written.ranks.items()},
        factors,
        {memory: tuple(ranks) for memory, ranks in written.order.items()},
        share,
        key,
        None
        if written.imperfect is None
        else named("imperfect", "rank variables", (*key, "imperfect"), written.imperfect),
    )


def _factor(value: Any, source: Source, key: Key) -> FactorDemand:
    text = str(value).strip()
    if match := _BOUND.match(text):
        bound = locate(match["bound"], source, key)
        return FactorDemand(bound, None) if match["relation"] == ">=" else FactorDemand(None, bound)
    if match := _RANGE.match(text):
        return FactorDemand(locate(match["least"], source, key), locate(match["most"], source, key))
    exact = locate(value, source, key)
    return FactorDemand(exact, exact)


def factor_bounds(demand: FactorDemand, values: Mapping[str, Quantity]) -> tuple[int, int | None]:
    """Least and most of a factor in numbers (None: as much as there is). Raises SpecError."""
    least = 1 if demand.least is None else int(demand.least.size(values))
    if demand.most is None:
        return least, None
    most = int(demand.most.size(values))
    if most < least:
        raise demand.most.source.error(
            demand.most.key, f"{demand.most.name}: no factor is {least} at least and {most} at most"
        )
    return least, most


def check_mapspace(spec: MapspaceSpec, workload: Workload, architecture: Architecture) -> None:
    """Check every Einsum, unit, memory, axis, rank variable and tensor that is named. Raises SpecError."""
    einsums = {einsum.name: einsum for einsum in workload.cascade.computed}
    for name in spec.einsums:
        spec.source.check_known(name, einsums, ("einsums", name), "Einsum", f"of {workload.name}")
    for number, group in enumerate(spec.groups):
        if not group:
            raise spec.source.error(("fuse", number), "fuse: a group names one Einsum or more")
        for place, name in enumerate(group):
            spec.source.check_known(name, einsums, ("fuse", number, place), "Einsum", f"of {workload.name}")
    for demands, own in [
        (spec.common, einsums),
        *((each, {name: einsums[name]}) for name, each in spec.einsums.items()),
    ]:
        variables = {variable for einsum in own.values() for variable in einsum.variables}
        tensors = {access.tensor for einsum in own.values() for access in (einsum.output, *einsum.inputs)}
        for key, kind, name in _named(demands):
            known = {
                "unit": list(architecture.units),
                "memory": list(architecture.memories),
                "memory or axis": _slots(architecture),
                "rank variable": variables,
                "tensor": [*tensors, ALL],
            }[kind]
            spec.source.check_known(name, known, key, kind)


def _slots(architecture: Architecture) -> list[str]:
    return [*architecture.memories, *(axis for unit in architecture.units.values() for axis in unit.axes)]


def _named(demands: Demands) -> Iterator[tuple[Key, str, str]]:
    """Every name that stands in some demands: its key, what it is the name of, and itself."""
    key = demands.key
    if demands.unit is not None:
        yield (*key, "unit"), "unit", demands.unit
    for section in ("keep", "bypass"):
        for memory, names in getattr(demands, section).items():
            yield (*key, section, memory), "memory", memory
            for number, name in enumerate(names):
                yield (*key, section, memory, number), "tensor", name
    for slot, ranks in demands.ranks.items():
        yield (*key, "ranks", slot), "memory or axis", slot
        for number, rank in enumerate(ranks):
            yield (*key, "ranks", slot, number), "rank variable", rank
    for slot, rank in demands.factors:
        yield (*key, "factors", slot), "memory or axis", slot
        yield (*key, "factors", slot, rank), "rank variable", rank
    for number, rank in enumerate(demands.imperfect or ()):
        if rank != ALL:
            yield (*key, "imperfect", number), "rank variable", rank
    for memory, ranks in demands.order.items():
        yield (*key, "order", memory), "memory", memory
        for number, rank in enumerate(ranks):
            yield (*key, "order", memory, number), "rank variable", rank
