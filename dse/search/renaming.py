"""Problems that differ in the names of their Einsum, ranks and tensors alone have one solution: it is found once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from dse.search.mapper import Found
from dse.search.problem import LevelMapping, Problem


def shape_of(problem: Problem) -> Hashable:
    """All of a problem but names: ranks, operands and tensors stand by their place."""
    rank = {name: place for place, name in enumerate(problem.ranks)}
    tensor = {name: place for place, name in enumerate(problem.names)}
    demands = problem.constraints

    return (
        problem.unit,
        problem.sizes,
        tuple(sorted(rank[name] for name in problem.imperfect)),
        tuple(
            (
                tuple(tuple((rank[name], scale) for name, scale in index) for index in operand.indices),
                operand.is_output,
                tensor[problem.tensors[operand.name]],
            )
            for operand in problem.operands
        ),
        tuple(replace(level, seconds=tuple(sorted(level.seconds.items()))) for level in problem.levels),  # type: ignore[arg-type]
        (problem.operation_s, problem.operation_pj, problem.word_bytes),
        tuple(sorted((tensor[name], level) for name, level in problem.homes.items())),
        tuple(sorted((slot, rank[name], bounds) for (slot, name), bounds in demands.factors.items())),
        tuple(
            sorted((slot, tuple(sorted(rank[n] for n in names if n in rank))) for slot, names in demands.ranks.items())
        ),
        tuple(sorted((slot, tuple(sorted(tensor[n] for n in names))) for slot, names in demands.keep.items())),
        tuple(sorted((slot, tuple(sorted(tensor[n] for n in names))) for slot, names in demands.bypass.items())),
        tuple(sorted((slot, tuple(rank[name] for name in names)) for slot, names in demands.order.items())),
        demands.utilization,
    )


def renamed(found: Found, solved: Problem, problem: Problem) -> Found:
    """What was found for one problem, in the names of another of its shape."""
    rank = dict(zip(solved.ranks, problem.ranks, strict=True))
    tensor = dict(zip(solved.names, problem.names, strict=True))
    points = [
        replace(
            point,
            nest=tuple(
                LevelMapping(
                    level.memory,
                    tuple((rank[name], factor) for name, factor in level.temporal),
                    {axis: tuple((rank[name], factor) for name, factor in own) for axis, own in level.spatial.items()},
                    tuple(tensor[name] for name in level.keep),
                )
                for level in point.nest
            ),
        )
        for point in found.points
    ]
    return replace(found, points=points)
