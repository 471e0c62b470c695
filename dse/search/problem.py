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

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The tensors, each once."""
        return tuple(dict.fromkeys(self.tensors[operand.name] for operand in self.operands))

    @cached_property
    def memories(self) -> tuple[str, ...]:
        """Memories of the chain, outermost first."""
        return tuple(level.memory for level in self.levels)

    @cached_property
    def buffer(self) -> int | None:
        """The level whose use is called the mapping's capacity: the outermost one that is bounded."""
        return next((depth for depth, level in enumerate(self.levels) if level.capacity != float("inf")), None)

    def home(self, tensor: str) -> int:
        """The level where a tensor comes from or ends up."""
        return self.homes.get(tensor, 0)

    @cached_property
    def keep_choices(self) -> list[list[tuple[str, ...]]]:
        """By level, the sets of tensors that it may keep, the largest first."""
        found = []
        for depth, memory in enumerate(self.memories):
            must, never = (side.get(memory, frozenset()) for side in (self.constraints.keep, self.constraints.bypass))
            choices: list[tuple[str, ...]] = [()]
            for name in self.names:
                if depth < self.home(name):
                    options = [False]
                elif name in must or depth == self.home(name):
                    options = [True]
                else:
                    options = [False] if name in never else [True, False]
                choices = [(*chosen, name) if keeps else chosen for chosen in choices for keeps in options]
            found.append(choices)
        return found


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
