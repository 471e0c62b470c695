"""Fused cascades: the search against brute force over groups, shared loops, nests, and what stays in the buffer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.api import _mapping_job, evaluate, map_front, map_workload
from dse.cascade.cascade import Cascade
from dse.cascade.parser import parse_access, parse_einsum
from dse.model.nest import Level, Loop, Operand, busy_units, count_accesses, temporal_iterations
from dse.report.nests import totals_lines
from dse.search.fused import FusedMap, FusedSearch, fused_traffic
from dse.search.fusion import Fusion
from dse.search.mapper import map_einsum
from dse.search.pool import Pool
from dse.search.population import Ranking, undominated
from dse.search.problem import ChainLevel, Problem
from dse.search.workload import map_fused_workload, problems_of
from dse.search.workload import map_workload as search_mappings
from dse.specs.architecture import DIRECTIONS
from dse.specs.library import load_workload
from dse.specs.mapspace import OBJECTIVES
from dse.specs.source import SpecError
from tests.search.brute_force import factorisations

ROUNDING = 1e-9


@dataclass(frozen=True)
class Case:
    """A cascade, and by hand: ranks that a group (first, end) may share loops over, and tensors that leave."""

    inputs: tuple[str, ...]
    einsums: tuple[str, ...]
    shared: Mapping[tuple[int, int], str]

    @property
    def cascade(self) -> Cascade:
        return Cascade(tuple(map(parse_access, self.inputs)), tuple(map(parse_einsum, self.einsums)))


CASES = {
    "matmul - matmul": Case(
        ("A[m,k]", "B[k,n]", "C[n,p]"),
        ("Z[m,n] = A[m,k] * B[k,n]", "Y[m,p] = Z[m,n] * C[n,p]"),
        {(0, 2): "mn"},
    ),
    "normalise": Case(  # two passes over k, and an input that both read
        ("A[m,k]",), ("S[m] = A[m,k]", "D[m,k] = A[m,k] / S[m]"), {(0, 2): "m"}
    ),
    "three": Case(
        ("A[m,n]", "B[n]"),
        ("X[m,n] = A[m,n] * B[n]", "Y[m,n] = X[m,n] * X[m,n]", "W[m] = Y[m,n] * X[m,n]"),
        {(0, 2): "mn", (1, 3): "mn", (0, 3): "mn"},
    ),
}


def problems_for(case: Case, seed: int) -> list[Problem]:
    """A problem for each Einsum, on one chain with two or three levels whose prices and sizes the seed draws."""
    draw = np.random.default_rng(seed)
    sizes = {name: int(draw.choice([1, 2, 2, 3, 4])) for name in "mnkp"}
    levels = [
        ChainLevel(
            "DRAM", 20.0 * draw.choice([1, 3]), 20.0, math.inf, {"bandwidth": float(draw.choice([0.1, 1, 4]))}, (), True
        ),
        ChainLevel("GLB", 2.0, 3.0, float(draw.choice([6, 12, 24])), {"read_bandwidth": float(draw.choice([0.2, 1]))}),
    ]
    if seed % 3 == 0 and len(case.inputs) == 1:
        levels[1] = replace(levels[1], axes=(("x", 2),))
        levels.append(ChainLevel("RF", 0.5, 0.25, 4.0))
    found = []
    for einsum in case.cascade.computed:
        operands, tensors = [], {}
        for access in (*einsum.inputs, einsum.output):
            name = access.tensor if access.tensor not in tensors else access.tensor + "'"
            operands.append(
                Operand(name, tuple(((i.variables[0], 1),) for i in access.indices), access is einsum.output, ())
            )
            tensors[name] = access.tensor
        own = tuple(sizes[name] for name in einsum.variables)
        found.append(
            Problem(einsum.name, "unit", einsum.variables, own, tuple(operands), tensors, tuple(levels), 1.0, 1.0, 1.0)
        )
    return found


Labels = tuple[tuple[str, str], ...]
Loops = tuple[tuple[str, int], ...]
COLUMNS = ("energy", "dram", "compute", "held")


def einsum_costs(problem: Problem, loops: Loops, labels: Labels) -> np.ndarray:
    """Costs of every mapping of an Einsum under shared loops: energy, dram, compute, held, then seconds by bandwidth."""
    factor = dict(loops)
    depth, ranks = len(problem.levels), problem.ranks
    axes = [axis for level in problem.levels for axis in level.axes]
    ways = [
        list(factorisations(size // factor.get(r, 1), depth + len(axes)))
        for r, size in zip(ranks, problem.sizes, strict=True)
    ]
    every = np.array([np.array(each).T for each in itertools.product(*ways)])
    used = every[:, depth:].prod(axis=2)
    every = every[(used <= [size for _, size in axes]).all(axis=1)]
    orders = [list(itertools.permutations(range(len(ranks))))] * (depth - 1) + [[tuple(range(len(ranks)))]]
    rows = []
    for keeps in keep_sets(problem, dict(labels)):
        operands = [
            Operand(o.name, o.indices, o.is_output, tuple(problem.tensors[o.name] in own for own in keeps))
            for o in problem.operands
        ]
        for order in itertools.product(*orders):
            nest = []
            for at, level in enumerate(problem.levels):
                own = tuple(Loop(ranks[rank], every[:, at, rank]) for rank in order[at])
                outer = tuple(Loop(r, np.full(len(every), f)) for r, f in loops) if at == 0 else ()
                spatial = tuple(Loop(r, every[:, depth, n]) for n, r in enumerate(ranks)) if level.axes else ()
                nest.append(Level(level.memory, (*outer, *own), spatial))
            rows.append(nest_costs(problem, nest, operands, dict(labels)))
            if depth == 3 and loops:
                rows[-1] = rows[-1][~held_between(nest, operands, loops)]
    costs = np.concatenate(rows)
    return undominated_rows(costs[costs[:, 3] <= problem.levels[1].capacity])


def keep_sets(problem: Problem, labels: Mapping[str, str]) -> Iterator[list[set[str]]]:
    """What DRAM, the buffer and registers keep: all choices that the labels leave."""
    names = list(problem.names)
    dram = {name for name in names if labels.get(name) != "here"}
    free = [name for name in names if name not in labels]
    for inner in itertools.product([False, True], repeat=len(free)):
        buffer = {name for name, keeps in zip(free, inner, strict=True) if keeps} | set(labels)
        if len(problem.levels) == 2:
            yield [dram, buffer]
            continue
        for last in itertools.product([False, True], repeat=len(names)):
            yield [dram, buffer, {name for name, keeps in zip(names, last, strict=True) if keeps}]


def nest_costs(problem: Problem, nest: list[Level], operands: list[Operand], labels: Mapping[str, str]) -> np.ndarray:
    counts = count_accesses(nest, operands)
    steps: Any = temporal_iterations(nest)
    energy, compute, dram = steps * busy_units(nest) * problem.operation_pj, steps * problem.operation_s, 0.0
    times, fits, held_in_buffer = [], np.ones(np.shape(steps), dtype=bool), 0.0
    for depth, level in enumerate(problem.levels):
        seconds, held = dict.fromkeys(level.seconds, 0.0), {}
        for operand in operands:
            count = counts.get((level.memory, operand.name))
            if count is None:
                continue
            moved = {"reads": count.reads, "writes": count.fills + count.updates}
            energy = energy + count.instances * (level.read_pj * moved["reads"] + level.write_pj * moved["writes"])
            dram = dram + (moved["reads"] + moved["writes"] if level.is_dram else 0.0)
            for key, each in level.seconds.items():
                seconds[key] = seconds[key] + each * sum(moved[direction] for direction in DIRECTIONS[key])
            tensor = problem.tensors[operand.name]
            if depth != 1 or tensor not in labels:
                held[tensor] = np.maximum(held.get(tensor, 0), count.capacity)
        times += list(seconds.values())
        if depth == 1:
            held_in_buffer = sum(held.values())
        else:
            fits &= sum(held.values()) <= level.capacity
    held_in_buffer = np.where(fits, held_in_buffer, np.inf)
    columns = np.broadcast_arrays(energy, dram, compute, held_in_buffer, *times)
    return np.stack(columns, axis=1).astype(float)


def held_between(nest: list[Level], operands: list[Operand], loops: Loops) -> np.ndarray:
    """Mappings whose registers would keep something from one iteration of the shared loops to the next."""
    found = np.zeros(len(nest[0].temporal[-1].bound), dtype=bool)
    for operand in operands:
        used = {rank for index in operand.indices for rank, _ in index}
        if not operand.keeps[2] or loops[-1][0] in used:
            continue
        own = [*nest[0].temporal[len(loops) :], *nest[1].temporal]
        found |= ~np.any([loop.bound > 1 for loop in own if loop.rank in used], axis=0)
    return found


def undominated_rows(rows: np.ndarray) -> np.ndarray:
    rows = np.unique(np.round(rows, 9), axis=0)
    kept: list[np.ndarray] = []
    for row in rows:
        if not any((other <= row).all() for other in kept):
            kept = [other for other in kept if not (row <= other).all()] + [row]
    return np.array(kept).reshape(-1, rows.shape[1])


def group_costs(case: Case, problems: list[Problem], start: int, end: int, costs: Any) -> np.ndarray:
    """Undominated (energy, dram, latency, capacity) of a group, over shared loops and labels."""
    found = [np.zeros((0, 4))]
    users = {name: [at for at, p in enumerate(problems) if name in p.names] for p in problems for name in p.names}
    sizes = {rank: size for p in problems for rank, size in zip(p.ranks, p.sizes, strict=True)}
    own = range(start, end)
    options = [
        [(at, name, how) for how in (None, "left", "here")]
        for at in own
        for name in problems[at].names
        if len(users[name]) > 1
    ]
    for loops in all_loops(case.shared.get((start, end), ""), sizes) if end - start > 1 else [()]:
        for chosen in itertools.product(*options):
            labels = {at: tuple((n, h) for a, n, h in chosen if a == at and h) for at in own}
            entered = resident(problems, users, start, end, labels)
            if entered is None:
                continue
            factor = dict(loops)
            waits = sum(
                math.prod(sizes[i[0][0]] // factor.get(i[0][0], 1) for i in problems[at].operands[slot].indices)
                for at, slot in entered
            )
            total = np.zeros((1, 4 + sum(len(level.seconds) for level in problems[0].levels)))
            for at in own:
                mine = tuple(loop for loop in loops if loop[0] in problems[at].ranks)
                if mine != loops[: len(mine)]:
                    total = total[:0]
                    break
                total = undominated_rows(
                    (total[:, None] + costs(at, mine, labels[at])[None]).reshape(-1, total.shape[1])
                )
                total = total[total[:, 3] + waits <= problems[0].levels[1].capacity]
            latency = total[:, [2, *range(4, total.shape[1])]].max(axis=1, initial=0)
            found.append(np.stack([total[:, 0], total[:, 1], latency, total[:, 3] + waits], axis=1))
    return undominated_rows(np.concatenate(found))


def all_loops(ranks: str, sizes: Mapping[str, int]) -> Iterator[Loops]:
    for order in itertools.permutations(ranks):
        for factors in itertools.product(*([f for f in range(1, sizes[r] + 1) if sizes[r] % f == 0] for r in order)):
            loops = tuple((r, f) for r, f in zip(order, factors, strict=True) if f > 1)
            yield loops


def resident(problems: list[Problem], users: Any, start: int, end: int, labels: Any) -> list[tuple[int, int]] | None:
    """Where each tensor enters the buffer as (Einsum, operand), or None where the labels contradict each other."""
    chip: set[str] = set()
    entered = []
    for at in range(start, end):
        here, linked = dict(labels[at]), at == start
        before = set(chip)
        for name in problems[at].names:
            made = problems[at].einsum == name
            how = here.get(name)
            if name in before:
                if how != "here":
                    return None
                linked = True
            elif how == "here" and (not made or users[name][-1] >= end or len(users[name]) < 2):
                return None
            elif how:
                chip.add(name)
                entered.append(
                    (at, next(n for n, o in enumerate(problems[at].operands) if problems[at].tensors[o.name] == name))
                )
        if not linked:
            return None
    return entered


def all_costs(case: Case, problems: list[Problem]) -> np.ndarray:
    """Undominated (energy, dram, latency, capacity) of a cascade, over all ways to fuse it."""
    cache: dict[Any, np.ndarray] = {}

    def costs(at: int, loops: Loops, labels: Labels) -> np.ndarray:
        if (at, loops, labels) not in cache:
            cache[at, loops, labels] = einsum_costs(problems[at], loops, labels)
        return cache[at, loops, labels]

    count = len(problems)
    whole = {0: np.zeros((1, 4))}
    for end in range(1, count + 1):
        ways = [np.zeros((0, 4))]
        for start in range(end):
            own = group_costs(case, problems, start, end, costs)
            pairs = whole[start][:, None] + own[None]
            pairs[:, :, 3] = np.maximum(whole[start][:, None, 3], own[None, :, 3])
            ways.append(pairs.reshape(-1, 4))
        whole[end] = undominated_rows(np.concatenate(ways))
    return whole[count]


def best_of_all(case: Case, problems: list[Problem], ranked: tuple[str, ...]) -> dict[str, float] | None:
    rows = all_costs(case, problems)
    table = {"energy": rows[:, 0], "dram": rows[:, 1], "latency": rows[:, 2], "capacity": rows[:, 3]}
    table["edp"] = table["energy"] * table["latency"]
    if not len(rows):
        return None
    left, best = np.arange(len(rows)), {}
    for metric in ranked:
        best[metric] = float(table[metric][left].min())
        left = left[table[metric][left] <= best[metric] * (1 + ROUNDING)]
    return best


def solve(case: Case, problems: list[Problem], objective: str) -> FusedMap | None:
    sizes = {rank: size for p in problems for rank, size in zip(p.ranks, p.sizes, strict=True)}
    return FusedSearch([[problem] for problem in problems], Fusion(case.cascade, sizes), objective, Pool(1)).best()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", CASES)
def test_fused_optima_are_those_of_brute_force_ties_included(kind: str, seed: int) -> None:
    case = CASES[kind]
    problems = problems_for(case, seed)
    for objective, ranked in OBJECTIVES.items():
        expected, found = best_of_all(case, problems, ranked), solve(case, problems, objective)
        if expected is None:
            assert found is None
            continue
        assert found is not None
        assert {metric: found.costs[metric] for metric in ranked} == pytest.approx(expected, rel=ROUNDING), objective


@pytest.mark.parametrize("kind", CASES)
def test_the_least_traffic_of_fused_cascades_is_that_of_brute_force(kind: str) -> None:
    """Over the buffer's capacity; nothing is inside the buffer, which is larger than any tile."""
    case = CASES[kind]
    problems = [
        replace(problem, levels=(problem.levels[0], replace(problem.levels[1], capacity=1e6, axes=())))
        for problem in problems_for(case, 4)
    ]
    rows = all_costs(case, problems)
    expected, least = [], math.inf
    for held, moved in sorted(zip(rows[:, 3].tolist(), rows[:, 1].tolist(), strict=True)):
        if moved < least:
            expected.append((held, moved))
            least = moved
    sizes = {rank: size for p in problems for rank, size in zip(p.ranks, p.sizes, strict=True)}
    points = fused_traffic(problems, Fusion(case.cascade, sizes)).points
    assert [(point.costs["capacity"], point.costs["dram"]) for point in points] == expected
    assert len(points) > 2


