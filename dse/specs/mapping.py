"""`arch_specs/*.mapping.yaml` -> `Mapping` -> `Plan`: how a workload runs on an architecture.

A file may extend another one and offer options; `Mapping.plan` merges what was chosen and parses the result. Keep lists
add up when merged, where `-Q` takes tensor Q out of the list; everything else is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from collections.abc import Mapping as Dict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dse.specs.parameters import Located, locate
from dse.specs.source import Key, Source, SpecModel, read_yaml, validate
from dse.wording import allowed

_TOKEN = re.compile(r"(?P<variable>[a-z][a-z0-9]*)(?::(?P<factor>.+))?\Z")
STALL = "stall"


class _Einsum(SpecModel):
    unit: str | None = None
    loops: dict[str, list[str]] = {}
    spatial: dict[str, str | list[str]] = {}
    keep: dict[str, list[str]] = {}
    accumulate_over: list[str] = []
    imperfect: list[str] = []


class _Spill(SpecModel):
    memory: str
    share: Any
    tensors: list[str]


class _Phase(SpecModel):
    name: str = ""
    loops: dict[str, list[str]] = {}
    steps: list[dict[str, Any]]


class _Patch(SpecModel):
    about: str = ""
    parameters: dict[str, Any] = {}
    set: dict[str, Any] = {}
    loops: dict[str, list[str]] = {}
    capacity: dict[str, Any] = {}
    unchecked: list[str] = []
    share_space: list[list[str]] = []
    spill: list[_Spill] = []
    einsums: dict[str, _Einsum] = {}
    phases: list[_Phase] = []
    uncharged: dict[str, list[str]] = {}


class _File(_Patch):
    name: str
    extends: str | None = None
    architecture: str | None = None
    workload: str | None = None
    options: dict[str, dict[str, Any]] = {}
    published: dict[str, Any] = {}


@dataclass(frozen=True)
class LoopToken:
    """A loop as written: `p:P0` has a factor, `p` takes what the other loops over its rank leave."""

    variable: str
    factor: Located | None
    source: Source
    key: Key


@dataclass(frozen=True)
class LargestDivisor:
    """A factor that is not written but found: the largest divisor of `of` with which `fits` holds every tile kept in it."""

    of: Located
    fits: str
    source: Source
    key: Key


@dataclass(frozen=True)
class Overflow:
    """A share that is found: of what a phase keeps in a memory, the part that the memory cannot hold."""

    of: str
    source: Source
    key: Key


@dataclass(frozen=True)
class EinsumPlan:
    """How one Einsum runs: its unit, its own loops by memory, loops by axis, tensors kept by memory (None: by default), and
    rank variables whose loops may cover more than there is."""

    name: str
    unit: str
    loops: Dict[str, tuple[LoopToken, ...]]
    spatial: Dict[str, tuple[LoopToken, ...]]
    keep: Dict[str, tuple[str, ...]]
    accumulate_over: tuple[str, ...]
    imperfect: tuple[str, ...] = ()


@dataclass(frozen=True)
class SpillPlan:
    """Tensors of which a share does not fit in `memory` and lives in the next memory outside."""

    memory: str
    share: Located
    tensors: tuple[str, ...]
    key: Key


@dataclass(frozen=True)
class StepPlan:
    """Einsums by unit that run side by side, or a stall that every unit waits for."""

    work: Dict[str, tuple[str, ...]]
    stall: Located | None
    key: Key


@dataclass(frozen=True)
class PhasePlan:
    """Steps one after another that share the memories' bandwidth, and loops of their own; phases do not overlap."""

    name: str
    loops: Dict[str, tuple[LoopToken, ...]]
    steps: tuple[StepPlan, ...]

    @property
    def einsums(self) -> tuple[str, ...]:
        """Einsums of the phase, in the order of its steps."""
        return tuple(name for step in self.steps for names in step.work.values() for name in names)


@dataclass(frozen=True)
class Plan:
    """One concrete mapping: every option chosen, every expression parsed."""

    name: str
    parameters: Dict[str, Located | LargestDivisor | Overflow]
    hardware: Dict[str, Located]
    loops: Dict[str, tuple[LoopToken, ...]]
    capacity: Dict[str, Located]
    unchecked: tuple[str, ...]
    share_space: tuple[tuple[str, ...], ...]
    spills: tuple[SpillPlan, ...]
    einsums: Dict[str, EinsumPlan]
    phases: tuple[PhasePlan, ...]
    uncharged: Dict[str, tuple[str, ...]]
    source: Source

    def uses(self, name: str, given: Collection[str]) -> bool:
        """Whether a parameter matters to anything where those `given` are set: loops, capacities, shares or stalls."""
        reading = {
            other
            for other, value in self.parameters.items()
            if isinstance(value, Located) and name in value.expression.names and other not in given
        }
        return any(name in each.expression.names for each in self.expressions()) or any(
            self.uses(other, given) for other in reading
        )

    def expressions(self) -> list[Located]:
        """Every expression outside the parameters."""
        tokens = [token for group in self.loops.values() for token in group]
        tokens += [token for phase in self.phases for group in phase.loops.values() for token in group]
        for own in self.einsums.values():
            tokens += [token for group in (*own.loops.values(), *own.spatial.values()) for token in group]
        return [
            *(token.factor for token in tokens if token.factor is not None),
            *self.capacity.values(),
            *(spill.share for spill in self.spills),
            *self.stalls(),
        ]

    def shared_loops(self, einsum: str, memory: str) -> tuple[LoopToken, ...]:
        """Loops at a memory that all Einsums share, or those of an Einsum's phase, outermost first."""
        own = [phase.loops.get(memory, ()) for phase in self.phases if einsum in phase.einsums]
        return tuple(token for group in (self.loops.get(memory, ()), *own) for token in group)

    def stalls(self) -> list[Located]:
        """The stalls of all phases."""
        return [step.stall for phase in self.phases for step in phase.steps if step.stall is not None]


