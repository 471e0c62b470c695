"""Pareto fronts of tables: which rows no other row is at least as good as, in every way that counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dse.specs.source import SpecError
from dse.wording import allowed

if TYPE_CHECKING:
    import pandas as pd


def pareto_rows(costs: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which rows of costs (n, metrics), all to be small, are on the front; of equal rows all are.

    Rows are looked at in ascending order of their sum of ranks, so that a row that beats many comes early: each that is
    kept drops all it beats in one comparison. The time is n log n plus n times the size of the front.
    """
    if np.isnan(costs).any():
        raise ValueError("a cost is no number")
    ranks = np.stack([np.unique(column, return_inverse=True)[1] for column in costs.T], axis=1)
    order = np.argsort(ranks.sum(axis=1), kind="stable")
    ranks = ranks[order]
    alive = np.arange(len(ranks))
    keep = np.zeros(len(ranks), dtype=bool)
    while len(alive):
        leader = ranks[alive[0]]
        same = (ranks[alive] == leader).all(axis=1)
        keep[alive[same]] = True
        beaten = (ranks[alive] >= leader).all(axis=1)
        alive = alive[~beaten]
    found = np.zeros(len(ranks), dtype=bool)
    found[order] = keep
    return found


def pareto_front(frame: pd.DataFrame, minimize: Sequence[str] = (), maximize: Sequence[str] = ()) -> pd.DataFrame:
    """The rows that no other row beats: none is as good in every column and better in one. Equal rows all stay.

    Raises SpecError for no column, or one that is not there or holds no numbers.
    """
    columns = [*minimize, *maximize]
    if not columns:
        raise SpecError("a Pareto front is over one column or more; give minimize or maximize")
    for column in columns:
        if column not in frame:
            raise SpecError(f"no column {column!r}; {allowed(column, map(str, frame.columns))}")
    try:
        costs = np.concatenate(
            [frame[list(minimize)].to_numpy(dtype=float), -frame[list(maximize)].to_numpy(dtype=float)], axis=1
        )
    except (ValueError, TypeError):
        raise SpecError(f"a Pareto front is over numbers; {', '.join(columns)} hold others") from None
    if np.isnan(costs).any():
        raise SpecError("a row has no value in one of the columns")
    return frame[pareto_rows(costs)]
