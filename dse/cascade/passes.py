"""How many passes a cascade must make over a rank, whatever the mapping, and what stays live between them.

A pass over a fiber visits each of its elements once, in any order. An Einsum that iterates over the whole rank does its
work for an element while the element is visited. A value that a reduction over the rank makes is there only when every
element has been visited; an Einsum that needs it for each element has to visit them again: that is a barrier, and one
more pass. (Source of the definition: Nayak et al., MICRO 2024, section III.)

The least number of passes follows from the cascade alone. Each tensor gets an availability: it *streams* in pass k
where its element is there once its element of the fiber was visited, or it is *complete* after pass k.

* An Einsum over the whole rank runs in the pass p = max(1, k of what it reads streaming, k + 1 of what it reads
  complete). What it makes streams in p if it keeps the rank, else it is complete after p.
* An Einsum over an outer part of the rank only (M1 of M1, M0), or over nothing of it, is no pass. It follows what it
  reads: streaming if some of that streams later than all the rest is complete, else complete.
* Reading the coordinate that an iteration just made, or the one before, streams; reading the last one is complete.

Why no mapping does better: by induction over the rules. What is complete after pass k contains work on every element in
pass k or later, so it is not there before the last visit of pass k. Each element but the last must be visited after
that for an Einsum that reads it, which is in pass k + 1 at the earliest. Why one mapping does as well: visit elements
in the order of the iterations, and at each visit do all the work of that pass. (A fiber shorter than the chain of
barriers can be done in fewer passes, since its last elements are still at hand; the analysis is for all lengths.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from dse.cascade.cascade import Cascade, is_shifted, rank_of
from dse.cascade.einsum import Access, Einsum
from dse.cascade.parser import CascadeError
from dse.cascade.polynomial import Polynomial


@dataclass(frozen=True)
class Family:
    """A rank with the parts it is split into, outermost first; the parts are the rank itself where it is whole."""

    rank: str
    parts: tuple[str, ...]

    def covered_by(self, variables: tuple[str, ...]) -> bool:
        """Whether variables run over the whole rank: over the rank itself, or over all of its parts."""
        ranks = {rank_of(variable) for variable in variables}
        return self.rank in ranks or set(self.parts) <= ranks

    def outermost_in(self, variables: tuple[str, ...]) -> bool:
        """Whether variables run over the rank's outermost part, so that what they index comes piece by piece."""
        return bool({self.rank, self.parts[0]} & {rank_of(variable) for variable in variables})

    def names(self) -> frozenset[str]:
        """The rank and its parts."""
        return frozenset((self.rank, *self.parts))


@dataclass(frozen=True)
class Availability:
    """When a tensor is there: element by element in pass `level` where it streams, else all of it after that pass."""

    level: int
    streams: bool


@dataclass(frozen=True)
class Barrier:
    """Why a pass starts: `einsum` needs `waits_for` for each element, and `reduction` makes that from every element."""

    number: int
    einsum: str
    rereads: str | None
    waits_for: str
    reduction: str
    variable: str

    def __str__(self) -> str:
        again = f"reads {self.rereads} again" if self.rereads else f"works on each {self.variable}"
        through = "" if self.waits_for == self.reduction else f"{self.waits_for} waits for "
        needs = " needs" if self.waits_for == self.reduction else ", which needs"
        return f"pass {self.number} starts at {self.einsum}: it {again}, but {through}{self.reduction}{needs} every {self.variable}"


@dataclass(frozen=True)
class PassReport:
    """What a cascade says of one rank.

    `einsums` gives the pass that each Einsum runs in (0: before the first); `tensors` the passes over each tensor that
    has the rank; `footprints` the elements of it that must be live for one fiber, whatever the mapping; `spills` what
    leaves and enters the chip where a fiber that must be live does not fit; `traversals` the passes over each fiber of
    an inner part.
    """

    rank: str
    passes: int
    barriers: tuple[Barrier, ...]
    einsums: Mapping[str, int]
    tensors: Mapping[str, int]
    footprints: Mapping[str, Polynomial]
    spills: Mapping[str, Polynomial]
    traversals: Mapping[str, int]


def passes_in_words(count: int) -> str:
    """`1 pass`, `3 passes`."""
    return f"{count} pass{'' if count == 1 else 'es'}"


def families(cascade: Cascade) -> dict[str, Family]:
    """Every rank that is not a part of another one, with its parts."""
    parts = {part for split in cascade.partition.values() for part in split}
    whole = [*cascade.partition, *(rank for rank in cascade.ranks if rank not in parts)]
    return {rank: Family(rank, tuple(cascade.partition.get(rank, (rank,)))) for rank in dict.fromkeys(whole)}


