"""What the mapper is given: one Einsum on one unit's chain of memories, in numbers, and what it may choose from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from dse.model.nest import Operand


@dataclass(frozen=True)
class ChainLevel:
    """A memory of the chain: pJ per element read and written, elements that one instance holds, and the fan-out below.

    `seconds` is the time that one instance takes for an element, by the bandwidth's key; a key carries the traffic that
    `dse.specs.architecture.DIRECTIONS` says.
    """

    memory: str
    read_pj: float
    write_pj: float
    capacity: float
    seconds: Mapping[str, float] = field(default_factory=dict)
    axes: tuple[tuple[str, int], ...] = ()
    is_dram: bool = False


@dataclass(frozen=True)
class Constraints:
    """What a person demands of a mapping; slots are memories (temporal loops) and axes (spatial ones).

    `factors` bounds the factor of a rank at a slot, as (least, most); `ranks` are the only ones that a slot may step
    over; `keep` and `bypass` name tensors by memory; `order` lists ranks by memory, outermost first, before any other;
    `utilization` is the least share of the unit's PEs to be busy.
    """

    factors: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    ranks: Mapping[str, frozenset[str]] = field(default_factory=dict)
    keep: Mapping[str, frozenset[str]] = field(default_factory=dict)
    bypass: Mapping[str, frozenset[str]] = field(default_factory=dict)
    order: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    utilization: float = 0.0

    def allows(self, slot: str, rank: str, factor: int) -> bool:
        """Whether a slot may step over a rank by a factor."""
        least, most = self.factors.get((slot, rank), (1, factor))
        barred = factor > 1 and slot in self.ranks and rank not in self.ranks[slot]
        return least <= factor <= most and not barred


@dataclass(frozen=True)
class Problem:
    """An Einsum to map: its rank variables and their sizes, operands, and the chain from the outermost memory inward.

    `tensors` gives the tensor behind each operand; `homes` the level where a tensor lives, 0 where not given. An
    operation takes `operation_s` seconds on one PE and `operation_pj`.

    An Einsum that may be fused has a level 0 of loops alone, over the ranks `shared` and the same for every Einsum fused
    with it, those of `batch` outermost; then `stays` says what tensors may do in the buffer beside being kept in tiles: LEFT there for Einsums that
    follow, or living HERE alone. A tensor that stays takes all that its shared loops leave, which is counted once for
    all Einsums: its own tiles take no room.

    A fan-out may spread ranks of `imperfect` over PEs that do not divide them.
    """

    einsum: str
    unit: str
    ranks: tuple[str, ...]
    sizes: tuple[int, ...]
    operands: tuple[Operand, ...]
    tensors: Mapping[str, str]
    levels: tuple[ChainLevel, ...]
    operation_s: float
    operation_pj: float
    word_bytes: float = 2.0
    homes: Mapping[str, int] = field(default_factory=dict)
    constraints: Constraints = Constraints()
    shared: tuple[str, ...] = ()
    batch: tuple[str, ...] = ()
    stays: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    imperfect: frozenset[str] = frozenset()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The tensors, each once."""
        return tuple(dict.fromkeys(self.tensors[operand.name] for operand in self.operands))

    @cached_property
    def memories(self) -> tuple[str, ...]:
        """Memories of the chain, outermost first."""
        return tuple(level.memory for level in self.levels)

    @cached_property
    def outermost(self) -> int:
        """The outermost level that is a memory."""
        return next(depth for depth, level in enumerate(self.levels) if level.memory)

    @cached_property
    def buffer(self) -> int | None:
        """The level whose use is called the mapping's capacity: the outermost one that is bounded."""
        return next((depth for depth, level in enumerate(self.levels) if level.capacity != float("inf")), None)

    def shared_loops(self, inside: Sequence[int], order: Sequence[int]) -> tuple[tuple[str, int], ...]:
        """Loops around extents, outermost first, where `order` gives the ranks that step, innermost first."""
        return tuple((self.ranks[rank], int(self.sizes[rank] // inside[rank])) for rank in reversed(order))

    @cached_property
    def keep_choices(self) -> list[list[KeepChoice]]:
        """By level, the sets of tensors that it may keep, the largest first."""
        found = []
        for depth, memory in enumerate(self.memories):
            must, never = (side.get(memory, frozenset()) for side in (self.constraints.keep, self.constraints.bypass))
            choices: list[dict[str, str]] = [{}]
            for name in self.names:
                home = self.homes.get(name, 0)
                options = [TILED] if name in must or depth == home else [PASSED] if name in never else [TILED, PASSED]
                if depth < home:
                    options = [PASSED]
                if depth == self.buffer and name not in never:
                    options += self.stays.get(name, ())
                choices = [{**chosen, name: how} for chosen in choices for how in options]
            found.append(
                [
                    KeepChoice(chosen, frozenset(n for n in self.names if self.homes.get(n, 0) == depth))
                    for chosen in choices
                ]
            )
        return found


PASSED, TILED, LEFT, HERE = "passed", "tiled", "left", "here"
"""What a level does with a tensor: nothing, or it keeps tiles of it; the buffer may also keep all of it."""


@dataclass(frozen=True)
class KeepChoice:
    """What a level does with each tensor; `homes` are those that come from there or end up there anyway."""

    how: Mapping[str, str]
    homes: frozenset[str]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The tensors kept."""
        return tuple(name for name, how in self.how.items() if how != PASSED)

    @cached_property
    def tiled(self) -> tuple[str, ...]:
        """The tensors whose tiles take room of their own."""
        return tuple(name for name, how in self.how.items() if how == TILED)

    @cached_property
    def ending(self) -> frozenset[str]:
        """The tensors that no level further out has."""
        return self.homes | {name for name, how in self.how.items() if how == HERE}

    @cached_property
    def staying(self) -> tuple[tuple[str, str], ...]:
        """The tensors that stay for other Einsums, and how."""
        return tuple((name, how) for name, how in self.how.items() if how in (LEFT, HERE))


@dataclass(frozen=True)
class LevelMapping:
    """What a mapping does at a level: its loops outermost first, factors by axis, and the tensors that it keeps."""

    memory: str
    temporal: tuple[tuple[str, int], ...]
    spatial: Mapping[str, tuple[tuple[str, int], ...]]
    keep: tuple[str, ...]


Nest = Sequence[LevelMapping]
"""A mapping of one Einsum, outermost level first."""


@dataclass(frozen=True)
class Point:
    """A mapping that was found, and what it costs by metric."""

    nest: Nest
    costs: Mapping[str, float]
