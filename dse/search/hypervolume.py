"""Hypervolume in the plane: the area that a set of costs dominates, up to a reference point (Zitzler and Thiele 1999)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def hypervolume(costs: NDArray[np.float64], reference: NDArray[np.float64]) -> float:
    """Area between costs (n, 2), both to be small, and a reference point (2,); costs beyond it add nothing."""
    inside = costs[(costs < reference).all(axis=1)]
    if not len(inside):
        return 0.0
    inside = inside[np.lexsort((inside[:, 1], inside[:, 0]))]
    lowest = np.minimum.accumulate(inside[:, 1])
    widths = np.diff(inside[:, 0], append=reference[0])
    return float((widths * (reference[1] - lowest)).sum())


def hypervolume_history(costs: NDArray[np.float64], reference: NDArray[np.float64]) -> NDArray[np.float64]:
    """Hypervolume of the first 1, 2, ... n costs: shape (n,)."""
    found = np.zeros(len(costs))
    kept = np.empty((0, 2))
    reached = 0.0
    for number, cost in enumerate(costs):
        if (cost < reference).all() and not (kept <= cost).all(axis=1).any():
            kept = np.vstack([kept[~(kept >= cost).all(axis=1)], cost])
            reached = hypervolume(kept, reference)
        found[number] = reached
    return found
