"""The closed form against enumeration on random nests, and what theory says of loops that are scaled, moved or split."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.model.nest import AccessCounts, Level, Loop, Operand, busy_units, count_accesses, temporal_iterations
from tests.model.enumeration import enumerate_accesses

INDICES = {
    "matmul input": ((("m", 1),), (("k", 1),)),
    "other input": ((("k", 1),), (("n", 1),)),
    "sliding window": ((("m", 1), ("k", 1)),),
    "strided window": ((("m", 2), ("k", 1)), (("n", 1),)),
    "reversed window": ((("m", 1), ("k", -1)), (("n", 1),)),
    "diagonal": ((("m", 1),), (("m", 1), ("n", 1))),
}


@st.composite
def nests(draw: st.DrawFn, most: int = 160) -> list[Level]:
    """A nest of 2-4 levels over ranks m, n, k whose loops run through at most `most` points."""
    depth = draw(st.integers(2, 4))
    temporal: list[list[Loop]] = [[] for _ in range(depth)]
    spatial: list[list[Loop]] = [[] for _ in range(depth)]
    points = 1
    for _ in range(draw(st.integers(1, 7))):
        rank, bound = draw(st.sampled_from("mnk")), draw(st.sampled_from([1, 2, 2, 3, 4]))
        if points * bound > most:
            break
        points *= bound
        group = draw(st.sampled_from([temporal, temporal, spatial]))
        group[draw(st.integers(0, depth - 1))].append(Loop(rank, bound))
    return [Level(f"L{number}", tuple(temporal[number]), tuple(spatial[number])) for number in range(depth)]


@st.composite
def operands(draw: st.DrawFn, depth: int) -> Operand:
    """An input of any kind, or an output of plain indices, kept at one or more levels."""
    keeps = draw(st.lists(st.booleans(), min_size=depth, max_size=depth).filter(any))
    if draw(st.booleans()):
        return Operand("Z", ((("m", 1),), (("n", 1),)), True, tuple(keeps))
    return Operand("A", INDICES[draw(st.sampled_from(sorted(INDICES)))], False, tuple(keeps))


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_the_closed_form_counts_what_running_the_nest_counts(data: st.DataObject) -> None:
    levels = data.draw(nests())
    operand = data.draw(operands(len(levels)))
    counted = count_accesses(levels, [operand])
    enumerated = enumerate_accesses(levels, operand)
    assert {memory for memory, _ in counted} == set(enumerated)
    for memory, row in enumerated.items():
        found = counted[memory, operand.name]
        assert {name: getattr(found, name) for name in row} == row, memory


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_arrays_count_point_by_point_what_integers_count(data: st.DataObject) -> None:
    levels = data.draw(nests())
    operand = data.draw(operands(len(levels)))
    factors = np.array(data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=4)))
    rank = data.draw(st.sampled_from("mnk"))
    depth = data.draw(st.integers(0, len(levels) - 1))

    def grown(factor: object) -> list[Level]:
        extra = Loop(rank, factor)  # type: ignore[arg-type]
        return [
            replace(level, temporal=(extra, *level.temporal)) if n == depth else level for n, level in enumerate(levels)
        ]

    together = count_accesses(grown(factors), [operand])
    for number, factor in enumerate(factors):
        for key, alone in count_accesses(grown(int(factor)), [operand]).items():
            for name in ("reads", "fills", "updates", "capacity", "distinct", "instances"):
                whole = np.broadcast_to(getattr(together[key], name), factors.shape)
                assert whole[number] == getattr(alone, name), (key, name)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_an_outermost_loop_repeats_the_nest(data: st.DataObject) -> None:
    """A loop around everything multiplies the accesses of a tensor that it indexes, and the capacity of none but the top."""
    levels = data.draw(nests(most=2000))
    operand = Operand("A", INDICES["matmul input"], False, (True,) * len(levels))
    factor = data.draw(st.integers(2, 7))
    around = [replace(levels[0], temporal=(Loop("m", factor), *levels[0].temporal)), *levels[1:]]
    before, after = count_accesses(levels, [operand]), count_accesses(around, [operand])
    for key, old in before.items():
        assert (after[key].reads, after[key].fills) == (factor * old.reads, factor * old.fills)
        assert after[key].capacity == old.capacity * (factor if key[0] == "L0" else 1)
    assert temporal_iterations(around) == factor * temporal_iterations(levels)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_splitting_a_loop_in_two_changes_nothing(data: st.DataObject) -> None:
    levels = data.draw(nests())
    operand = data.draw(operands(len(levels)))
    depth = data.draw(st.integers(0, len(levels) - 1))
    rank, outer, inner = data.draw(st.sampled_from("mnk")), data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    at = data.draw(st.integers(0, len(levels[depth].temporal)))

    def with_loops(*loops: Loop) -> list[Level]:
        old = levels[depth].temporal
        changed = replace(levels[depth], temporal=(*old[:at], *loops, *old[at:]))
        return [changed if number == depth else level for number, level in enumerate(levels)]

    whole = count_accesses(with_loops(Loop(rank, outer * inner)), [operand])
    halves = count_accesses(with_loops(Loop(rank, outer), Loop(rank, inner)), [operand])
    assert whole == halves


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_order_of_loops_that_do_not_index_a_tensor_is_all_the_same(data: st.DataObject) -> None:
    levels = data.draw(nests(most=2000))
    operand = Operand(
        "A",
        ((("m", 1),),),
        False,
        tuple(data.draw(st.lists(st.booleans(), min_size=len(levels), max_size=len(levels)).filter(any))),
    )
    shuffled = []
    for level in levels:
        others = [loop for loop in level.temporal if loop.rank != "m"]
        runs: list[Loop] = []
        pending: list[Loop] = []
        for loop in level.temporal:
            if loop.rank == "m":
                runs += [*reversed(pending), loop]
                pending = []
            else:
                pending.append(loop)
        runs += reversed(pending)
        assert sorted(map(repr, runs)) == sorted(map(repr, level.temporal)), others
        shuffled.append(replace(level, temporal=tuple(runs)))
    assert count_accesses(shuffled, [operand]) == count_accesses(levels, [operand])


def test_counts_past_int64_are_floats_and_never_wrap() -> None:
    large = np.array([2**20, 2**21])
    levels = [Level("L0", tuple(Loop(rank, large) for rank in "mnk")), Level("L1", (Loop("m", 2**20),))]
    operand = Operand("A", ((("m", 1),), (("k", 1),)), False, (True, False))
    (counts,) = count_accesses(levels, [operand]).values()
    assert isinstance(counts, AccessCounts)
    np.testing.assert_array_equal(counts.reads, [2.0**80, 2.0**83])
    assert (
        count_accesses([Level("L0", tuple(Loop(rank, 2**40) for rank in "mnk"))], [replace(operand, keeps=(True,))])[
            "L0", "A"
        ].reads
        == 2**120
    )


def test_the_published_overflow_is_reproduced_only_when_asked() -> None:
    """Distinct elements as (full * tile mod 2^64) / tile: 2^40 elements in tiles of 2^24 wrap to none."""
    levels = [Level("L0", (Loop("m", 2**16),)), Level("L1", (Loop("m", 2**24), Loop("k", 4)))]
    operand = Operand("Z", ((("m", 1),),), True, (True, True))
    plain, wrapped = (count_accesses(levels, [operand], wrap_distinct=wrap)["L1", "Z"] for wrap in (False, True))
    assert (plain.distinct, plain.reads) == (2**40, 3 * 2**40)
    assert (wrapped.distinct, wrapped.reads) == (0, 4 * 2**40)


def test_a_nest_runs_time_and_space_to_all_its_points() -> None:
    levels = [Level("L0", (Loop("m", 3),), (Loop("n", 4),)), Level("L1", (Loop("k", 5),))]
    assert math.prod((temporal_iterations(levels), busy_units(levels))) == 60
