"""Spec files broken in 300 ways: each is refused in lines that name a file, or works; none shows a traceback."""

from __future__ import annotations

import copy
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from dse.model.evaluate import evaluate
from dse.model.result import GROUPINGS, Result
from dse.specs.library import library_folder, load_architecture, load_mapping, load_workload
from dse.specs.source import SpecError
from dse.specs.study import load_study_file
from dse.studies.check import check_file
from dse.studies.run import run_study

JUNK: list[Any] = [
    None, True, -1, 0, 0.5, 1e30, "", "x", "nonsense", "16 MiB", "940 MHz", "1/0", "__import__('os')", "9**9**9", "p:", ":",
    "p:0", "-Q", [], {}, [[]], {"a": 1}, ["x", "x"], {"x": None}, "A[", "Q[b,h,e,p]", "nan", "inf", "1e999", "\u2603", 10**25, [None],
    "{}", "*a", "P / 0", "rows*rows*rows*rows*rows*rows*rows", "largest_divisor_of", {"largest_divisor_of": "P", "fits": "DRAM"},
]  # fmt: skip

FILES = [
    "arch_specs/fusemax.yaml",
    "arch_specs/flat.yaml",
    "arch_specs/fusemax.mapping.yaml",
    "arch_specs/fusemax_architecture.mapping.yaml",
    "arch_specs/fusemax_cascade.mapping.yaml",
    "arch_specs/flat.mapping.yaml",
    "arch_specs/unfused.mapping.yaml",
    "workloads/attention_1pass.yaml",
    "workloads/attention_3pass.yaml",
    "studies/fusemax_attention.yaml",
]


def places(data: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path into nested data but the root."""
    found = [at] if at else []
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        found += places(value, (*at, key))
    return found


def mutate(data: Any, dice: random.Random) -> Any:
    """The data with one to three keys dropped, renamed, replaced, doubled, swapped or their lists shuffled."""
    data = copy.deepcopy(data)
    for _ in range(dice.randint(1, 3)):
        options = places(data)
        if not options:
            return data
        *path, last = dice.choice(options)
        parent = data
        for key in path:
            parent = parent[key]
        action = dice.choice(["drop", "junk", "junk", "rename", "shuffle", "swap"])
        if action == "drop":
            del parent[last]
        elif action == "junk":
            parent[last] = copy.deepcopy(dice.choice(JUNK))
        elif action == "rename" and isinstance(parent, dict):
            parent[dice.choice(["x", str(last)[:-1], f"{last}s", "steps"])] = parent.pop(last)
        elif action == "shuffle" and isinstance(parent[last], list):
            dice.shuffle(parent[last])
        elif isinstance(parent, dict):
            other = dice.choice(list(parent))
            parent[last], parent[other] = parent[other], parent[last]
    return data


def use(path: Path, name: str) -> None:
    """Check a spec, then do with it what a person would."""
    check_file(path)
    if name.startswith("studies"):
        check_numbers(run_study(load_study_file(path)).frame)
        return
    pairs = {"fusemax": ("fusemax", "attention_1pass"), "fusemax_architecture": ("fusemax", "attention_1pass")}
    pairs |= {
        "fusemax_cascade": ("flat", "attention_1pass"),
        "flat": ("flat", "attention_3pass"),
        "unfused": ("flat", "attention_3pass"),
    }
    stem = Path(name).name.split(".")[0]
    if name.startswith("workloads"):
        design = "fusemax" if stem == "attention_1pass" else "flat"
        open_up(evaluate(load_architecture(design), load_workload(str(path)), load_mapping(design)))
    elif name.endswith(".mapping.yaml"):
        architecture, workload = pairs[stem]
        open_up(evaluate(load_architecture(architecture), load_workload(workload), load_mapping(str(path))))
    else:
        open_up(evaluate(load_architecture(str(path)), load_workload(pairs[stem][1]), load_mapping(stem)))


def open_up(result: Result) -> None:
    """Look at every table of a result."""
    check_numbers(result.to_frame())
    for by in GROUPINGS:
        check_numbers(result.to_frame(by))


def check_numbers(frame: pd.DataFrame) -> None:
    """Every number of what is accepted is finite and none is negative."""
    numbers = frame.select_dtypes("number").to_numpy()
    assert np.isfinite(numbers).all()
    assert (numbers >= 0).all()


@pytest.mark.parametrize("seed", range(300))
def test_a_broken_spec_is_refused_in_lines_that_name_a_file(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    name = FILES[seed % len(FILES)]
    original = library_folder("archs").parent / name
    text = yaml.safe_dump(mutate(yaml.safe_load(original.read_text()), dice), sort_keys=False, allow_unicode=True)
    if dice.random() < 0.15:
        cut = dice.randrange(len(text))
        text = (
            text[:cut]
            + dice.choice(["\t", ":", "[", "}", "\x00", "&a ", "*a", "!!python/object:os ", "'"])
            + text[cut + dice.randint(0, 9) :]
        )
    path = tmp_path / original.name
    path.write_text(text)
    for beside in original.parent.glob("*.csv"):
        (tmp_path / beside.name).write_bytes(beside.read_bytes())
    try:
        use(path, name)
    except SpecError as error:
        assert error.lines
        for line in error.lines:
            assert re.match(r"[^\n]+\.(yaml|csv):\d+: [^\n]+\Z", line), line
