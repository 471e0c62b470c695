"""The mapper against brute force over whole mapspaces of random small problems, and against a known optimum."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dse.search.each import search_all
from dse.search.mapper import map_einsum
from dse.search.mapspace import Mapspace
from dse.search.problem import Problem
from dse.search.run import Run
from dse.search.size import size_of
from dse.specs.mapspace import OBJECTIVES
from tests.search.brute_force import all_costs, all_factors
from tests.search.random_problems import imperfect_problem, random_problem

PROBLEMS = 320
GROUP = 20
ROUNDING = 1e-9


def best_of(costs: Mapping[str, np.ndarray], ranked: tuple[str, ...]) -> dict[str, float]:
    """The lexicographic optimum by metric: each metric in turn over what ties in those before."""
    chosen = np.arange(len(costs["energy"]))
    best = {}
    for metric in ranked:
        values = costs[metric][chosen]
        best[metric] = float(values.min())
        chosen = chosen[values <= best[metric] * (1 + ROUNDING)]
    return best


def check_optima(problem: Problem) -> None:
    """Every objective's optimum is that of brute force, with what breaks ties; none where there is no mapping."""
    costs = all_costs(problem)
    for objective, ranked in OBJECTIVES.items():
        points = map_einsum(problem, objective).points
        if not len(costs["energy"]):
            assert not points, (problem, objective)
            continue
        found = {metric: points[0].costs[metric] for metric in ranked}
        assert found == pytest.approx(best_of(costs, ranked), rel=ROUNDING, abs=1e-12), (problem, objective)


@pytest.mark.parametrize("first", range(0, PROBLEMS, GROUP))
def test_optima_are_those_of_brute_force_for_each_objective_ties_included(first: int) -> None:
    for seed in range(first, first + GROUP):
        problem = random_problem(seed, bypass=seed % 2 == 0)
        check_optima(problem)


@pytest.mark.parametrize("first", range(1000, 1400, 200))
def test_optima_with_imperfect_fan_outs_are_those_of_brute_force(first: int) -> None:
    better = 0
    for problem in filter(None, map(imperfect_problem, range(first, first + 200))):
        costs, divided = all_costs(problem), all_costs(replace(problem, imperfect=frozenset()))
        for objective, ranked in OBJECTIVES.items():
            points = map_einsum(problem, objective).points
            if not len(costs["energy"]):
                assert not points, (problem.einsum, objective)
                continue
            expected = best_of(costs, ranked)
            found = {metric: points[0].costs[metric] for metric in ranked}
            assert found == pytest.approx(expected, rel=ROUNDING, abs=1e-12), (problem.einsum, objective)
            better += not len(divided["energy"]) or expected[ranked[0]] < divided[ranked[0]].min() * (1 - ROUNDING)
    assert better > 5


@pytest.mark.parametrize("free", ["read_pj", "write_pj"])
def test_optima_with_memories_that_cost_nothing_are_those_of_brute_force(free: str) -> None:
    """A tile waits for loops further out whether or not what it moves costs anything."""
    for seed in range(5000, 5016):
        problem = random_problem(seed, bypass=seed % 2 == 0)
        levels = tuple(replace(level, **{free: 0.0}, seconds={}) for level in problem.levels)  # type: ignore[arg-type]
        problem = replace(problem, levels=levels)
        check_optima(problem)


def test_most_random_problems_have_mappings_and_all_kinds_occur() -> None:
    problems = [random_problem(seed, bypass=seed % 2 == 0) for seed in range(PROBLEMS)]
    kinds = {problem.einsum.rsplit(" ", 1)[0] for problem in problems}
    assert kinds >= {"matmul", "batched matmul", "convolution", "strided convolution", "depthwise", "mttkrp"}
    assert {len(problem.levels) for problem in problems} == {2, 3, 4}
    assert sum(bool(map_einsum(problem).points) for problem in problems[:40]) > 30


@pytest.mark.parametrize(
    "metrics", [("energy", "latency"), ("energy", "capacity"), ("dram", "capacity"), ("energy", "latency", "dram")]
)
def test_fronts_are_those_of_brute_force(metrics: tuple[str, ...]) -> None:
    problems = [random_problem(seed, bypass=seed % 2 == 0) for seed in range(400, 425)]
    for problem in [*problems, *filter(None, map(imperfect_problem, range(2600, 2700)))]:
        costs = all_costs(problem)
        points = map_einsum(problem, metrics[0], metrics).points
        table = np.stack([costs[metric] for metric in metrics], axis=1)
        expected = naive_front(np.unique(np.round(table, 9), axis=0))
        found = np.array([[point.costs[metric] for metric in metrics] for point in points]).reshape(-1, len(metrics))
        assert len(found) == len(expected), problem.einsum
        np.testing.assert_allclose(found[np.lexsort(found.T[::-1])], expected, rtol=1e-7)


