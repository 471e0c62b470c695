"""`workloads/*.yaml` -> `Workload`: a checked cascade, the shapes of its ranks, and the width of its values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from dse.cascade.cascade import Cascade, check_einsum, check_iterations, rank_of, variable_of
from dse.cascade.einsum import Einsum
from dse.cascade.parser import CascadeError, parse_access, parse_einsum
from dse.cascade.passes import check_ends
from dse.cascade.reference import REFERENCES, Reference
from dse.specs.parameters import Located, locate, resolve
from dse.specs.quantity import COUNT, INFORMATION, Quantity
from dse.specs.source import Key, Source, SpecModel, read_yaml, validate
from dse.wording import allowed

_REFERENCE = re.compile(r"\s*(?P<output>\w+)\s*=\s*(?P<function>\w+)\s*\((?P<arguments>[\w\s,]+)\)\s*\Z")

RANK_NAME = re.compile(r"[A-Z][A-Z0-9]*\Z")
RANK_OR_TYPE = re.compile(r"[A-Za-z]\w*\Z")
PARAMETER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")


class _File(SpecModel):
    name: str
    about: str = ""
    parameters: dict[str, Any] = {}
    ranks: dict[str, Any]
    partition: dict[str, list[str]] = {}
    iterative: dict[str, str] = {}
    word: Any = "16 bit"
    types: dict[str, Any] = {}
    reference: str | None = None
    overflows: bool = False
    inputs: list[str]
    initial: list[str] = []
    einsums: list[str]


@dataclass(frozen=True)
class Workload:
    """What is computed: a cascade, its parameters (batch, heads, seq_len ...), rank shapes and the bits of a value.

    `types` holds the bits of a value of tensors that differ from the `word`.
    `reference` is what its output must equal; `overflows` says that it is known to overflow on large inputs.
    """

    name: str
    about: str
    cascade: Cascade
    parameters: Mapping[str, Located]
    ranks: Mapping[str, Located]
    word: int
    types: Mapping[str, int]
    source: Source
    data: Mapping[str, Any] = field(repr=False)
    reference: Reference | None = None
    overflows: bool = False

    def parameter_values(self, given: Mapping[str, Quantity]) -> dict[str, Quantity]:
        """Parameters and the shapes of unpartitioned ranks, where `given` replaces parameters or ranks by name."""
        values = resolve(self.parameters, {}, given)
        ranks = resolve(self.ranks, values, given)
        for rank, located in self.ranks.items():
            located.check_dimension(ranks[rank], COUNT)
            located.check_size(ranks[rank].value)
        return {**values, **ranks}

    def shapes(self, values: Mapping[str, Quantity]) -> dict[str, Any]:
        """Shape of every rank, the outermost part of a partitioned rank included; `values` holds the inner parts.

        Where the parts do not divide the rank, the outermost one is rounded down: binding refuses such points.
        """
        shapes = {rank: values[rank].value for rank in self.ranks}
        for rank, parts in self.cascade.partition.items():
            inner: Any = 1
            for part in parts[1:]:
                if part not in values:
                    raise self.source.error(
                        ("partition", rank), f"{part} has no size; give it in the mapping's parameters"
                    )
                shapes[part] = values[part].value
                inner = inner * shapes[part]
            shapes[parts[0]] = shapes[rank] // inner
        return shapes

    def word_bits(self) -> int:
        """Bits of a value, unless its tensor has a type of its own."""
        return self.word

    def bits_of(self, tensor: str) -> int:
        """Bits of a value of a tensor."""
        return self.types.get(tensor, self.word)


def load_workload_file(path: Path) -> Workload:
    """Read and check one workload file. Raises SpecError."""
    data, source = read_yaml(path)
    file = validate(_File, data, source)
    _check_names(file, source)
    cascade = _parse_cascade(file, source)
    parameters = {name: locate(value, source, ("parameters", name)) for name, value in file.parameters.items()}
    ranks = {name: locate(value, source, ("ranks", name)) for name, value in file.ranks.items()}
    reference = None if file.reference is None else _reference(file.reference, cascade, source)
    workload = Workload(
        file.name,
        file.about,
        cascade,
        parameters,
        ranks,
        _value_bits(file.word, source, ("word",)),
        _types(file.types, cascade, source),
        source,
        data,
        reference,
        file.overflows,
    )
    _check_rank_shapes(workload)
    return workload


DATA_TYPES: Mapping[str, int] = {
    "fp64": 64, "fp32": 32, "fp16": 16, "bf16": 16, "fp8": 8, "int32": 32, "int16": 16, "int8": 8, "int4": 4,
}  # fmt: skip
"""Bits of a value by data type."""


def _value_bits(written: Any, source: Source, key: Key) -> int:
    """Bits of a value: a data type, or an amount of data. Raises SpecError."""
    if isinstance(written, str) and written.strip() in DATA_TYPES:
        return DATA_TYPES[written.strip()]
    if isinstance(written, str) and RANK_OR_TYPE.match(written.strip()):
        raise source.error(
            key, f"{key[-1]}: unknown data type {written!r}; {allowed(written, DATA_TYPES)}, or bits, such as 12 bit"
        )
    return int(locate(written, source, key).size({}, INFORMATION))


def _types(written: Mapping[str, Any], cascade: Cascade, source: Source) -> dict[str, int]:
    tensors = {access.tensor for einsum in cascade.einsums for access in (einsum.output, *einsum.inputs)}
    found = {}
    for name, value in written.items():
        source.check_known(name, tensors, ("types", name), "tensor")
        found[name] = _value_bits(value, source, ("types", name))
    for einsum in cascade.einsums:  # a copy that computes nothing holds the same values
        if einsum not in cascade.computed and einsum.inputs and einsum.inputs[0].tensor in found:
            found.setdefault(einsum.output.tensor, found[einsum.inputs[0].tensor])
    return found


def _reference(text: str, cascade: Cascade, source: Source) -> Reference:
    """Parse `AV = attention(Q, K, V)` and check its names. Raises SpecError."""
    key: Key = ("reference",)
    match = _REFERENCE.match(text)
    if match is None:
        raise source.error(key, f"reference: expected OUTPUT = function(INPUT, ...), found {text!r:.60}")
    output, function = match["output"], match["function"]
    arguments = tuple(name.strip() for name in match["arguments"].split(","))
    source.check_known(function, REFERENCES, key, "reference")
    made, given = {einsum.name for einsum in cascade.einsums}, {access.tensor for access in cascade.inputs}
    if output not in made:
        raise source.error(key, f"reference: no Einsum makes {output!r}; {allowed(output, made)}")
    for name in arguments:
        if name not in given:
            raise source.error(key, f"reference: {name!r} is no input; {allowed(name, given)}")
    if len(arguments) != REFERENCES[function].arguments:
        raise source.error(key, f"{function} takes {REFERENCES[function].arguments} inputs, found {len(arguments)}")
    return Reference(output, function, arguments)


def _check_names(file: _File, source: Source) -> None:
    for rank in file.ranks:
        if not RANK_NAME.match(rank):
            raise source.error(
                ("ranks", rank), f"rank {rank!r}: a rank is upper-case letters and digits, such as M or M1"
            )
    for name in file.parameters:
        if not PARAMETER_NAME.match(name) or name in file.ranks:
            raise source.error(("parameters", name), f"parameter {name!r}: letters, digits and _, and no rank's name")
    for rank, parts in file.partition.items():
        source.check_known(rank, file.ranks, ("partition", rank), "rank")
        for part in parts:
            if not RANK_NAME.match(part) or part in file.ranks:
                raise source.error(
                    ("partition", rank), f"part {part!r}: upper-case letters and digits, and not a rank already"
                )
        if len(set(parts)) < len(parts):
            raise source.error(
                ("partition", rank), f"{rank}: each part has a name of its own, found {', '.join(parts)}"
            )
        if len(parts) < 2:
            raise source.error(("partition", rank), f"{rank} is split into two or more parts, found {len(parts)}")


def _parse_cascade(file: _File, source: Source) -> Cascade:
    known = {*file.ranks, *(part for parts in file.partition.values() for part in parts)}
    inputs = []
    for number, text in enumerate(file.inputs):
        try:
            inputs.append(parse_access(text))
        except CascadeError as error:
            raise source.error(("inputs", number), str(error)) from None
        _check_variables(inputs[-1].variables, known, source, ("inputs", number), text)
    parsed: dict[str, list[Einsum]] = {"initial": [], "einsums": []}
    for section, texts in (("initial", file.initial), ("einsums", file.einsums)):
        for number, text in enumerate(texts):
            key = (section, number)
            try:
                einsum = parse_einsum(text, frozenset(known))
            except CascadeError as error:
                raise source.error(key, str(error)) from None
            _check_variables(einsum.variables, known, source, key, text)
            conditions = [side for each in einsum.where for side in (each.left, each.right)]
            for access in (einsum.output, *einsum.inputs):
                for index in (*access.indices, *conditions):
                    for symbol in sorted(
                        {s for p in (index.offset, *(scale for _, scale in index.terms)) for s in p.symbols} - known
                    ):
                        raise source.error(key, f"unknown rank {symbol!r} in {access}; {allowed(symbol, known)}")
            parsed[section].append(einsum)
    if all(einsum.is_view for einsum in parsed["einsums"]):
        raise source.error(("einsums",), "einsums: a cascade has at least one Einsum that computes")
    for number, access in enumerate(inputs):
        if access.tensor in {other.tensor for other in inputs[:number]}:
            raise source.error(("inputs", number), f"input {access.tensor} is declared twice")
    cascade = Cascade(
        tuple(inputs),
        tuple(parsed["einsums"]),
        tuple(parsed["initial"]),
        dict(file.iterative),
        {r: tuple(p) for r, p in file.partition.items()},
    )
    for number in range(len(cascade.initial)):
        _checked(lambda: check_einsum(cascade, number, initial=True), source, ("initial", number))
    for number in range(len(cascade.einsums)):
        _checked(lambda: check_einsum(cascade, number), source, ("einsums", number))
    _checked(lambda: check_iterations(cascade), source, ("iterative",))
    _checked(lambda: check_ends(cascade), source, ("iterative",))
    return cascade


def _checked(check: Any, source: Source, key: Key) -> None:
    try:
        check()
    except CascadeError as error:
        raise source.error(key, str(error)) from None


def _check_variables(variables: tuple[str, ...], known: set[str], source: Source, key: Key, text: str) -> None:
    for variable in variables:
        if variable != variable.lower() or rank_of(variable) not in known:
            raise source.error(
                key,
                f"unknown rank variable {variable!r} in '{text}'; {allowed(variable, set(map(variable_of, known)))}",
            )


def _check_rank_shapes(workload: Workload) -> None:
    """Refuse a tensor that is read over ranks of other shapes than it was made with, at the default parameters."""
    values = workload.parameter_values({})
    sizes = {rank: values[rank].value for rank in workload.ranks}
    made = {
        access.tensor: access for access in (*workload.cascade.inputs, *(e.output for e in workload.cascade.einsums))
    }
    for number, einsum in enumerate(workload.cascade.einsums):
        for access in einsum.inputs:
            for index, declared in zip(access.indices, made[access.tensor].indices, strict=True):
                if not (index.is_plain and declared.is_plain):
                    continue
                here, there = rank_of(index.variables[0]), rank_of(declared.variables[0])
                if here in sizes and there in sizes and not np.all(sizes[here] == sizes[there]):
                    raise workload.source.error(
                        ("einsums", number),
                        f"{access}: {access.tensor} has rank {there} of {sizes[there]} there, {here} is {sizes[here]} (in '{einsum.text}')",
                    )
                if (here in sizes) != (there in sizes):
                    raise workload.source.error(
                        ("einsums", number),
                        f"{access}: {access.tensor} was made over rank {there}, read over {here} (in '{einsum.text}')",
                    )


def write_workload(workload: Workload, cascade: Cascade, name: str, about: str) -> str:
    """A workload file as text: this workload with another cascade, name and description."""
    data = {**workload.data, "name": name, "about": about}
    data["iterative"] = dict(cascade.iterative)
    data["initial"] = [str(einsum) for einsum in cascade.initial]
    data["einsums"] = [str(einsum) for einsum in cascade.einsums]
    order = [key for key in _File.model_fields if data.get(key)]
    return yaml.safe_dump({key: data[key] for key in order}, sort_keys=False, width=10_000, allow_unicode=True)