def analyze_rank(cascade: Cascade, rank: str) -> PassReport:
    """Passes over a rank or a part of one, barriers, and live footprints. Raises KeyError for an unknown rank."""
    known = families(cascade)
    if rank in known:
        family = known[rank]
    elif rank in {part for each in known.values() for part in each.parts}:
        family = Family(rank, (rank,))
    else:
        raise KeyError(rank)
    flow = _Flow(cascade, family, lambda einsum: family.covered_by(einsum.variables))
    passes = max((flow.passes[name] for name in flow.passes if family.covered_by(cascade[name].variables)), default=0)
    tensors = {}
    for tensor in _tensors_over(cascade, family):
        readers = {einsum.name for einsum in cascade.einsums if einsum.reads(tensor)}
        own = _Flow(cascade, family, lambda einsum: einsum.name in readers and family.covered_by(einsum.variables))
        tensors[tensor] = max(
            (own.passes[name] for name in readers if family.covered_by(cascade[name].variables)), default=0
        )
    footprints = {tensor: _live(cascade, family, flow, tensor) for tensor in _tensors_over(cascade, family)}
    inner = {part: analyze_rank(cascade, part).passes for part in family.parts[1:]}
    return PassReport(
        rank,
        passes,
        tuple(flow.barriers(passes)),
        {einsum.name: flow.passes[einsum.name] for einsum in cascade.computed},
        tensors,
        footprints,
        {tensor: _spill(cascade, tensor, tensors[tensor], size) for tensor, size in footprints.items()},
        inner,
    )


def check_ends(cascade: Cascade) -> None:
    """Refuse an iteration that waits for its own end. Raises CascadeError."""
    for family in families(cascade).values():
        if family.names() & set(cascade.iterative.values()):
            _Flow(cascade, family, lambda einsum: family.covered_by(einsum.variables))


def accumulations_over(cascade: Cascade, rank: str) -> int:
    """How many Einsums reduce over a rank or a part of it, or make the next value of an iteration over it."""
    ranks = families(cascade)[rank].names()
    stepping = {variable: end for variable, end in cascade.iterative.items() if end in ranks}
    return sum(
        bool(ranks & {rank_of(variable) for variable in einsum.reduced}) or is_shifted(einsum.output, stepping)
        for einsum in cascade.einsums
    )


def _tensors_over(cascade: Cascade, family: Family) -> list[str]:
    """Tensors that some Einsum makes or reads along the rank, inputs first; views are their tensors."""
    views = {einsum.name for einsum in cascade.einsums if einsum.is_view}
    found = {}
    for access in _accesses(cascade):
        if access.tensor not in views and family.names() & {rank_of(variable) for variable in access.variables}:
            found[access.tensor] = True
    return list(found)


def _accesses(cascade: Cascade) -> Iterator[Access]:
    yield from cascade.inputs
    for einsum in cascade.einsums:
        yield einsum.output
        yield from einsum.inputs


