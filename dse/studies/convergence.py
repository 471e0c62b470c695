"""How near a sampler comes to the exact front, by number of trials: its share of the front's hypervolume."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.search.front import pareto_rows
from dse.search.hypervolume import hypervolume, hypervolume_history

MARGIN = 1.1
"""The reference point is this many times the worst of the front in either objective, so that its ends count too
(Ishibuchi et al., "How to specify a reference point in hypervolume calculation", Evolutionary Computation 26(3), 2018)."""
RATIOS = ("hypervolume_ratio", "hypervolume_ratio_log")
"""Of the objectives as they are, and of their logarithms: where they span orders of magnitude, the first is all but decided
by the smallest and the largest designs, and only the second sees the middle of the front."""


def converge(exact: pd.DataFrame, tried: pd.DataFrame) -> pd.DataFrame:
    """Columns `trial` from 1 and `RATIOS` of the trials up to it: two objectives above 0, both to be small, of all
    candidates that can be, and of the trials in their order (infinite where one cannot be)."""
    costs, trials = exact.to_numpy(dtype=float), tried.to_numpy(dtype=float)
    front = costs[pareto_rows(costs)]
    reference = MARGIN * front.max(axis=0)
    columns = {"trial": np.arange(1, len(trials) + 1)}
    shares = (_share(front, trials, reference), _share(np.log(front), np.log(trials), np.log(reference)))
    return pd.DataFrame({**columns, **dict(zip(RATIOS, shares, strict=True))})


def _share(
    front: NDArray[np.float64], trials: NDArray[np.float64], reference: NDArray[np.float64]
) -> NDArray[np.float64]:
    return hypervolume_history(trials, reference) / hypervolume(front, reference)
