"""The analysis of passes against enumeration of all orders of visits, on random cascades."""

from __future__ import annotations

from itertools import product

from hypothesis import HealthCheck, Phase, given, settings

from dse.cascade.passes import analyze_rank
from tests.cascade.pass_enumeration import fewest_passes
from tests.cascade.random_cascades import BARRIERS, Draft, drafts, show

RANDOM = settings(max_examples=700, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@RANDOM
@given(drafts())
def test_the_analysis_finds_the_fewest_passes(draft: Draft) -> None:
    report = analyze_rank(draft.cascade, "M")
    assert report.passes == fewest_passes(draft.cascade, "M", draft.length), show(draft.cascade)
    assert [barrier.number for barrier in report.barriers] == list(range(2, report.passes + 1)), show(draft.cascade)


def test_random_cascades_reach_every_number_of_passes() -> None:
    reached: set[tuple[str, int]] = set()

    @settings(RANDOM, derandomize=True, phases=[Phase.generate])
    @given(drafts())
    def collect(draft: Draft) -> None:
        passes = fewest_passes(draft.cascade, "M", draft.length)
        reached.add(("tiled" if draft.cascade.partition else "whole", passes))
        reached.add(("steps" if draft.cascade.initial else "still", passes))

    collect()
    wanted = product(["tiled", "whole", "steps", "still"], range(1, BARRIERS + 1))
    assert not {*wanted, ("tiled", 0)} - reached
    assert BARRIERS + 1 in {passes for _, passes in reached}
