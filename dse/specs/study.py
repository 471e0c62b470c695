"""`studies/*.yaml` -> `Study`: which designs are priced at which points, under which accounting, and what is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field

from dse.specs.architecture import Architecture
from dse.specs.choices import MODEL_AXIS, ChoiceTable, load_choices
from dse.specs.library import (
    default_mapping,
    default_mapspace,
    find,
    load_architecture,
    load_mapping,
    load_mapspace,
    load_models,
    load_workload,
)
from dse.specs.mapping import Mapping as MappingSpec
from dse.specs.mapspace import FREE, OBJECTIVES, MapspaceSpec, check_mapspace
from dse.specs.parameters import Located, locate
from dse.specs.quantity import COUNT, Dimension, Quantity
from dse.specs.search import Search, WrittenSearch, check_search
from dse.specs.sensitivity import Sensitivity, WrittenSensitivity, check_sensitivity
from dse.specs.source import Key, Source, SpecError, SpecModel, read_yaml, validate
from dse.specs.workload import Workload
from dse.wording import allowed

Loaded = TypeVar("Loaded")

TOTALS = (
    "latency_s", "energy_pj", "dram_bytes", "area_um2", "compute_s", "memory_s",
    "operations", "peak_per_s", "dram_bytes_per_s",
)  # fmt: skip
"""Columns of the results that every design has."""

RESERVED = (
    *TOTALS, "design", "accounting", "workload", "einsum", "unit", "cycles", "utilization", "point", "feasible",
    "speedup", "energy", "proven", "mappings", "priced", "part", "component",
)  # fmt: skip
"""Columns of the results, which no axis may be called like."""


class _Map(SpecModel):
    objective: str = "energy"
    mapspace: str | None = None


class _Part(SpecModel):
    workload: str
    mapping: str | None = None
    map: _Map | None = None
    choices: str | None = None
    options: dict[str, str] = {}


class _Design(SpecModel):
    architecture: str
    workload: str | None = None
    mapping: str | None = None
    map: _Map | None = None
    choices: str | None = None
    options: dict[str, str] = {}
    parts: dict[str, _Part] = {}
    parameters: dict[str, Any] = {}
    label: str | None = None
    colour: str | None = Field(default=None, pattern=r"^#[0-9A-Fa-f]{6}$")


class _PublishedMean(SpecModel):
    design: str
    baseline: str
    speedup: float = Field(gt=0, allow_inf_nan=False)
    energy: float = Field(gt=0, allow_inf_nan=False)


class _Figure(SpecModel):
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    title: str
    kind: Literal["bars", "lines", "pareto", "breakdown", "roofline"] = "bars"
    value: str = "latency_s"
    x: str | None = None
    color: str | None = None
    by: Literal["einsum", "part", "component"] | None = None
    share: bool = False
    design: str | None = None
    model: str | None = None
    at: dict[str, Any] = {}
    baseline: str | None = None
    accounting: str | None = None


class _File(SpecModel):
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    about: str = ""
    sweep: dict[str, list[Any]]
    designs: dict[str, _Design]
    accounting: list[str] | dict[str, dict[str, bool]] = ["corrected"]
    baselines: list[str] = []
    reference: list[_PublishedMean] = []
    figures: list[_Figure] = []
    search: WrittenSearch | None = None
    sensitivity: WrittenSensitivity | None = None


@dataclass(frozen=True)
class MapSearch:
    """A mapping that is searched at every point: what is minimised, and what is demanded of it."""

    objective: str
    mapspace: MapspaceSpec


@dataclass(frozen=True)
class Part:
    """A workload of a design and its mapping - or a search for it; `name` is empty where it is the design's only one."""

    name: str
    architecture: Architecture
    workload: Workload
    mapping: MappingSpec | MapSearch
    choices: ChoiceTable | None
    options: Mapping[str, str]

    @property
    def mapping_options(self) -> Mapping[str, Mapping[str, Any]]:
        """Options that its mapping offers, by name; a searched one offers none."""
        return {} if isinstance(self.mapping, MapSearch) else self.mapping.options

    @cached_property
    def parameter_dimensions(self) -> dict[str, Dimension]:
        """Every parameter that may be set by name, and the dimension of its value."""
        own: Mapping[str, Any]
        if isinstance(self.mapping, MapSearch):
            own = {part: None for split in self.workload.cascade.partition.values() for part in split[1:]}
        else:
            own = self.mapping.plan(self.options).parameters
        found = {name: value.dimension for name, value in self.architecture.resolve().values.items()}
        for name, written in {**self.workload.parameters, **self.workload.ranks, **own}.items():
            found[name] = COUNT
            if isinstance(written, Located) and not written.expression.names:
                found[name] = written.quantity({}).dimension
        return found


