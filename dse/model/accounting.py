"""Conventions that change results, each a named switch: True counts as the published evaluation of Nayak et al., MICRO 2024, does.

`PUBLISHED` turns on all that the published evaluation does and reproduces its numbers; `CORRECTED` turns all off and is
the default; `LEAKING` adds to that what leaks.
What belongs to one design (an omission, a cost of its own) stands in the `published:` block of that design's mapping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from dse.components.library import TableConventions


@dataclass(frozen=True)
class Accounting:
    """Switches; what each does to the numbers is said beside it. All but `leakage` are what the published evaluation does."""

    name: str
    one_register_file: bool = False
    """Charge the register accesses of one PE, not of all that are busy (registers are then under 0.05 % of energy)."""
    unscaled_registers: bool = False
    """Charge every register file as 32 bits by 64 words at least, in energy and area (a PE is then 6-9 times larger)."""
    single_bank_buffers: bool = False
    """Price a buffer as one bank with one port, whatever the architecture asks for."""
    wrapped_distinct: bool = False
    """Compute the number of distinct output elements in 64 bits that overflow; partial-sum reads come out too many
    once counts are large (adds 0.5 to 7 % of energy to some designs from 64K tokens on)."""
    dropped_reads: bool = False
    """Leave out DRAM and spilled-buffer reads of a tensor whose reads equal its updates."""
    design_quirks: bool = False
    """Apply the `published:` block of each mapping: what that design's evaluation leaves out or counts otherwise."""
    rounded_tables: bool = False
    """Round energies per action to 1e-6 pJ, as the published reference tables are."""
    container_area: bool = False
    """Add 1 um2 for each spatial container of the architecture: each column of a 2D array, and each array."""

    leakage: bool = False
    """Charge the leakage of every component on the chip, busy or idle, for as long as the whole takes."""

    @property
    def tables(self) -> TableConventions:
        """How the component tables are read."""
        return TableConventions(not self.unscaled_registers, not self.single_bank_buffers, self.rounded_tables)


SWITCHES = tuple(field.name for field in fields(Accounting) if field.name != "name")
CORRECTED = Accounting("corrected")
PUBLISHED = Accounting("published", **{name: name != "leakage" for name in SWITCHES})
LEAKING = Accounting("leaking", leakage=True)
PRESETS: Mapping[str, Accounting] = {"published": PUBLISHED, "corrected": CORRECTED, "leaking": LEAKING}
