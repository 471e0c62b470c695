"""Rules of the analysis that are broken on purpose: enumeration must notice each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dse.cascade.einsum import Access, Einsum
from dse.cascade.passes import Availability, Family, _Flow, analyze_rank
from tests.cascade.known_cascades import KNOWN
from tests.cascade.pass_enumeration import fewest_passes
from tests.cascade.random_cascades import LENGTH, search


def no_barrier(patch: pytest.MonkeyPatch) -> None:
    """What is complete is there for each element of the pass that completes it."""

    def place(flow: _Flow, einsum: Einsum) -> tuple[int, Availability]:
        number, made = intact(flow, einsum)
        if not flow.visits(einsum):
            return number, made
        read = [flow.availability(einsum, each) for each in einsum.inputs]
        number = max([1, *(each.level for each in read)])
        return number, Availability(number, made.streams)

    intact = _Flow.place
    patch.setattr(_Flow, "place", place)


def last_step_streams(patch: pytest.MonkeyPatch) -> None:
    """Reading the last coordinate of an iteration is like reading the one just made."""

    def availability(flow: _Flow, einsum: Einsum, access: Access) -> Availability:
        found = intact(flow, einsum, access)
        if access.tensor in flow.order and flow.family.outermost_in(flow.cascade[access.tensor].output.variables):
            return Availability(found.level, flow.made.get(access.tensor, found).streams)
        return found

    intact = _Flow.availability
    patch.setattr(_Flow, "availability", availability)


def inner_part_streams(patch: pytest.MonkeyPatch) -> None:
    """What keeps any part of the rank comes piece by piece."""
    patch.setattr(
        Family, "outermost_in", lambda family, variables: bool(family.names() & {each.upper() for each in variables})
    )


def tiles_always_stream(patch: pytest.MonkeyPatch) -> None:
    """A value per tile streams even where it waits for a complete one."""

    def place(flow: _Flow, einsum: Einsum) -> tuple[int, Availability]:
        number, made = intact(flow, einsum)
        return number, Availability(made.level, made.streams or flow.family.outermost_in(einsum.output.variables))

    intact = _Flow.place
    patch.setattr(_Flow, "place", place)


def tiles_never_stream(patch: pytest.MonkeyPatch) -> None:
    """An Einsum over tiles alone makes complete values, even where it reads streaming ones."""

    def place(flow: _Flow, einsum: Einsum) -> tuple[int, Availability]:
        number, made = intact(flow, einsum)
        return number, Availability(made.level, made.streams and flow.visits(einsum))

    intact = _Flow.place
    patch.setattr(_Flow, "place", place)


def scalars_are_free(patch: pytest.MonkeyPatch) -> None:
    """What visits no element is there from the start."""

    def place(flow: _Flow, einsum: Einsum) -> tuple[int, Availability]:
        return intact(flow, einsum) if flow.visits(einsum) else (0, Availability(0, False))

    intact = _Flow.place
    patch.setattr(_Flow, "place", place)


BROKEN: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    no_barrier: "a scalar for each element",
    last_step_streams: "the last step",
    inner_part_streams: "across tiles",
    tiles_always_stream: "tiles corrected by a sum",
    tiles_never_stream: "tiles that stream in the second pass",
    scalars_are_free: "a chain of three",
}


@pytest.mark.parametrize("break_rule", BROKEN, ids=lambda rule: rule.__name__)
def test_a_broken_rule_is_noticed(
    break_rule: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    cascade, passes = KNOWN[BROKEN[break_rule]]
    monkeypatch.setattr(_Flow, "barriers", lambda flow, last: [])  # numbers are compared, not what explains them
    assert analyze_rank(cascade, "M").passes == passes
    break_rule(monkeypatch)
    assert analyze_rank(cascade, "M").passes != passes == fewest_passes(cascade, "M", LENGTH)


@pytest.mark.parametrize(
    "break_rule",
    [rule for rule in BROKEN if rule is not tiles_never_stream],  # which climbs for ever round an iteration
    ids=lambda rule: rule.__name__,
)
def test_random_cascades_notice_a_broken_rule(
    break_rule: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Flow, "barriers", lambda flow, last: [])
    break_rule(monkeypatch)
    search(lambda draft: analyze_rank(draft.cascade, "M").passes != fewest_passes(draft.cascade, "M", draft.length))