@dataclass(frozen=True)
class Mapping:
    """A mapping file, merged with what it extends; options not yet chosen."""

    name: str
    about: str
    architecture: str | None
    workload: str | None
    data: Dict[str, Any]
    options: Dict[str, Dict[str, Any]]
    published: Dict[str, Any]
    source: Source

    def plan(self, choices: Dict[str, str] | None = None, *, published: bool = False) -> Plan:
        """The mapping with one choice for each option (the first where none is given), and as published or not.

        Raises SpecError for an option or choice that does not exist.
        """
        chosen = (published, *sorted((choices or {}).items()))
        if chosen not in self._plans:
            self._plans[chosen] = self._merged(choices or {}, published=published)
        return self._plans[chosen]

    @cached_property
    def _plans(self) -> dict[Any, Plan]:
        return {}

    def _merged(self, choices: Dict[str, str], *, published: bool) -> Plan:
        for name in choices:
            if name not in self.options:
                raise self.source.error(("options",), f"unknown option {name!r}; {allowed(name, self.options)}")
        data, source = dict(self.data), self.source
        for name, alternatives in self.options.items():
            choice = choices.get(name, next(iter(alternatives)))
            if choice not in alternatives:
                raise self.source.error(
                    ("options", name), f"{name} has no choice {choice!r}; {allowed(choice, alternatives)}"
                )
            data, source = _merge(data, source, alternatives[choice] or {}, source, ("options", name, choice))
        if published:
            data, source = _merge(data, source, self.published, source, ("published",))
        return _parse(self.name, validate(_Patch, data, source), source)


def load_mapping_file(path: Path, find: Callable[[str, Path], Path]) -> Mapping:
    """Read a mapping file and what it extends; `find` gives the path of a mapping by name. Raises SpecError."""
    return _load(path, find, ())


def mapping_from(data: Dict[str, Any], shown: str) -> Mapping:
    """A mapping from what a file of it would say; `shown` stands for the file in errors. Raises SpecError."""
    source = Source(shown)
    file = validate(_File, dict(data), source)
    own = {key: value for key, value in data.items() if key in _Patch.model_fields}
    return Mapping(file.name, file.about, file.architecture, file.workload, own, {}, {}, source)


def _load(path: Path, find: Callable[[str, Path], Path], chain: tuple[Path, ...]) -> Mapping:
    data, source = read_yaml(path)
    file = validate(_File, data, source)
    own = {key: value for key, value in data.items() if key in _Patch.model_fields and value is not None}
    options = {name: dict(alternatives) for name, alternatives in file.options.items()}
    architecture, workload, published = file.architecture, file.workload, dict(file.published)
    if file.extends:
        if path.resolve() in chain:
            raise source.error(("extends",), f"{file.name} extends itself")
        try:
            base_path = find(file.extends, path)
        except LookupError as error:
            raise source.error(("extends",), str(error)) from None
        base = _load(base_path, find, (*chain, path.resolve()))
        own, merged = _merge(dict(base.data), base.source, own, source, ())
        options = {**{name: dict(choices) for name, choices in base.options.items()}, **options}
        published = published or dict(base.published)
        kept = {key: place for key, place in base.source.places.items() if key[:1] in (("options",), ("published",))}
        source = Source(source.path, {**kept, **merged.places, **source.places})
        architecture, workload = architecture or base.architecture, workload or base.workload
    for name, alternatives in options.items():
        if not alternatives:
            raise source.error(("options", name), f"option {name!r} has no choices")
        for choice, patch in alternatives.items():
            _check_patch(patch or {}, source, ("options", name, choice))
    _check_patch(published, source, ("published",))
    return Mapping(file.name, file.about, architecture, workload, own, options, published, source)


def _check_patch(patch: Any, source: Source, prefix: Key) -> None:
    places = {key[len(prefix) :]: place for key, place in source.places.items() if key[: len(prefix)] == prefix}
    validate(_Patch, patch, Source(source.path, places))


