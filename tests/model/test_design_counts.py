"""The shipped designs against Timeloop's counts for the published mappings. Source: tests/data/README.md."""

from __future__ import annotations

import pandas as pd
import pytest

from dse.model.accounting import PUBLISHED
from dse.model.evaluate import evaluate
from dse.model.traffic import einsum_counts
from dse.specs.study import load_study
from dse.studies.run import Point, choices_at, parameters_at
from tests.conftest import golden

COUNTS = golden("design_counts.csv")
GROUPS = [(key, rows) for key, rows in COUNTS.groupby(["design", "model", "seq_len"])]


@pytest.mark.parametrize(("key", "rows"), GROUPS, ids=["-".join(map(str, key)) for key, _ in GROUPS])
def test_every_row_of_the_published_mappings_comes_from_their_specs(
    key: tuple[str, str, int], rows: pd.DataFrame
) -> None:
    design_name, model, seq_len = key
    study = load_study("fusemax_attention")
    design = study.designs[design_name]
    (part,) = design.parts
    lengths = {length.value: length for length in study.sweep["seq_len"]}
    point = Point({"model": model, "seq_len": lengths[seq_len]})
    choices, chosen = choices_at(part, point)
    given = parameters_at(study, design, part, point, chosen)
    result = evaluate(design.architecture, part.workload, part.mapping, given, choices, PUBLISHED)
    kept = 0
    for name, bound in result.binding.einsums.items():
        mine = rows[rows["einsum"] == name]
        counts = einsum_counts(bound, PUBLISHED)
        totals = mine[mine["memory"].isna()].iloc[0]
        steps = result.timings[name].operations // totals["instances"]
        assert steps == totals["cycles"], name
        for row in mine[mine["memory"].notna()].itertuples():
            found = counts[row.memory, row.operand]
            for field in ("reads", "fills", "updates", "capacity", "instances"):
                assert getattr(found, field) == getattr(row, field), (name, row.memory, row.operand, field)
            kept += 1
        assert len(counts) == len(mine) - 1, name
    assert kept == rows["memory"].notna().sum()
