"""Mappings that a study searches for: every design that asks for it, at every point, all problems in one go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dse.search.each import search_all
from dse.search.mapper import Found
from dse.search.problem import Problem
from dse.search.workload import WorkloadMap, assemble, check_apart, problems_of
from dse.specs.architecture import Hardware
from dse.specs.quantity import Quantity
from dse.specs.study import Design, MapSearch, Part, Study
from dse.studies.points import Point, named, parameters_at


@dataclass(frozen=True)
class _Task:
    """A part of a design whose mapping is searched, at a point."""

    design: Design
    part: Part
    search: MapSearch
    point: Point
    hardware: Hardware
    given: Mapping[str, Quantity]
    problems: Sequence[Problem]

    @property
    def key(self) -> tuple[str, str, str]:
        """Design, part and point by name."""
        return self.design.name, self.part.name, self.point.label()


def search_maps(study: Study, points: Sequence[Point], jobs: int) -> dict[tuple[str, str, str], WorkloadMap]:
    """The best mapping by design, part and point, `jobs` searched at a time. Raises SpecError, naming the design and point, and
    KeyboardInterrupt where a person stopped the search: a study holds proven mappings alone."""
    tasks = [
        _task(study, design, part, part.mapping, point)
        for design in study.designs.values()
        for part in design.parts
        if isinstance(part.mapping, MapSearch)
        for point in points
    ]
    solved: dict[tuple[str, str, str], WorkloadMap] = {}
    for objective in dict.fromkeys(task.search.objective for task in tasks):
        chosen = [task for task in tasks if task.search.objective == objective]
        problems = [problem for task in chosen for problem in task.problems]
        found = iter(search_all(problems, objective, jobs, only_proven=True))
        for task in chosen:
            own = [next(found) for _ in task.problems]

            def assembled(task: _Task = task, own: Sequence[Found] = own) -> WorkloadMap:
                spec = task.search.mapspace
                return assemble(
                    task.part.workload, task.hardware, spec, task.given, task.search.objective, task.problems, own
                )

            solved[task.key] = named(task.design, task.point, assembled)
    return {task.key: solved[task.key] for task in tasks}


def _task(study: Study, design: Design, part: Part, search: MapSearch, point: Point) -> _Task:
    check_apart(search.mapspace, "a study")
    every = parameters_at(study, design, part, point, {})
    own = design.architecture.parameters
    hardware = design.architecture.resolve({name: value for name, value in every.items() if name in own})
    given = {name: value for name, value in every.items() if name not in own}
    problems = named(design, point, lambda: problems_of(part.workload, hardware, search.mapspace, given))
    return _Task(design, part, search, point, hardware, given, problems)