ATTENTION = {"batch": 1, "heads": 1, "seq_len": 8, "head_dim": 4, "buffer": "1 KiB"}


def fusion_of(workload: str, **sizes: int) -> Fusion:
    cascade = load_workload(workload).cascade
    return Fusion(cascade, {name: sizes.get(name, 8) for einsum in cascade.computed for name in einsum.variables})


def test_loops_are_shared_within_a_pass_alone() -> None:
    fusion = fusion_of("attention_3pass")  # QK GM | SN SD | A AV
    for start, end, rank, shared in [
        (0, 2, "m", True),
        (0, 3, "m", False),
        (1, 3, "m", False),
        (2, 4, "m", True),
        (2, 5, "m", False),
        (4, 6, "m", True),
        (0, 6, "p", True),
        (0, 6, "b", True),
    ]:
        assert fusion.may_share(start, end, rank) is shared, (start, end, rank)
    assert fusion.batch == ("b", "h")


def test_a_rank_of_one_pass_is_shared_by_the_whole_cascade() -> None:
    fusion = fusion_of("attention_1pass")
    last = len(fusion.einsums)
    assert fusion.may_share(0, last, "m1")
    assert not fusion.may_share(0, last, "m0")
    assert {(fusion.einsums[a].name, fusion.einsums[b].name) for a, b in fusion.waiting} == {
        ("SPD", "RD"),
        ("SPNV", "RNV"),
    }


