"""Hypervolume in the plane against a count of unit squares, and the history of a growing set against each set alone."""

from __future__ import annotations

import numpy as np
import pytest

from dse.search.hypervolume import hypervolume, hypervolume_history


def test_of_one_point_it_is_a_rectangle_and_of_none_nothing() -> None:
    reference = np.array([4.0, 5.0])
    assert hypervolume(np.array([[1.0, 2.0]]), reference) == 9.0
    assert hypervolume(np.empty((0, 2)), reference) == 0.0
    assert hypervolume(np.array([[4.0, 0.0], [0.0, 5.0], [9.0, 9.0], [np.inf, 1.0]]), reference) == 0.0


def test_of_a_staircase_it_is_what_it_covers() -> None:
    """(1, 4), (2, 2), (4, 1) up to (5, 5): 4 + 6 + 1, dominated and equal points add nothing."""
    stairs = np.array([[4.0, 1.0], [1.0, 4.0], [2.0, 2.0], [3.0, 3.0], [2.0, 2.0], [2.0, 4.0]])
    assert hypervolume(stairs, np.array([5.0, 5.0])) == 11.0


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_number_of_unit_squares_dominated(seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = rng.integers(0, 14, size=(rng.integers(1, 40), 2)).astype(float)
    reference = np.array([12.0, 11.0])
    corners = [(x, y) for x in range(12) for y in range(11)]
    covered = sum(bool((costs <= corner).all(axis=1).any()) for corner in np.array(corners, dtype=float))
    assert hypervolume(costs, reference) == covered


def test_a_history_is_the_hypervolume_of_each_start() -> None:
    costs = np.random.default_rng(3).integers(0, 14, size=(60, 2)).astype(float)
    costs[7] = np.inf
    reference = np.array([12.0, 11.0])
    expected = [hypervolume(costs[: number + 1], reference) for number in range(len(costs))]
    assert hypervolume_history(costs, reference).tolist() == expected
    assert hypervolume_history(np.empty((0, 2)), reference).shape == (0,)