@dataclass(frozen=True)
class Design:
    """A named architecture with what runs on it, one part after the other, and parameters of its own.

    `label` and `colour` (#RRGGBB; None: the next free one) say how figures show it.
    """

    name: str
    architecture: Architecture
    parts: tuple[Part, ...]
    parameters: Mapping[str, Located]
    label: str
    colour: str | None

    @property
    def workload(self) -> str:
        """What it computes, by name."""
        return " + ".join(part.workload.name for part in self.parts)

    @cached_property
    def mapping_options(self) -> dict[str, Mapping[str, Any]]:
        """Options that its mappings offer, by name."""
        return {name: choices for part in self.parts for name, choices in part.mapping_options.items()}

    @cached_property
    def parameter_dimensions(self) -> dict[str, Dimension]:
        """Every parameter that may be set by name, and the dimension of its value."""
        return {name: each for part in self.parts for name, each in part.parameter_dimensions.items()}


@dataclass(frozen=True)
class PublishedMean:
    """A published mean to print beside ours."""

    design: str
    baseline: str
    speedup: float
    energy: float


@dataclass(frozen=True)
class Figure:
    """A figure to draw: `value` is a result column, or `speedup` or `energy` relative to `baseline`.

    A breakdown stacks what the value comes to `by` Einsum, part or component, or their `share` of the whole. `design`,
    `model` and `at` (values of axes) say which rows are drawn.
    """

    name: str
    title: str
    kind: str
    value: str
    x: str | None
    color: str | None
    by: str | None
    share: bool
    design: str | None
    model: str | None
    at: Mapping[str, Any]
    baseline: str | None
    accounting: str | None


@dataclass(frozen=True)
class Study:
    """A checked study. `sweep` holds the axes in order; `accounting` its switches by name, None for a preset."""

    name: str
    about: str
    sweep: Mapping[str, tuple[Any, ...]]
    models: Mapping[str, Mapping[str, Located]]
    designs: Mapping[str, Design]
    accounting: Mapping[str, Mapping[str, bool] | None]
    baselines: Sequence[str]
    reference: Sequence[PublishedMean]
    figures: Sequence[Figure]
    data: Mapping[str, Any]
    source: Source = field(repr=False)
    search: Search | None = None
    sensitivity: Sensitivity | None = None