def _merge(
    base: dict[str, Any], source: Source, patch: Dict[str, Any], patch_source: Source, prefix: Key
) -> tuple[dict[str, Any], Source]:
    """`base` with `patch` laid over it; keys keep the place they came from."""
    places = dict(source.places)

    def lay(under: Any, over: Any, key: Key) -> Any:
        if isinstance(under, dict) and isinstance(over, dict):
            merged = dict(under)
            for name, value in over.items():
                if (place := patch_source.places.get((*prefix, *key, name))) is not None:
                    places[*key, name] = place
                merged[name] = lay(merged.get(name), value, (*key, name))
            return merged
        start = 0
        if (
            len(key) == 4
            and key[0] == "einsums"
            and key[2] == "keep"
            and isinstance(under, list)
            and isinstance(over, list)
        ):
            dropped = {str(tensor)[1:] for tensor in over if str(tensor).startswith("-")}
            start = len(under)
            result = [tensor for tensor in under if tensor not in dropped] + [
                tensor for tensor in over if tensor not in under and str(tensor)[1:] not in dropped
            ]
        else:
            result = over
        depth = len(prefix) + len(key)
        for inner, place in patch_source.places.items():
            if inner[:depth] == (*prefix, *key) and len(inner) > depth:
                first = inner[depth]
                moved = first + start if isinstance(first, int) else first
                places[*key, moved, *inner[depth + 1 :]] = place
        return result

    return lay(base, patch, ()), Source(source.path, places)


def _parse(name: str, file: _Patch, source: Source) -> Plan:
    einsums = {}
    for einsum, written in file.einsums.items():
        key: Key = ("einsums", einsum)
        if written.unit is None:
            raise source.error(key, f"{einsum} has no unit to run on")
        einsums[einsum] = EinsumPlan(
            einsum,
            written.unit,
            {memory: _tokens(tokens, source, (*key, "loops", memory)) for memory, tokens in written.loops.items()},
            {axis: _tokens(tokens, source, (*key, "spatial", axis)) for axis, tokens in written.spatial.items()},
            {memory: tuple(tensors) for memory, tensors in written.keep.items()},
            tuple(written.accumulate_over),
            tuple(written.imperfect),
        )
    return Plan(
        name=name,
        parameters={
            label: _parameter(value, source, ("parameters", label)) for label, value in file.parameters.items()
        },
        hardware={label: locate(value, source, ("set", label)) for label, value in file.set.items()},
        loops={memory: _tokens(tokens, source, ("loops", memory)) for memory, tokens in file.loops.items()},
        capacity={memory: locate(value, source, ("capacity", memory)) for memory, value in file.capacity.items()},
        unchecked=tuple(file.unchecked),
        share_space=tuple(tuple(tensors) for tensors in file.share_space),
        spills=tuple(
            SpillPlan(
                spill.memory,
                locate(spill.share, source, ("spill", number, "share")),
                tuple(spill.tensors),
                ("spill", number),
            )
            for number, spill in enumerate(file.spill)
        ),
        einsums=einsums,
        phases=tuple(_phase(phase, source, ("phases", number)) for number, phase in enumerate(file.phases)),
        uncharged={einsum: tuple(what) for einsum, what in file.uncharged.items()},
        source=source,
    )


def _parameter(value: Any, source: Source, key: Key) -> Located | LargestDivisor | Overflow:
    if not isinstance(value, dict):
        return locate(value, source, key)
    if set(value) == {"largest_divisor_of", "fits"}:
        return LargestDivisor(
            locate(value["largest_divisor_of"], source, (*key, "largest_divisor_of")), str(value["fits"]), source, key
        )
    if set(value) == {"overflow_of"}:
        return Overflow(str(value["overflow_of"]), source, key)
    raise source.error(
        key,
        f"{key[-1]}: a value that is found is {{largest_divisor_of: EXPRESSION, fits: MEMORY}} or {{overflow_of: MEMORY}}, "
        f"found keys {', '.join(value) or 'none'}",
    )


def _tokens(written: str | Sequence[str], source: Source, key: Key) -> tuple[LoopToken, ...]:
    tokens = []
    for number, text in enumerate([written] if isinstance(written, str) else written):
        at = key if isinstance(written, str) else (*key, number)
        match = _TOKEN.match(text.strip())
        if match is None:
            raise source.error(at, f"loop {text!r}: write a rank variable, with a factor if it takes a part: p or p:P0")
        factor = locate(match["factor"], source, at) if match["factor"] else None
        if factor is not None and not factor.expression.names:
            factor.size({})
        tokens.append(LoopToken(match["variable"], factor, source, at))
    return tuple(tokens)


def _phase(phase: _Phase, source: Source, key: Key) -> PhasePlan:
    steps = []
    for number, step in enumerate(phase.steps):
        at = (*key, "steps", number)
        if not step:
            raise source.error(at, "a step names units and their Einsums, or a stall")
        work = {}
        for unit, names in step.items():
            if unit == STALL:
                continue
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise source.error((*at, unit), f"{unit}: a list of Einsums, found {names!r:.60}")
            work[unit] = tuple(names)
        stall = locate(step[STALL], source, (*at, STALL)) if STALL in step else None
        if stall and work:
            raise source.error(at, "a stall is a step of its own")
        steps.append(StepPlan(work, stall, at))
    loops = {memory: _tokens(tokens, source, (*key, "loops", memory)) for memory, tokens in phase.loops.items()}
    return PhasePlan(phase.name, loops, tuple(steps))