def test_what_is_read_at_another_place_of_a_rank_is_not_shared() -> None:
    """A convolution of a convolution reads past the tile that the first one made."""
    einsums = ("Y[p] = X[p] * W[p]", "Z[q] = Y[q+r] * V[r]", "U[p] = Y[p] * Z[p]")
    cascade = Cascade(
        tuple(map(parse_access, ("X[p]", "W[p]", "V[r]"))),
        tuple(parse_einsum(text, frozenset("PQR")) for text in einsums),
    )
    fusion = Fusion(cascade, {"p": 8, "q": 8, "r": 2})
    assert not fusion.may_share(0, 2, "p")
    assert not fusion.alike["Y"]
    assert "Y" not in fusion.stays(0)


@pytest.mark.parametrize("objective", ["energy", "latency"])
def test_fused_attention_costs_what_its_mapping_is_priced_at(objective: str, tmp_path: Path) -> None:
    found = map_workload("three_level", "attention_3pass", mapspace="free", fuse=True, objective=objective, **ATTENTION)
    assert found.proven
    assert found.unfused is not None
    assert [name for group in found.groups for name in group.einsums] == ["QK", "GM", "SN", "SD", "A", "AV"]
    for metric in ("energy_pj", "latency_s"):
        assert getattr(found.result, metric) <= getattr(found.unfused.result, metric)
    if objective == "energy":  # all of it fits: Q, K, V are read once and the output is written once
        assert found.result.dram_bytes == 2 * 4 * 8 * 4
    written = tmp_path / "fused.mapping.yaml"
    written.write_text(found.to_yaml(), encoding="utf-8")
    again = evaluate("three_level", "attention_3pass", mapping=str(written), **ATTENTION)
    for metric in ("energy_pj", "latency_s", "dram_bytes"):
        assert getattr(again, metric) == getattr(found.result, metric)


