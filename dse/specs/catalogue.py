"""What ships, by kind and name: for listing, and for printing a spec as it is written."""

from __future__ import annotations

import re

from dse.specs.library import MODELS_FILE, find, library_folder, load_models, names
from dse.specs.source import SpecError, read_yaml
from dse.wording import allowed

KINDS = ("archs", "mappings", "mapspaces", "workloads", "studies", "models")


def catalogue(kind: str | None = None) -> list[dict[str, str]]:
    """A row per shipped spec: kind, name and what it is about. Raises SpecError for an unknown kind."""
    if kind is not None and kind not in KINDS:
        raise SpecError(f"unknown kind {kind!r}; {allowed(kind, KINDS)}")
    rows = []
    for each in KINDS if kind is None else (kind,):
        if each == "models":
            for name, parameters in load_models().items():
                rows.append(
                    {
                        "kind": each,
                        "name": name,
                        "about": ", ".join(f"{key} {value.expression.text}" for key, value in parameters.items()),
                    }
                )
            continue
        for name in names(each):
            data, _ = read_yaml(find(each, name))
            rows.append({"kind": each, "name": name, "about": _first_sentence(str(data.get("about", "")))})
    return rows


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[a-z0-9)])\.\s", text, maxsplit=1)[0].removesuffix(".")


def text_of(name: str) -> str:
    """The shipped files called `name`, as written: architecture, mapping, workload, study, or a model's row.

    Raises SpecError for an unknown name.
    """
    parts = []
    for kind in KINDS[:-1]:
        if name in names(kind):
            path = find(kind, name)
            parts.append(f"# {path.parent.name}/{path.name}\n{path.read_text(encoding='utf-8')}")
    if name in load_models():
        text = (library_folder("workloads") / MODELS_FILE).read_text(encoding="utf-8")
        parts.append("".join(line for line in text.splitlines(keepends=True) if line.startswith((f"{name}:", "#"))))
    if not parts:
        known = {each for kind in KINDS[:-1] for each in names(kind)} | set(load_models())
        raise SpecError(f"nothing ships under {name!r}; {allowed(name, known)}")
    return "\n".join(parts)
