"""How far a search has come, for a person who watches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dse.studies.candidates import Priced, Pricer


@dataclass(frozen=True)
class Status:
    """How far the search of a design has come: candidates done, those that can be, and the least of each objective."""

    design: str
    done: int
    wanted: int
    feasible: int
    best: Mapping[str, float]


Progress = Callable[[Status], None]


class Tally:
    """What the candidates of a design came to so far."""

    def __init__(self, pricer: Pricer, wanted: int) -> None:
        self.design, self.objectives, self.wanted = pricer.design.name, pricer.search.objectives, wanted
        self.done = self.feasible = 0
        self.best = np.full(len(self.objectives), np.inf)

    def add(self, values: NDArray[np.float64], fits: NDArray[np.bool_]) -> None:
        """Count candidates with these values (n, objectives), of which these can be."""
        self.done += len(values)
        self.feasible += int(fits.sum())
        self.best = np.minimum(self.best, values[fits].min(axis=0, initial=np.inf))

    def add_priced(self, priced: Priced) -> NDArray[np.float64]:
        """Count candidates that were priced; their values (n, objectives)."""
        values = np.stack([priced.aggregated(objective) for objective in self.objectives], axis=1)
        self.add(values, priced.feasible)
        return values

    def status(self) -> Status:
        """All of it."""
        columns = [objective.column for objective in self.objectives]
        return Status(
            self.design, self.done, self.wanted, self.feasible, dict(zip(columns, self.best.tolist(), strict=True))
        )