class _Flow:
    """Availabilities of all tensors along one rank, where the Einsums that `visits` accepts work element by element."""

    def __init__(self, cascade: Cascade, family: Family, visits: Callable[[Einsum], bool]) -> None:
        self.cascade, self.family, self.visits = cascade, family, visits
        self.made: dict[str, Availability] = {}
        self.passes: dict[str, int] = {}
        self.order = {einsum.name: number for number, einsum in enumerate(cascade.einsums)}
        before = None
        while before != self.made:  # a value carried round an iteration may raise what reads it earlier in the order
            before = dict(self.made)
            climbing = [name for name, number in self.passes.items() if number > len(cascade.einsums)]
            if climbing:
                waiting = " and ".join(climbing[:2])
                raise CascadeError(
                    f"{waiting} can never be made: what it waits for waits for it", cascade[climbing[0]].text
                )
            for einsum in cascade.einsums:
                self.passes[einsum.name], self.made[einsum.name] = self.place(einsum)

    def place(self, einsum: Einsum) -> tuple[int, Availability]:
        """The pass that an Einsum runs in, and when what it makes is there."""
        read = [self.availability(einsum, access) for access in einsum.inputs]
        streaming = max((each.level for each in read if each.streams), default=0)
        complete = max((each.level for each in read if not each.streams), default=0)
        keeps = self.family.outermost_in(einsum.output.variables)
        if self.visits(einsum):
            number = max(1, streaming, complete + 1)
            return number, Availability(number, keeps)
        level = max(streaming, complete)
        return level, Availability(level, keeps and streaming > complete)

    def availability(self, einsum: Einsum, access: Access) -> Availability:
        """When what an Einsum reads is there for it."""
        along = self.family.outermost_in(access.variables)
        if access.tensor not in self.order:
            return Availability(0, along)
        if self.is_initial(access) or (self.is_carried(access) and not self.iterates_family()):
            return Availability(0, False)
        made = self.made.get(access.tensor, Availability(0, along))
        return made if along else Availability(made.level, False)

    def is_initial(self, access: Access) -> bool:
        """Whether a value was set before the first Einsum."""
        starts = [start.output for start in self.cascade.initial if start.name == access.tensor]
        return any(
            not given.variables and given == read
            for start in starts
            for given, read in zip(start.indices, access.indices, strict=True)
        )

    def is_carried(self, access: Access) -> bool:
        """Whether a value comes from the iteration before."""
        maker = self.cascade[access.tensor]
        stepping = is_shifted(maker.output, self.cascade.iterative) and not is_shifted(access, self.cascade.iterative)
        return stepping and bool(set(access.variables) & set(self.cascade.iterative))

    def iterates_family(self) -> bool:
        """Whether an iteration runs along the rank, so that its values stream in order."""
        return bool(self.family.names() & set(self.cascade.iterative.values()))

    def barriers(self, last: int) -> list[Barrier]:
        """The chain of barriers that ends at the last pass."""
        found: list[Barrier] = []
        at = next((e for e in self.cascade.einsums if self.visits(e) and self.passes[e.name] == last), None)
        while at is not None and self.passes[at.name] > 1:
            at, cause = self.start_of_pass(at)
            completing, visiting = self.reduction_behind(cause)
            found.append(self.barrier(at, cause, completing, visiting))
            at = visiting
        return found[::-1]

    def start_of_pass(self, einsum: Einsum) -> tuple[Einsum, Access]:
        """The Einsum that starts the pass that `einsum` runs in, and what it waits for."""
        number = self.passes[einsum.name]
        above = list(self.upstream(einsum, number))
        for each in sorted(above, key=lambda each: not self.visits(each)):
            for access in each.inputs:
                when = self.availability(each, access)
                if not when.streams and when.level == number - 1:
                    return (each if self.visits(each) else einsum), access
        raise AssertionError("a pass starts somewhere")

    def reduction_behind(self, access: Access) -> tuple[Einsum, Einsum]:
        """The reduction whose end `access` waits for, and the Einsum over the whole rank that feeds it."""
        completing = self.cascade[access.tensor]
        for each in self.upstream(completing, self.made[access.tensor].level):
            if not self.family.outermost_in(each.output.variables):
                completing = each
            if self.visits(each):
                return completing, each
        raise AssertionError("what is complete was fed by a pass")

    def upstream(self, einsum: Einsum, level: int) -> Iterator[Einsum]:
        """An Einsum and those that make what it needs in or after pass `level`, nearest first; what is complete first."""
        seen, waiting = {einsum.name}, [einsum]
        while waiting:
            each = waiting.pop(0)
            yield each
            needed = [
                (when.streams, access.tensor)
                for access in each.inputs
                if access.tensor in self.order and (when := self.availability(each, access)).level == level
            ]
            for _, name in sorted(needed, key=lambda item: item[0]):
                if name not in seen:
                    seen.add(name)
                    waiting.append(self.cascade[name])

    def barrier(self, einsum: Einsum, cause: Access, completing: Einsum, visiting: Einsum) -> Barrier:
        number = self.passes[einsum.name]
        again = next(
            (
                str(each)
                for each in einsum.inputs
                if each != cause
                and self.family.outermost_in(each.variables)
                and self.availability(einsum, each).level < number
            ),
            None,
        )
        variables = [v for v in visiting.variables if rank_of(v) in self.family.names()]
        made = str(cause) if cause.tensor == completing.name else str(completing.output)
        return Barrier(number, einsum.name, again, str(cause), made, ",".join(variables))


def _live(cascade: Cascade, family: Family, flow: _Flow, tensor: str) -> Polynomial:
    """Elements of a tensor's fiber that must be held from one pass to a later one: all of it, or one."""
    made = flow.made.get(tensor)
    readers = [(einsum, access) for einsum in cascade.einsums for access in einsum.inputs if access.tensor == tensor]
    views = [einsum.name for einsum in cascade.einsums if einsum.is_view and einsum.inputs[0].tensor == tensor]
    readers += [(einsum, access) for einsum in cascade.einsums for access in einsum.inputs if access.tensor in views]
    readers = [
        (einsum, access) for einsum, access in readers if family.outermost_in(access.variables) and not einsum.is_view
    ]
    times = [
        flow.passes[einsum.name]
        + (0 if flow.visits(einsum) or flow.made[einsum.name].streams else _waits(flow, einsum))
        for einsum, _ in readers
    ]
    first = made.level if made is not None and made.streams else min(times, default=0)
    if all(time <= first for time in times):
        return Polynomial.of(1)
    ranks = [rank_of(v) for v in readers[times.index(max(times))][1].variables if rank_of(v) in family.names()]
    if set(ranks) >= set(family.parts):
        return Polynomial.of(family.rank)
    return Polynomial.product(ranks)


def _spill(cascade: Cascade, tensor: str, passes: int, live: Polynomial) -> Polynomial:
    """Elements of a fiber written and read again where it is not held: an input is read once more for each later pass,
    any other tensor written once as well, and read for each pass after the one that makes it."""
    if live == Polynomial.of(1):
        return Polynomial()
    is_input = tensor in {access.tensor for access in cascade.inputs}
    times = passes - 1 if is_input else 1 + max(1, passes - 1)
    return live * Polynomial.of(times)


def _waits(flow: _Flow, einsum: Einsum) -> float:
    """Half a pass where an Einsum that visits no element waits for the end of the pass that it reads from."""
    return (
        0.5
        if any(
            not each.streams and each.level == flow.passes[einsum.name] and each.level > 0
            for each in (flow.availability(einsum, access) for access in einsum.inputs)
        )
        else 0.0
    )
