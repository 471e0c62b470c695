"""Loops that cover more of a rank than there is: the closed form against running the nest."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dse
from dse.model.nest import Level, Loop, Operand, count_accesses
from dse.model.tails import count_with_tails, points_with_tails, steps_with_tails
from tests.model.test_nest_properties import nests, operands

Place = tuple[int, bool, str, int, int]
"""A loop: level, whether spatial, rank, bound, stride."""


def _places(levels: Sequence[Level]) -> list[Place]:
    flat = [
        (depth, spatial, loop.rank, int(loop.bound))
        for depth, level in enumerate(levels)
        for spatial, group in ((False, level.temporal), (True, level.spatial))
        for loop in group
    ]
    return [
        (*place, math.prod(bound for _, _, rank, bound in flat[at + 1 :] if rank == place[2]))
        for at, place in enumerate(flat)
    ]


class Run:
    """The nest run point by point: what works when, and what it takes."""

    def __init__(self, levels: Sequence[Level], sizes: Mapping[str, int]) -> None:
        self.levels = levels
        self.places = _places(levels)
        whole = {rank: math.prod(b for _, _, r, b, _ in self.places if r == rank) for _, _, rank, _, _ in self.places}
        self.sizes = {**whole, **sizes}
        self.points = [
            values
            for values in itertools.product(*(range(bound) for *_, bound, _ in self.places))
            if all(at < self.sizes[rank] for rank, at in self.at(values).items())
        ]

    def at(self, values: Sequence[int]) -> dict[str, int]:
        """Where each rank is."""
        found: dict[str, int] = {}
        for (_, _, rank, _, stride), value in zip(self.places, values, strict=True):
            found[rank] = found.get(rank, 0) + stride * value
        return found

    def element(self, operand: Operand, values: Sequence[int]) -> tuple[int, ...]:
        at = self.at(values)
        return tuple(sum(scale * at.get(rank, 0) for rank, scale in index) for index in operand.indices)

    def loads(self, operand: Operand, child: int) -> dict[tuple[int, ...], dict[tuple[int, ...], set[tuple[int, ...]]]]:
        """By child instance and by time, the elements that it takes: anew when a loop has advanced that stands at or
        outside the innermost one that moves its tile."""
        ranks = {rank for index in operand.indices for rank, _ in index}
        time = [n for n, (depth, spatial, *_) in enumerate(self.places) if depth < child and not spatial]
        space = [n for n, (depth, spatial, *_) in enumerate(self.places) if depth < child and spatial]
        moving = [n for n in time if self.places[n][2] in ranks and self.places[n][3] > 1]
        last = len(self.places) if child == len(self.levels) else max(moving, default=-1)
        time = [n for n in time if n <= last]
        found: dict[tuple[int, ...], dict[tuple[int, ...], set[tuple[int, ...]]]] = {}
        for values in self.points:
            instance, when = tuple(values[n] for n in space), tuple(values[n] for n in time)
            found.setdefault(instance, {}).setdefault(when, set()).add(self.element(operand, values))
        return found

    def taken(self, operand: Operand, depth: int, child: int) -> dict[tuple[int, ...], int]:
        """By instance of a level, elements that its child takes; children with the same tile at a time take it once."""
        space = [n for n, (at, spatial, *_) in enumerate(self.places) if at < child and spatial]
        own = [k for k, n in enumerate(space) if self.places[n][0] < depth]
        ranks = {rank for index in operand.indices for rank, _ in index}
        apart = [k for k, n in enumerate(space) if self.places[n][0] >= depth and self.places[n][2] in ranks]
        asked: dict[tuple[int, ...], dict[tuple[object, ...], int]] = {}
        for instance, loads in self.loads(operand, child).items():
            for when, elements in loads.items():
                key = (when, tuple(instance[k] for k in apart))
                group = asked.setdefault(tuple(instance[k] for k in own), {})
                group[key] = max(group.get(key, 0), len(elements))
        return {instance: sum(group.values()) for instance, group in asked.items()}

    def slid(self, operand: Operand, depth: int, child: int) -> dict[tuple[int, ...], int]:
        """As `taken` by a child that keeps what it holds of a tile, the hull of what it works on. At each level apart, those
        whose tiles are the same ask once."""
        time = [n for n, (at, spatial, *_) in enumerate(self.places) if at < child and not spatial]
        spaces = [
            [n for n, (at, spatial, *_) in enumerate(self.places) if at < level and spatial]
            for level in range(len(self.levels) + 1)
        ]
        tiles: dict[tuple[int, ...], dict[tuple[int, ...], list[tuple[int, ...]]]] = {}
        firsts: dict[tuple[int, tuple[int, ...]], set[tuple[int, ...]]] = {}
        for values in self.points:
            element, when = self.element(operand, values), tuple(values[n] for n in time)
            tiles.setdefault(tuple(values[n] for n in spaces[child]), {}).setdefault(when, []).append(element)
            for level in range(depth, child + 1):
                if not any(values[n] for n in time if self.places[n][0] < level):
                    firsts.setdefault((level, tuple(values[n] for n in spaces[level])), set()).add(element)
        asked: dict[tuple[int, ...], int] = {}
        for instance, steps in tiles.items():
            before: set[tuple[int, ...]] = set()
            asked[instance] = 0
            for when in sorted(steps):
                now = set(_hull(steps[when]))
                asked[instance] += len(now) if child == len(self.levels) else len(now - before)
                before = now
        for level in reversed(range(depth, child)):
            groups: dict[tuple[int, ...], dict[object, int]] = {}
            for instance, elements in asked.items():
                group = groups.setdefault(instance[: len(spaces[level])], {})
                tile = frozenset(_hull(firsts[level + 1, instance]))
                group[tile] = max(group.get(tile, 0), elements)
            asked = {instance: sum(group.values()) for instance, group in groups.items()}
        return asked

    def ever(self, operand: Operand, depth: int) -> dict[tuple[int, ...], int]:
        """By instance of a level, different elements that it works on."""
        space = [n for n, (at, spatial, *_) in enumerate(self.places) if at < depth and spatial]
        found: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
        for values in self.points:
            found.setdefault(tuple(values[n] for n in space), set()).add(self.element(operand, values))
        return {instance: len(elements) for instance, elements in found.items()}


def _hull(elements: Iterable[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """Every element between the lowest and the highest along each rank."""
    return itertools.product(*(range(min(axis), max(axis) + 1) for axis in zip(*elements, strict=True)))


@st.composite
def tails(draw: st.DrawFn, levels: Sequence[Level]) -> dict[str, int]:
    """Lengths of some ranks, short of what the loops cover."""
    found = {}
    for rank in "mnk":
        whole = math.prod(int(p.bound) for level in levels for p in (*level.temporal, *level.spatial) if p.rank == rank)
        if whole > 1 and draw(st.booleans()):
            found[rank] = draw(st.integers(1, whole))
    return found


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_counts_with_tails_are_those_of_running_the_nest(data: st.DataObject) -> None:
    levels = data.draw(nests(100))
    operand = data.draw(operands(len(levels)))
    sizes = data.draw(tails(levels))
    if operand.name == "A" and any(len(index) > 1 or index[0][1] != 1 for index in operand.indices):
        sizes = {rank: size for rank, size in sizes.items() if rank not in {r for i in operand.indices for r, _ in i}}
    run = Run(levels, sizes)
    counted = count_with_tails(levels, [operand], sizes)
    kept = [depth for depth, keeps in enumerate(operand.keeps) if keeps]
    plain = all(len(index) == 1 and index[0][1] == 1 for index in operand.indices) and len(operand.indices) == len(
        {index[0][0] for index in operand.indices}
    )
    for number, depth in enumerate(kept):
        child = kept[number + 1] if number + 1 < len(kept) else len(levels)
        found = counted[levels[depth].memory, operand.name]
        take = run.taken if plain else run.slid
        taken, arrived = take(operand, depth, child), take(operand, depth, depth)
        ever = run.ever(operand, depth)
        drawn = 0 if number == 0 else 1
        if operand.is_output:
            own = {i: (taken[i] - ever[i], (arrived[i] - ever[i]) * drawn, taken[i]) for i in taken}
        else:
            own = {i: (taken[i], arrived[i] * drawn, 0) for i in taken}
        assert found.totals == tuple(sum(row[at] for row in own.values()) for at in range(3))
        assert (found.reads, found.fills, found.updates) == tuple(
            max(row[at] for row in own.values()) for at in range(3)
        )
        assert found.instances == len(taken)
    assert points_with_tails(levels, sizes) == len(run.points)
    time = {tuple(v for v, place in zip(values, run.places, strict=True) if not place[1]) for values in run.points}
    assert steps_with_tails(levels, sizes) == len(time)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_arrays_count_point_by_point_what_integers_count(data: st.DataObject) -> None:
    levels = data.draw(nests(100))
    sizes = data.draw(tails(levels))
    operand = Operand("Z", ((("m", 1),), (("n", 1),)), True, tuple(True for _ in levels))
    factors = np.array(data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=4)))
    rank, depth = data.draw(st.sampled_from("mnk")), data.draw(st.integers(0, len(levels) - 1))

    def grown(factor: object) -> list[Level]:
        extra = Loop(rank, factor)  # type: ignore[arg-type]
        return [replace(each, spatial=(extra, *each.spatial)) if n == depth else each for n, each in enumerate(levels)]

    def short(factor: object) -> dict[str, object]:
        return {name: size * factor if name == rank else size for name, size in sizes.items()}  # type: ignore[operator]

    together = count_with_tails(grown(factors), [operand], short(factors))  # type: ignore[arg-type]
    for number, factor in enumerate(factors.tolist()):
        alone = count_with_tails(grown(factor), [operand], short(factor))  # type: ignore[arg-type]
        for key, row in alone.items():
            found = together[key]
            for name in ("reads", "fills", "updates", "capacity", "distinct", "instances"):
                assert np.broadcast_to(getattr(found, name), len(factors))[number] == getattr(row, name)
            assert found.totals is not None
            assert [np.broadcast_to(each, len(factors))[number] for each in found.totals] == list(row.totals or ())


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_whole_tiles_count_as_ever(data: st.DataObject) -> None:
    levels = data.draw(nests())
    operand = data.draw(operands(len(levels)))
    plain = count_accesses(levels, [operand])
    counted = count_with_tails(levels, [operand], {})
    for key, row in plain.items():
        found = counted[key]
        names = ("reads", "fills", "updates", "capacity", "distinct", "instances")
        assert {name: getattr(found, name) for name in names} == {name: getattr(row, name) for name in names}, key
        assert found.totals == (row.reads * row.instances, row.fills * row.instances, row.updates * row.instances)


ROWS: dict[str, Any] = {
    "name": "rows",
    "architecture": "three_level",
    "workload": "matmul",
    "einsums": {
        "Z": {
            "unit": "array",
            "loops": {"DRAM": ["m", "n", "k"]},
            "spatial": {"x": "m:4"},
            "keep": {memory: ["A", "B", "Z"] for memory in ("DRAM", "GLB", "RF")},
            "imperfect": ["m"],
        }
    },
    "phases": [{"steps": [{"array": ["Z"]}]}],
}


def test_five_rows_on_four_pes_take_two_rounds(write_spec: Callable[[str, object], Path]) -> None:
    """By hand: 5 products in 2 steps. Four PEs hold the one element of B, which the buffer is asked for once; A and Z have
    five elements, of which one PE handles two."""
    found = dse.evaluate("three_level", "matmul", mapping=str(write_spec("rows.mapping.yaml", ROWS)), m=5, n=1, k=1)
    (timing,) = found.timings.values()
    assert (timing.cycles, timing.operations) == (2, 5)
    moved = {(entry.memory, entry.operand): (entry.reads, entry.writes) for entry in found.traffic}
    assert moved == {
        ("DRAM", "A"): (5, 0), ("DRAM", "B"): (1, 0), ("DRAM", "Z"): (0, 5),
        ("GLB", "A"): (5, 5), ("GLB", "B"): (1, 1), ("GLB", "Z"): (0, 5),
        ("RF", "A"): (5, 5), ("RF", "B"): (5, 4), ("RF", "Z"): (0, 5),
    }  # fmt: skip
    assert found.latency_s * 1e9 == pytest.approx(2, rel=1e-15)  # no memory takes longer
    assert found.utilization("array") == pytest.approx(5 / (256 * 2), rel=1e-15)


def test_sizes_may_be_swept_through_whole_and_short_tiles(write_spec: Callable[[str, object], Path]) -> None:
    path = str(write_spec("rows.mapping.yaml", ROWS))
    sizes = np.arange(1, 14)
    swept = dse.evaluate("three_level", "matmul", mapping=path, m=sizes, n=3, k=2)
    for number, size in enumerate(sizes.tolist()):
        alone = dse.evaluate("three_level", "matmul", mapping=path, m=size, n=3, k=2)
        assert swept.energy_pj[number] == alone.energy_pj
        assert swept.latency_s[number] == alone.latency_s


@pytest.mark.parametrize(
    ("workload", "change", "says"),
    [
        ("matmul", {"imperfect": ["q"]}, "unknown rank variable 'q'"),
        ("matmul", {"imperfect": []}, "M = 5 does not divide by 4"),
        ("conv", {"imperfect": ["m", "p"]}, "loops over 'p' must divide P, for it indexes I, whose tiles overlap"),
    ],
)
def test_loops_that_cannot_be_imperfect_are_refused_with_their_line(
    write_spec: Callable[[str, object], Path], workload: str, change: dict[str, Any], says: str
) -> None:
    own = {**ROWS["einsums"]["Z"], **change}
    einsums = {"Z": own}
    if workload == "conv":
        keep = {memory: ["I", "W", "O"] for memory in ("DRAM", "GLB", "RF")}
        loops = {"DRAM": ["n", "c", "r", "s", "q", "p", "m"]}
        einsums = {"O": {**own, "keep": keep, "loops": loops}}
    phases = [{"steps": [{"array": list(einsums)}]}]
    path = write_spec("bad.mapping.yaml", {**ROWS, "workload": workload, "einsums": einsums, "phases": phases})
    with pytest.raises(dse.SpecError) as refused:
        dse.evaluate("three_level", workload, mapping=str(path), m=5)
    assert says in str(refused.value)
    assert f"{path}:" in str(refused.value)
