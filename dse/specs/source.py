"""YAML text -> plain data that remembers where each key stood, and the one error that spec files give.

Aliases, tags and repeated keys are refused: the first two have no use here, the third loses what a person wrote.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from dse.wording import allowed

Key = tuple[str | int, ...]
"""Where a value stands: the keys and list positions that lead to it."""

MAX_BYTES = 1_000_000
MAX_DEPTH = 30


class SpecError(Exception):
    """Input that is wrong: one line per fault, each `FILE:LINE: what is wrong; what is allowed`."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


@dataclass(frozen=True)
class Source:
    """The file a spec came from and the (file, line) of each of its keys; keys merged from elsewhere keep their own."""

    path: str
    places: Mapping[Key, tuple[str, int]] = field(default_factory=dict)

    def place(self, key: Key) -> str:
        """`FILE:LINE` of a key, or of the nearest key around it."""
        for length in range(len(key), -1, -1):
            if key[:length] in self.places:
                path, line = self.places[key[:length]]
                return f"{path}:{line}"
        return f"{self.path}:1"

    def error(self, key: Key, message: str) -> SpecError:
        """A SpecError that points to a key."""
        return SpecError(f"{self.place(key)}: {message}")

    def check_known(self, name: str, names: Iterable[str], key: Key, what: str, where: str = "") -> None:
        """Refuse a name that is not among `names`, e.g. an "axis" (`what`) "of 2d" (`where`). Raises SpecError."""
        known = list(names)
        if name not in known:
            raise self.error(key, f"unknown {what} {name!r}{where and ' '}{where}; {allowed(name, known)}")


def read_csv(path: Path, source: Source, key: Key) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """The columns of a CSV file, and its rows with their lines. Raises SpecError: at `key` where it cannot be read."""
    shown = show_path(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            records = [(reader.line_num, row) for row in reader]
            columns = list(reader.fieldnames or [])
    except (OSError, ValueError, csv.Error) as error:
        raise source.error(key, f"cannot read {shown}: {error}") from None
    if len(set(columns)) < len(columns):
        raise SpecError(f"{shown}:1: a column stands there twice: {', '.join(columns)}")
    for line, row in records:
        if None in row or None in row.values():
            raise SpecError(f"{shown}:{line}: {len(columns)} values expected, as the first line names")
    return columns, records


def read_yaml(path: Path) -> tuple[dict[str, Any], Source]:
    """Read one mapping from a YAML file. Raises SpecError with file and line."""
    shown = show_path(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SpecError(f"{shown}:1: cannot be read: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise SpecError(f"{shown}:1: {len(raw):,} bytes; a spec has at most {MAX_BYTES:,}")
    try:
        text = raw.decode("utf-8")
        loader = _Loader(text)
        try:
            for event in yaml.parse(text, Loader=_Loader):
                if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) or getattr(event, "tag", None):
                    line = event.start_mark.line + 1 if event.start_mark else 1
                    raise SpecError(f"{shown}:{line}: anchors, aliases and tags are not used here; write the value out")
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except UnicodeDecodeError:
        raise SpecError(f"{shown}:1: not UTF-8 text") from None
    except RecursionError:
        raise SpecError(f"{shown}:1: nested more than {MAX_DEPTH} deep") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SpecError(f"{shown}:{line}: not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise SpecError(f"{shown}:1: not YAML: {str(error).splitlines()[0]}") from None
    places: dict[Key, tuple[str, int]] = {}
    data = _plain(node, (), places, shown)
    if not isinstance(data, dict):
        raise SpecError(f"{shown}:1: a spec is a mapping of keys to values, found {_kind(data)}")
    return data, Source(shown, places)


def show_path(path: Path) -> str:
    """A path as a person would type it from here."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


class SpecModel(BaseModel):
    """A frozen part of a spec; an unknown key is refused with the keys that exist."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        names = [info.alias or name for name, info in cls.model_fields.items()]
        if not isinstance(data, dict):
            raise PydanticCustomError(
                "shape",
                "expected keys and values ({keys}), found {found}",
                {"keys": ", ".join(names), "found": _kind(data)},
            )
        for key in data:
            if key not in names:
                raise PydanticCustomError(
                    "unknown_key", "unknown key '{key}'; {allowed}", {"key": str(key), "allowed": allowed(key, names)}
                )
        return data


Model = TypeVar("Model", bound=BaseModel)


def validate(model: type[Model], data: Any, source: Source) -> Model:
    """Plain data -> a checked model. Raises SpecError with a line for each fault."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        lines = []
        for fault in error.errors(include_url=False):
            key: Key = tuple(part for part in fault["loc"] if part != "[key]")
            context = fault.get("ctx", {})
            if fault["type"] == "unknown_key":
                lines.append(f"{source.place((*key, context['key']))}: {_path(key)}{fault['msg']}")
            elif fault["type"] == "missing":
                lines.append(f"{source.place(key[:-1])}: {_path(key[:-1])}key {key[-1]!r} is missing")
            elif fault["type"] == "shape":
                lines.append(f"{source.place(key)}: {_path(key)}{fault['msg']}")
            else:
                expected = _EXPECTED.get(fault["type"], fault["msg"][:1].lower() + fault["msg"][1:])
                lines.append(f"{source.place(key)}: {_path(key)}{expected}, found {_kind(fault['input'])}")
        raise SpecError(*dict.fromkeys(lines)) from None


_EXPECTED = {
    "dict_type": "expected keys and values",
    "list_type": "expected a list",
    "string_type": "expected text",
    "float_type": "expected a number",
    "float_parsing": "expected a number",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
}


def _path(key: Key) -> str:
    return ".".join(str(part) for part in key) + ": " if key else ""


_FastLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_FastLoader):  # type: ignore[misc]
    """Scalars as YAML 1.2 reads them: `on`, `y` and `1:30` are text, `1e9` is a number."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"true|false", "tf"),
    ("null", r"~|null|", ["~", "n", ""]),
    ("int", r"[-+]?[0-9]{1,40}", "-+0123456789"),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", "-+0123456789."),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), list(_first))


def _plain(node: yaml.Node | None, key: Key, places: dict[Key, tuple[str, int]], path: str) -> Any:
    if node is None:
        return None
    line = node.start_mark.line + 1
    places.setdefault(key, (path, line))
    if len(key) > MAX_DEPTH:
        raise SpecError(f"{path}:{line}: nested more than {MAX_DEPTH} deep")
    if isinstance(node, yaml.MappingNode):
        data: dict[Any, Any] = {}
        for name_node, value_node in node.value:
            at = name_node.start_mark.line + 1
            if not isinstance(name_node, yaml.ScalarNode):
                raise SpecError(f"{path}:{at}: a key is a plain word")
            name = name_node.value
            if name in data:
                raise SpecError(f"{path}:{at}: key {name!r} stands here twice")
            places[*key, name] = (path, at)
            data[name] = _plain(value_node, (*key, name), places, path)
        return data
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*key, number), places, path) for number, item in enumerate(node.value)]
    kind = node.tag.rpartition(":")[2]
    if kind == "bool":
        return node.value == "true"
    if kind == "null":
        return None
    if kind == "int":
        return int(node.value)
    return float(node.value) if kind == "float" else node.value


def _kind(data: Any) -> str:
    if isinstance(data, dict):
        return "keys and values"
    if isinstance(data, list):
        return "a list"
    return "nothing" if data is None else repr(data)[:60]