def test_the_costs_of_the_search_are_those_of_the_model() -> None:
    """A buffer too small for a row of scores at a time and all of K: the groups and their capacity are priced alike."""
    tight = {**ATTENTION, "buffer": "128 B", "registers": 4}
    work, hardware, spec, given = _mapping_job("three_level", "attention_3pass", "free", None, tight)
    problems = problems_of(work, hardware, spec, given)
    sizes = {rank: size for p in problems for rank, size in zip(p.ranks, p.sizes, strict=True)}
    best = FusedSearch([[problem] for problem in problems], Fusion(work.cascade, sizes), "energy", Pool(1)).best()
    found = map_fused_workload(work, hardware, spec, given, "energy", jobs=2)
    assert best is not None
    assert found.result.energy_pj == pytest.approx(best.costs["energy"], rel=1e-12)
    assert found.result.latency_s == pytest.approx(best.costs["latency"], rel=1e-12)
    assert found.result.dram_bytes == best.costs["dram"]
    assert found.proof == best.proof  # every count is the same with two jobs
    (held,) = [line for line in totals_lines(found) if line.startswith("held at most")]
    assert f"GLB {best.costs['capacity']:,.0f} B of 128 B" in held


def test_groups_may_be_demanded(write_spec: Callable[[str, object], Path]) -> None:
    demands = {
        "name": "d",
        "architecture": "three_level",
        "workload": "attention_3pass",
        "fuse": [["GM", "SN", "SD", "A"]],
    }
    path = str(write_spec("d.mapspace.yaml", demands))
    found = map_workload("three_level", "attention_3pass", mapspace=path, **ATTENTION)
    assert [group.einsums for group in found.groups] == [("QK",), ("GM", "SN", "SD", "A"), ("AV",)]
    with pytest.raises(SpecError, match="a front maps each Einsum on its own; take `fuse` out"):
        map_front("three_level", "attention_3pass", metrics=("energy", "latency"), mapspace=path, **ATTENTION)
    for groups, message in [
        ([["GM", "SD"]], "fuse: successive Einsums"),
        ([["GM", "SX"]], "unknown Einsum 'SX' of attention_3pass"),
        ([[]], "a group names one Einsum"),
    ]:
        path = str(write_spec("d.mapspace.yaml", {**demands, "fuse": groups}))
        with pytest.raises(SpecError, match=message):
            map_workload("three_level", "attention_3pass", mapspace=path, **ATTENTION)


