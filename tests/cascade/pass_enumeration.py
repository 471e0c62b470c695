"""The least number of passes over a rank by trying every order of visits: nothing of `dse.cascade.passes` is used.

Every Einsum is unrolled into operations, one per point of its iteration space. The rank under test gets `length`
elements, all other ranks one. Where the rank is split, its outermost part gets `length` tiles, its inner parts two
coordinates each, and a visit is to a whole tile.

* An operation whose iteration space holds the whole rank belongs to one element and runs only while that is visited.
  All other operations run at any time.
* An operation runs once all that it reads is final. Inputs and initial coordinates are final from the start, any other
  coordinate of a tensor once all operations that write it ran.
* A pass visits each element once, in any order, which may differ from pass to pass. At each visit all that can run
  does: running early never hurts.

`length` must exceed the chain of barriers, and by more where iterations start from initial coordinates: the elements
that are visited last, and those that read initial values, need no later pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from dse.cascade.cascade import Cascade, rank_of
from dse.cascade.einsum import Access, Einsum, evaluate_index

INNER = 2  # coordinates of each inner part of a split rank

Coordinate = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Operation:
    """One point of an Einsum: the element it belongs to (None: any time), what it writes and what it reads."""

    element: int | None
    writes: Coordinate
    reads: tuple[Coordinate, ...]


def fewest_passes(cascade: Cascade, rank: str, length: int) -> int:
    """The least number of passes over `rank` after which every operation ran. Raises ValueError if there is none."""
    search = _Search(_needs(cascade, list(_unroll(cascade, rank, length))), length)
    finished = {search.run(0, None)}
    number = 0
    while search.everything not in finished:
        after = search.one_pass(finished)
        if after == finished:
            raise ValueError("some operations can never run: they wait for one another")
        finished, number = after, number + 1
    return number


def _unroll(cascade: Cascade, rank: str, length: int) -> Iterator[Operation]:
    parts = cascade.partition.get(rank, ())
    inner = INNER ** len(parts[1:])
    shapes = dict.fromkeys((*cascade.ranks, *cascade.partition), 1)
    shapes |= dict.fromkeys(parts, INNER) | {rank: length * inner} | ({parts[0]: length} if parts else {})
    for einsum in cascade.einsums:
        if einsum.where:
            raise ValueError(f"filters are not unrolled: {einsum}")
        for point in product(*(range(shapes[rank_of(variable)]) for variable in einsum.variables)):
            values = dict(zip(einsum.variables, point, strict=True))
            yield Operation(
                _element(einsum, values, rank, parts, inner),
                _coordinate(einsum.output, values, shapes),
                tuple(_coordinate(access, values, shapes) for access in einsum.inputs),
            )


def _element(einsum: Einsum, values: Mapping[str, int], rank: str, parts: tuple[str, ...], inner: int) -> int | None:
    """The element (or tile) that an operation may run in only."""
    at = {rank_of(variable): values[variable] for variable in einsum.variables}
    if rank in at:
        return at[rank] // inner
    return at[parts[0]] if parts and all(part in at for part in parts) else None


def _coordinate(access: Access, values: Mapping[str, int], shapes: Mapping[str, int]) -> Coordinate:
    return access.tensor, tuple(int(evaluate_index(index, values, shapes)) for index in access.indices)


def _needs(cascade: Cascade, operations: list[Operation]) -> list[tuple[int | None, int]]:
    """Each operation's element, and the set of operations (a bit each) that make all that it reads final."""
    writers: dict[Coordinate, int] = {}
    for bit, operation in enumerate(operations):
        writers[operation.writes] = writers.get(operation.writes, 0) | 1 << bit
    found = []
    for operation in operations:
        needed = 0
        for read in operation.reads:
            if read not in writers and not _given(cascade, read):
                raise ValueError(f"nothing makes {read}")
            needed |= writers.get(read, 0)
        found.append((operation.element, needed))
    return found


def _given(cascade: Cascade, read: Coordinate) -> bool:
    """Whether a coordinate is there from the start."""
    tensor, at = read
    if any(access.tensor == tensor for access in cascade.inputs):
        return True
    starts = [start.output.indices for start in cascade.initial if start.name == tensor]
    return any(
        all(index.variables or evaluate_index(index, {}, {}) == place for index, place in zip(indices, at, strict=True))
        for indices in starts
    )


class _Search:
    """Breadth-first over sets of finished operations, which are integers with one bit per operation."""

    def __init__(self, needs: list[tuple[int | None, int]], length: int) -> None:
        self.everything = (1 << len(needs)) - 1
        self.length = length
        bits = [(element, 1 << bit, needed) for bit, (element, needed) in enumerate(needs)]
        self.allowed: dict[int | None, list[tuple[int, int]]] = {
            visited: [(bit, needed) for element, bit, needed in bits if element is None or element == visited]
            for visited in (None, *range(length))
        }
        self.known: dict[tuple[int, int | None], int] = {}

    def run(self, finished: int, visited: int | None) -> int:
        """All that is finished once everything that can run while `visited` is visited did."""
        if (finished, visited) not in self.known:
            after, before = finished, None
            while after != before:
                before = after
                for bit, needed in self.allowed[visited]:
                    if not after & bit and needed & after == needed:
                        after |= bit
            self.known[finished, visited] = after
        return self.known[finished, visited]

    def one_pass(self, starts: Iterable[int]) -> set[int]:
        """What can be finished after one more pass from one of the starts, over all orders of visits."""
        reached = {frozenset[int](): set(starts)}
        for _ in range(self.length):
            following: dict[frozenset[int], set[int]] = {}
            for visited, states in reached.items():
                for element in set(range(self.length)) - visited:
                    more = following.setdefault(visited | {element}, set())
                    more.update(self.run(state, element) for state in states)
            reached = {visited: _largest(states) for visited, states in following.items()}
        (after,) = reached.values()
        return after


def _largest(states: set[int]) -> set[int]:
    """The states that are in no other one: what can be done from a smaller one can be done from the larger one."""
    kept: list[int] = []
    for state in sorted(states, key=int.bit_count, reverse=True):
        if not any(state & other == state for other in kept):
            kept.append(state)
    return set(kept)