def load_study_file(path: Path) -> Study:
    """Read and check one study file and everything it names. Raises SpecError."""
    data, source = read_yaml(path)
    file = validate(_File, data, source)
    if not file.designs:
        raise source.error(("designs",), "designs: a study prices at least one design")
    designs = {name: _design(name, written, source, path) for name, written in file.designs.items()}
    labels: dict[str, str] = {}
    for name, design in designs.items():
        if design.label in labels:
            raise source.error(
                ("designs", name, "label"),
                f"{labels[design.label]} and {name} are both called {design.label!r} in figures",
            )
        labels[design.label] = name
    models = load_models(path) if MODEL_AXIS in file.sweep else {}
    sweep = {axis: _axis(axis, values, designs, models, source) for axis, values in file.sweep.items()}
    for name, written in file.designs.items():
        parts = []
        for part in designs[name].parts:
            own, key = _written_part(written, part.name), _part_key(name, part.name)
            table = None
            if own.choices is not None:
                table = load_choices(
                    path.parent / own.choices,
                    tuple(sweep),
                    part.parameter_dimensions,
                    part.mapping_options,
                    source,
                    (*key, "choices"),
                )
            parts.append(replace(part, choices=table))
        designs[name] = replace(designs[name], parts=tuple(parts))
    for number, baseline in enumerate(file.baselines):
        source.check_known(baseline, designs, ("baselines", number), "design")
    references = []
    for number, entry in enumerate(file.reference):
        source.check_known(entry.design, designs, ("reference", number, "design"), "design")
        source.check_known(entry.baseline, file.baselines, ("reference", number, "baseline"), "baseline")
        references.append(PublishedMean(**entry.model_dump()))
    figures = [_figure(entry, number, file, designs, source) for number, entry in enumerate(file.figures)]
    for number, figure in enumerate(figures):
        if figure.name in [each.name for each in figures[:number]]:
            raise source.error(("figures", number, "name"), f"a second figure called {figure.name}")
    accounting: dict[str, Mapping[str, bool] | None]
    accounting = dict.fromkeys(file.accounting) if isinstance(file.accounting, list) else dict(file.accounting)
    if not accounting:
        raise source.error(("accounting",), "accounting: a study is counted in at least one way")
    dimensions = {name: design.parameter_dimensions for name, design in designs.items()}
    search, sensitivity = None, None
    if file.sensitivity is not None:
        if file.search is not None:
            raise source.error(("sensitivity",), "a study has a search or a sensitivity, found both")
        searched = [
            name
            for name, design in designs.items()
            if any(isinstance(part.mapping, MapSearch) for part in design.parts)
        ]
        sensitivity = check_sensitivity(file.sensitivity, dimensions, tuple(sweep), searched, tuple(accounting), source)
    if file.search is not None:
        search = check_search(
            file.search,
            dimensions,
            {
                name: {option: tuple(each) for option, each in design.mapping_options.items()}
                for name, design in designs.items()
            },
            {name: (*sweep, *design.parameters) for name, design in designs.items()},
            tuple(accounting),
            source,
        )
    return Study(
        file.name,
        file.about,
        sweep,
        models,
        designs,
        accounting,
        file.baselines,
        references,
        figures,
        data,
        source,
        search,
        sensitivity,
    )


def _written_part(written: _Design, name: str) -> _Part:
    if name:
        return written.parts[name]
    fields = {field: getattr(written, field) for field in _Part.model_fields if field in written.model_fields_set}
    return _Part.model_construct(_fields_set=set(fields), **{**_Part(workload="").model_dump(), **fields})


def _part_key(design: str, part: str) -> Key:
    return ("designs", design, "parts", part) if part else ("designs", design)


def _design(name: str, written: _Design, source: Source, path: Path) -> Design:
    key: Key = ("designs", name)
    if written.parts:
        for field in _Part.model_fields:
            if field in written.model_fields_set:
                raise source.error((*key, field), f"{name}: it has parts, so {field!r} stands in each of them")
    elif written.workload is None:
        raise source.error(key, f"{name}: a design has a workload, or parts with one each")
    architecture = _at(source, (*key, "architecture"), lambda: load_architecture(written.architecture, path))
    parts = tuple(
        _part(name, part, _written_part(written, part), architecture, source, path) for part in written.parts or ("",)
    )
    parameters = {
        label: locate(value, source, (*key, "parameters", label)) for label, value in written.parameters.items()
    }
    design = Design(name, architecture, parts, parameters, written.label or name, written.colour)
    dimensions = design.parameter_dimensions
    for label, located in parameters.items():
        source.check_known(label, dimensions, (*key, "parameters", label), "parameter")
        if not located.expression.names:
            located.quantity({}, dimensions[label])
    return design


def _at(source: Source, key: Key, load: Callable[[], Loaded]) -> Loaded:
    """What `load` gives; a fault that names no file and line of its own gets those of a key."""
    try:
        return load()
    except SpecError as error:
        if all(":" in line and line.split(":")[1].isdigit() for line in error.lines):
            raise
        raise source.error(key, str(error)) from None


def _part(design: str, name: str, written: _Part, architecture: Architecture, source: Source, path: Path) -> Part:
    key = _part_key(design, name)
    workload = _at(source, (*key, "workload"), lambda: load_workload(written.workload, path))
    mapping: MappingSpec | MapSearch
    if "map" in written.model_fields_set:
        mapping = _map_search(design, written, written.map or _Map(), architecture, workload, source, key, path)
    else:
        chosen = written.mapping
        given = _at(
            source,
            (*key, "mapping"),
            lambda: load_mapping(chosen or default_mapping(architecture.name, workload.name), path),
        )
        for option in written.options:
            source.check_known(option, given.options, (*key, "options", option), "option")
        _at(source, (*key, "options"), lambda: given.plan(written.options))
        mapping = given
    return Part(name, architecture, workload, mapping, None, dict(written.options))