def test_an_interrupted_search_gives_a_mapping_that_is_not_proven() -> None:
    work, hardware, spec, given = _mapping_job("three_level", "attention_3pass", "free", None, ATTENTION)
    unfused = search_mappings(work, hardware, spec, given, "energy")

    def stop(name: str, share: float) -> None:
        raise KeyboardInterrupt

    found = map_fused_workload(work, hardware, spec, given, "energy", progress=stop)
    assert not found.proven
    assert not found.fused
    assert "not proven" in found.to_yaml()
    assert found.result.energy_pj == unfused.result.energy_pj


def test_what_is_worse_at_equal_amounts_never_wins_below_zero() -> None:
    """Sums are below zero where first updates are taken off before all is added."""
    ranking = Ranking([], [np.zeros(2)], [np.array([-5.0, -5.0]), np.array([2.0, 1.0])], [[1.0]])
    assert undominated([np.zeros(2)], ranking, (np.arange(2),)).tolist() == [1]
    assert not ranking.beats(np.array([0]), np.array([1])).any()


@pytest.mark.parametrize("memory", ["GLB", "OTHER"])
def test_only_what_stays_in_the_same_buffer_is_found_there(memory: str) -> None:
    """Two units whose Einsums see buffers of different names, or sizes, cannot hand anything on in them."""
    case = CASES["matmul - matmul"]
    first, second = problems_for(case, 1)
    level = replace(second.levels[1], memory=memory, capacity=second.levels[1].capacity * 2)
    other = replace(second, levels=(second.levels[0], level, *second.levels[2:]))
    fusion = Fusion(case.cascade, {r: s for p in (first, second) for r, s in zip(p.ranks, p.sizes, strict=True)})
    found = FusedSearch([[first], [other]], fusion, "energy", Pool(1)).best()
    assert found is not None
    assert [group.einsums for group in found.groups] == [("Z",), ("Y",)]
    alone = [map_einsum(problem).points[0].costs["energy"] for problem in (first, other)]
    assert found.costs["energy"] == pytest.approx(sum(alone), rel=ROUNDING)