def naive_front(rows: np.ndarray) -> np.ndarray:
    """Rows that no other row is at most equal to everywhere, sorted."""
    kept = [
        row
        for row in rows
        if not any((other <= row * (1 + ROUNDING)).all() and (other < row * (1 - ROUNDING)).any() for other in rows)
    ]
    front = np.array(kept).reshape(-1, rows.shape[1])
    return front[np.lexsort(front.T[::-1])]


def test_the_size_of_the_space_is_the_number_of_its_mappings() -> None:
    problems = [random_problem(seed, bypass=seed % 2 == 0) for seed in range(500, 540)]
    for problem in [*problems, *filter(None, map(imperfect_problem, range(1000, 1100)))]:
        keeps = math.prod(len(problem.keep_choices[depth]) for depth in range(len(problem.levels)))
        orders = 0
        for factors in all_factors(problem):
            ways = 1
            for depth, memory in enumerate(problem.memories[:-1]):
                fixed = problem.constraints.order.get(memory, ())
                free = [
                    rank for rank, f in zip(problem.ranks, factors[depth], strict=True) if f > 1 and rank not in fixed
                ]
                ways *= math.factorial(len(free))
            orders += ways
        assert size_of(Mapspace(problem)) == orders * keeps, problem.einsum


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_results_and_every_count_are_the_same_whatever_the_chunk(objective: str) -> None:
    for seed in (0, 6, 42, 50, 58):
        problem = random_problem(seed, bypass=True)
        whole = map_einsum(problem, objective)
        for chunk in (7, 100, 5000):
            assert map_einsum(problem, objective, chunk=chunk) == whole


def test_every_partial_mapping_is_priced_or_cut_by_one_rule() -> None:
    proof = map_einsum(random_problem(50, bypass=True), "energy").proof
    assert proof.complete
    assert proof.priced > 0
    assert set(proof.cut) <= {"capacity", "bound", "dominance", "utilization", "fan-out"}
    assert all(count >= 0 for count in proof.cut.values())


def test_an_interrupted_search_gives_the_best_known_mapping_unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(96, bypass=True)
    best = map_einsum(problem, "energy")
    run = Run.run

    def interrupted(self: Any) -> Any:
        if self.beam is None:
            raise KeyboardInterrupt
        return run(self)

    monkeypatch.setattr(Run, "run", interrupted)
    stopped = map_einsum(problem, "energy")
    assert not stopped.proof.complete
    assert stopped.points[0].costs["energy"] >= best.points[0].costs["energy"]


def test_after_an_interrupt_the_other_problems_are_hurried_or_where_only_proofs_count_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problems = [random_problem(seed, bypass=True) for seed in (96, 50)]
    run, whole = Run.run, []

    def interrupted(self: Any) -> Any:
        if self.beam is None:
            whole.append(self.problem.einsum)
            raise KeyboardInterrupt
        return run(self)

    monkeypatch.setattr(Run, "run", interrupted)
    found = search_all(problems, "energy")
    assert [each.proof.complete for each in found] == [False, False]
    assert all(each.points for each in found)
    assert len(whole) == 1
    with pytest.raises(KeyboardInterrupt):
        search_all(problems, "energy", only_proven=True)


def test_orders_that_are_left_out_reuse_no_more_than_one_that_is_kept() -> None:
    problem = _matmul()
    space = Mapspace(problem)
    waiting = [(operand, 1) for operand in range(3)]
    kept = space.orders(0, 0b111, waiting)
    assert len(kept) == 3
    reuse = [[space._reuse(operand, order)[0] for operand in range(3)] for order in kept]
    for order in itertools.permutations(range(3)):
        own = [space._reuse(operand, order)[0] for operand in range(3)]
        assert any(all(mine >= its for mine, its in zip(one, own, strict=True)) for one in reuse)


def _matmul() -> Problem:
    return next(
        problem
        for seed in range(1000)
        if (problem := random_problem(seed, bypass=False)).einsum.startswith("matmul")
        and min(problem.sizes) > 1
        and not problem.constraints.order
    )