def _map_search(
    name: str,
    written: _Part,
    search: _Map,
    architecture: Architecture,
    workload: Workload,
    source: Source,
    key: Key,
    path: Path,
) -> MapSearch:
    for part in ("mapping", "choices", "options"):
        if getattr(written, part):
            raise source.error((*key, part), f"{name}: its mapping is searched ('map'), so it takes no {part!r}")
    source.check_known(search.objective, OBJECTIVES, (*key, "map", "objective"), "objective")
    chosen = search.mapspace
    if chosen is None:
        chosen = default_mapspace(architecture.name, workload.name) or FREE.name

    def load() -> MapspaceSpec:
        spec = FREE if chosen == FREE.name else load_mapspace(chosen, path)
        check_mapspace(spec, workload, architecture)
        return spec

    return MapSearch(search.objective, _at(source, (*key, "map", "mapspace"), load))


def _axis(
    axis: str, values: list[Any], designs: Mapping[str, Design], models: Mapping[str, Any], source: Source
) -> tuple[Any, ...]:
    key: Key = ("sweep", axis)
    if not values:
        raise source.error(key, f"{axis}: the range is empty; give at least one value")
    if axis == MODEL_AXIS:
        values = [
            name for number, value in enumerate(values) for name in _models_like(value, models, source, (*key, number))
        ]
        for number, value in enumerate(values):
            source.check_known(str(value), models, (*key, number), "model")
            if value in values[:number]:
                raise source.error((*key, number), f"{axis}: {value!r} stands in the range twice")
        return tuple(str(value) for value in values)
    dimensions = {name: each for design in designs.values() for name, each in design.parameter_dimensions.items()}
    source.check_known(axis, dimensions, key, "parameter")
    if axis in RESERVED:
        raise source.error(key, f"{axis} names a column of the results; give the parameter another name")
    for name, design in designs.items():
        if axis in design.parameters:
            raise source.error(("designs", name, "parameters", axis), f"{axis} is swept; {name} cannot fix it too")
    found: list[Quantity] = []
    for number, value in enumerate(values):
        located = locate(value, source, (*key, number))
        if located.expression.names:
            raise source.error((*key, number), f"{axis}: a swept value is a number with its unit, found {value!r}")
        located.positive({}, dimensions[axis])
        if located.quantity({}) in found:
            raise source.error((*key, number), f"{axis}: {value!r} stands in the range twice")
        found.append(located.quantity({}))
    return tuple(found)


def _models_like(value: Any, models: Mapping[str, Any], source: Source, key: Key) -> list[Any]:
    """The models that a name with `*` in it stands for, or the name itself. Raises SpecError where it stands for none."""
    if "*" not in str(value):
        return [value]
    found = [name for name in models if fnmatchcase(name, str(value))]
    if not found:
        raise source.error(key, f"no model is called like {value!r}; {allowed(value, models)}")
    return found


def _figure(entry: _Figure, number: int, file: _File, designs: Mapping[str, Design], source: Source) -> Figure:
    key: Key = ("figures", number)
    units = {unit for design in designs.values() for unit in design.architecture.units}
    columns = {*TOTALS, *(f"{kind}_{unit}" for unit in units for kind in ("util", "cycles"))}
    relative = {"speedup", "energy"}
    if entry.value in relative and entry.baseline is None:
        raise source.error(key, f"{entry.name}: {entry.value} is relative; name its baseline")
    source.check_known(entry.value, columns | relative, (*key, "value"), "value")
    if entry.baseline is not None:
        source.check_known(entry.baseline, designs, (*key, "baseline"), "design")
        if len(designs) == 1:
            raise source.error(
                (*key, "baseline"), f"{entry.name}: there is no other design to compare with {entry.baseline}"
            )
    if entry.kind != "bars":
        return _plot(entry, key, file, designs, source)
    for option in ("x", "color", "share", "design", "at"):
        if option in entry.model_fields_set:
            raise source.error((*key, option), f"{entry.name}: bars take no {option!r}; give the figure another kind")
    if entry.by not in (None, "einsum"):
        raise source.error(
            (*key, "by"), f"{entry.name}: bars open by einsum alone; kind: breakdown opens by {entry.by}"
        )
    if entry.by == "einsum" and not entry.value.startswith("util_"):
        raise source.error(
            (*key, "value"),
            f"{entry.name}: by einsum, a figure shows the utilization of a unit, e.g. util_2d; found {entry.value!r}",
        )
    if entry.model is not None:
        source.check_known(
            entry.model,
            [str(value) for value in file.sweep.get(MODEL_AXIS, [])],
            (*key, "model"),
            "model of the sweep",
        )
    if entry.by == "einsum" and entry.model is None and len(file.sweep.get(MODEL_AXIS, [])) > 1:
        raise source.error(key, f"{entry.name}: by einsum, a figure shows one model of the sweep; name it with 'model'")
    axes = [axis for axis in file.sweep if axis != MODEL_AXIS]
    if len(axes) != 1:
        raise source.error(
            key, f"{entry.name}: a figure of bars takes model and one other axis, the sweep has {', '.join(file.sweep)}"
        )
    if entry.accounting is not None:
        source.check_known(entry.accounting, file.accounting, (*key, "accounting"), "accounting")
    return Figure(**entry.model_dump())


