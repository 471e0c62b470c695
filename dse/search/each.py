"""The best mapping of each of several Einsums, side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from dse.search.mapper import Found, map_einsum
from dse.search.pool import Pool
from dse.search.problem import Problem
from dse.search.renaming import renamed, shape_of

Progress = Callable[[str, float], None]


class EachSearch:
    """The search for the best mapping of each problem, begun at once where there are processes for it. Problems that
    differ in names alone are solved once."""

    def __init__(self, problems: Sequence[Problem], objective: str, pool: Pool) -> None:
        self.problems, self.objective = problems, objective
        self.first: dict[Hashable, Problem] = {}
        for problem in problems:
            self.first.setdefault(shape_of(problem), problem)
        self.solved: dict[Hashable, Found] = {}
        self.batch = None
        if not pool.alone:
            self.batch = pool.begin(partial(map_einsum, objective=objective), list(self.first.values()), _points)

    def found(self, progress: Progress = lambda name, share: None, *, only_proven: bool = False) -> list[Found]:
        """What is found for each problem; `progress` is told which, and the share of all that is done.

        Interrupted, it ends at once if `only_proven`, with KeyboardInterrupt; else soon, as `hurried`.
        """
        try:
            if self.batch is None:
                self._one_by_one(progress)
            else:
                shapes = list(self.first)
                for place, found in self.batch.done():
                    self.solved[shapes[place]] = found
                    progress(self.first[shapes[place]].einsum, len(self.solved) / len(self.first))
        except KeyboardInterrupt:
            if only_proven:
                raise
        return self.hurried()

    def hurried(self) -> list[Found]:
        """What is found by now; for the other problems, not proven, the mapping that quick runs find."""
        for shape, problem in self.first.items():
            if shape not in self.solved:
                self.solved[shape] = map_einsum(problem, self.objective, hurried=True)
        return [
            renamed(self.solved[shape], self.first[shape], each)
            for each in self.problems
            for shape in (shape_of(each),)
        ]

    def _one_by_one(self, progress: Progress) -> None:
        for number, (shape, problem) in enumerate(self.first.items()):

            def share(done: float, name: str = problem.einsum, number: int = number) -> None:
                progress(name, (number + done) / len(self.first))

            self.solved[shape] = map_einsum(problem, self.objective, progress=share)
            if not self.solved[shape].proof.complete:
                raise KeyboardInterrupt


def search_all(
    problems: Sequence[Problem],
    objective: str,
    jobs: int = 1,
    progress: Progress = lambda name, share: None,
    *,
    only_proven: bool = False,
) -> list[Found]:
    """Solve each problem, `jobs` at a time, as `EachSearch` does."""
    with Pool(min(jobs, len({shape_of(problem) for problem in problems}))) as pool:
        return EachSearch(problems, objective, pool).found(progress, only_proven=only_proven)


def _points(problem: Problem) -> float:
    return math.prod(problem.sizes)
