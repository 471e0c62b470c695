"""The general model against what Timeloop prints for 40 generic nests, through specs, binding and counting.

Source: tests/data/README.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dse.model.accounting import CORRECTED
from dse.model.evaluate import evaluate
from dse.model.result import Result
from dse.model.traffic import einsum_counts
from dse.specs.library import load_architecture, load_mapping, load_workload
from tests.conftest import DATA, golden

NESTS = json.loads((DATA / "timeloop_nests.json").read_text())
COUNTS = golden("timeloop_counts.csv")
CYCLES = golden("timeloop_cycles.csv").set_index("case")

EXACT_WHERE_TIMELOOP_APPROXIMATES = {
    ("054", "L3", "I", "reads"): 96,
    ("054", "L2", "I", "fills"): 48,
    ("070", "L3", "I", "reads"): 432,
    ("070", "L2", "I", "fills"): 108,
}
"""By enumeration of the nest: Timeloop extrapolates sliding windows (054) and loses reuse where they turn (070)."""

EXACT_CYCLES = {"078": 1888}
"""The exact ceiling, where Timeloop prints one more."""

WORD_BYTES, CLOCK_HZ = 2, 1


def specs_of(nest: dict[str, Any]) -> dict[str, Any]:
    """The three specs of a nest, whose clock is 1 Hz so that seconds are cycles."""
    inputs = [name for name in nest["tensors"] if name != nest["output"]]
    access = {name: f"{name}[{','.join(indices)}]" for name, indices in nest["tensors"].items()}
    operation = "_".join(["mul"] * (len(inputs) - 1) + ["add"])
    workload = {
        "name": "w",
        "ranks": nest["ranks"],
        "inputs": [access[name] for name in inputs],
        "einsums": [f"{access[nest['output']]} = {' * '.join(access[name] for name in inputs)}"],
    }
    memories, path, keep, loops, spatial = {}, [], {}, {}, {}
    for level in nest["levels"]:
        name = level["memory"]
        memory: dict[str, Any] = {"class": "register_file", "depth": level["words"] or 2**40, "width": "16 bit"}
        for key in ("read", "write"):
            if level[f"{key}_words_per_cycle"]:
                memory[f"{key}_bandwidth"] = f"{level[f'{key}_words_per_cycle'] * WORD_BYTES} B/s"
        memories[name] = memory
        path += [name, level["fanout"]]
        keep[name], loops[name] = level["keeps"], level["temporal"]
        spatial.update(level["spatial"])
    unit = {"path": path, "components": {"mac": {"class": "fp_mac", "width": "16 bit"}}, "ops": {operation: {"mac": 1}}}
    architecture = {"name": "a", "clock": f"{CLOCK_HZ} Hz", "memories": memories, "units": {"mac": unit}}
    mapping = {
        "name": "m",
        "einsums": {nest["output"]: {"unit": "mac", "loops": loops, "spatial": spatial, "keep": keep}},
        "phases": [{"steps": [{"mac": [nest["output"]]}]}],
    }
    return {"w.yaml": workload, "a.yaml": architecture, "m.mapping.yaml": mapping}


def evaluated(nest: dict[str, Any], write_spec: Callable[[str, object], Path]) -> Result:
    paths = {name: str(write_spec(name, data)) for name, data in specs_of(nest).items()}
    return evaluate(
        load_architecture(paths["a.yaml"]), load_workload(paths["w.yaml"]), load_mapping(paths["m.mapping.yaml"])
    )


@pytest.mark.parametrize("nest", NESTS, ids=lambda nest: f"{nest['case']}-{nest['problem']}")
def test_counts_and_cycles_are_those_that_timeloop_prints(
    nest: dict[str, Any], write_spec: Callable[[str, object], Path]
) -> None:
    result = evaluated(nest, write_spec)
    bound = result.binding.einsums[nest["output"]]
    counts = einsum_counts(bound, CORRECTED)
    rows = COUNTS[COUNTS["case"] == nest["case"]]
    assert len(rows) == len(counts)
    for row in rows.itertuples():
        found = counts[row.memory, row.tensor]
        for field in ("reads", "fills", "updates", "capacity", "instances"):
            at = (nest["case"], row.memory, row.tensor, field)
            expected = EXACT_WHERE_TIMELOOP_APPROXIMATES.get(at, getattr(row, field))
            assert getattr(found, field) == expected, at
    cycles = CYCLES.loc[nest["case"]]
    assert result.timings[nest["output"]].operations == cycles["operations"]
    assert math.ceil(result.latency_s * CLOCK_HZ) == EXACT_CYCLES.get(nest["case"], cycles["cycles"])


def test_every_nest_and_approximation_is_looked_at() -> None:
    assert len(NESTS) == 40
    assert {case for case, *_ in EXACT_WHERE_TIMELOOP_APPROXIMATES} <= {nest["case"] for nest in NESTS}