PLOTTED: Mapping[str | None, tuple[str, ...]] = {
    "component": ("energy_pj", "area_um2", "count", "bytes"),
    "einsum": ("latency_s", "energy_pj", "dram_bytes", "operations", "cycles"),
    "part": ("latency_s", "energy_pj", "dram_bytes", "operations", "cycles"),
}
"""What a breakdown may show, by what it opens."""


def _plot(entry: _Figure, key: Key, file: _File, designs: Mapping[str, Design], source: Source) -> Figure:
    """A figure of another kind than bars: which rows it draws must be there, and its columns too."""
    axes = list(file.sweep)
    columns = [*TOTALS, "design", "accounting", *axes]
    dimensions = {name: each for design in designs.values() for name, each in design.parameter_dimensions.items()}
    for option in ("x", "color"):
        name = getattr(entry, option)
        if name is not None:
            source.check_known(name, columns, (*key, option), "column")
    for option, known in (("design", designs), ("accounting", file.accounting)):
        name = getattr(entry, option)
        if name is not None:
            source.check_known(name, known, (*key, option), option)
    if entry.model is not None:
        source.check_known(entry.model, map(str, file.sweep.get(MODEL_AXIS, [])), (*key, "model"), "model of the sweep")
    if entry.kind in ("lines", "pareto") and entry.x is None:
        raise source.error(key, f"{entry.name}: {entry.kind} are drawn over a column; name it with 'x'")
    if (entry.kind == "breakdown") != (entry.by is not None):
        raise source.error(key, f"{entry.name}: a breakdown, and nothing else, is 'by' einsum, part or component")
    if entry.by == "part" and not any(written.parts for written in file.designs.values()):
        raise source.error((*key, "by"), f"{entry.name}: no design has parts")
    shown = PLOTTED.get(entry.by, TOTALS)
    if entry.value not in shown:
        message = f"unknown value {entry.value!r} of {entry.kind}; {allowed(entry.value, shown)}"
        raise source.error((*key, "value"), message)
    if entry.kind == "pareto" and entry.x in ("design", "accounting", MODEL_AXIS):
        raise source.error((*key, "x"), f"{entry.name}: a front is over numbers, found {entry.x!r}")
    if entry.by == "part" and entry.design is None and not all(written.parts for written in file.designs.values()):
        raise source.error(key, f"{entry.name}: not every design has parts; name one that has with 'design'")
    if entry.kind == "breakdown":
        fixed = {entry.x, *entry.at, *([MODEL_AXIS] if entry.model else [])}
        free = [axis for axis, values in file.sweep.items() if axis not in fixed and len(values) > 1]
        if free:
            raise source.error(
                key,
                f"{entry.name}: a bar would add up points that differ in {', '.join(free)}; name one of each with 'at'",
            )
    at = {}
    for name, value in entry.at.items():
        source.check_known(name, axes, (*key, "at", name), "axis")
        at[name] = (
            value if name == MODEL_AXIS else locate(value, source, (*key, "at", name)).quantity({}, dimensions[name])
        )
    return Figure(**{**entry.model_dump(), "at": at})


def load_study(name: str) -> Study:
    """A study by shipped name or path. Raises SpecError."""
    try:
        return load_study_file(find("studies", name))
    except LookupError as error:
        raise SpecError(str(error)) from None