@pytest.mark.parametrize("objective", ["energy", "dram"])
def test_an_input_that_one_einsum_brought_is_read_in_the_buffer_by_the_next(objective: str) -> None:
    """Both Einsums of cascade_1 read A: fused, it crosses DRAM once."""
    found = map_workload("three_level", "cascade_1", mapspace="free", fuse=True, objective=objective)
    assert found.unfused is not None
    assert found.fused
    assert found.result.dram_bytes < found.unfused.result.dram_bytes
    moved = [entry for entry in found.result.traffic if entry.memory == "DRAM" and entry.operand == "A"]
    assert len(moved) == 1
    words = moved[0].reads
    assert found.result.dram_bytes == sum(
        2 * (entry.reads + entry.writes) for entry in found.result.traffic if entry.memory == "DRAM"
    )
    assert words == found.result.binding.values["K"].value


def test_einsums_of_different_widths_are_not_fused(write_spec: Callable[[str, object], Path]) -> None:
    cascade = {
        "name": "two",
        "ranks": {"M": 4, "N": 4, "K": 4},
        "types": {"A": "fp32", "B": "fp32", "Y": "fp32"},
        "inputs": ["A[m,k]", "B[k,n]", "C[m,k]", "D[k,n]"],
        "einsums": ["Y[m,n] = A[m,k] * B[k,n]", "Z[m,n] = C[m,k] * D[k,n]"],
    }
    path = str(write_spec("two.yaml", cascade))
    with pytest.raises(
        SpecError, match=r"two.yaml:\d+: fused Einsums have values of one width; found bits: Y 32, Z 16"
    ):
        map_workload("three_level", path, mapspace="free", fuse=True)
