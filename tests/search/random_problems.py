"""Random small problems of the kinds that the mapper is to prove: from a seed, the same each time."""

from __future__ import annotations

import random
from dataclasses import replace

from dse.model.nest import Operand, overlapping_ranks
from dse.search.problem import ChainLevel, Constraints, Problem

KINDS = {
    "matmul": ("mnk", {"A": "m,k", "B": "k,n"}, "Z:m,n"),
    "batched matmul": ("bmnk", {"A": "b,m,k", "B": "b,k,n"}, "Z:b,m,n"),
    "convolution": ("mcpr", {"I": "c,p+r", "W": "m,c,r"}, "Z:m,p"),
    "strided convolution": ("mcpr", {"I": "c,2p+r", "W": "m,c,r"}, "Z:m,p"),
    "convolution in two dimensions": ("pqrs", {"I": "p+r,q+s", "W": "r,s"}, "Z:p,q"),
    "depthwise": ("cpr", {"I": "c,p+r", "W": "c,r"}, "Z:c,p"),
    "dilated depthwise": ("cpr", {"I": "c,p+2r", "W": "c,r"}, "Z:c,p"),
    "mttkrp": ("ijkl", {"A": "i,k,l", "B": "k,j", "C": "l,j"}, "Z:i,j"),
    "square": ("mnk", {"A": "m,k", "A'": "n,k"}, "Z:m,n"),
}


def _indices(text: str) -> tuple[tuple[tuple[str, int], ...], ...]:
    return tuple(tuple((term[-1], int(term[:-1] or 1)) for term in index.split("+")) for index in text.split(","))


def random_problem(seed: int, *, bypass: bool) -> Problem:
    """A problem of a random kind, chain, sizes, prices and, now and then, constraints."""
    draw = random.Random(seed)
    kind = draw.choice(sorted(KINDS))
    ranks, inputs, output = KINDS[kind]
    name, indices = output.split(":")
    operands = [Operand(label, _indices(text), False, ()) for label, text in inputs.items()]
    operands.append(Operand(name, _indices(indices), True, ()))
    tensors = {operand.name: operand.name.rstrip("'") for operand in operands}
    depth = draw.choice([2, 3, 3, 4] if len(ranks) < 4 else [2, 3])
    if bypass:
        depth = min(depth, 3)
    deep = depth * len(ranks) > 9
    budget = 40 if deep else 150
    sizes = [1] * len(ranks)
    for _ in range(12):
        rank = draw.randrange(len(ranks))
        grown = [*sizes]
        grown[rank] *= draw.choice([2, 2, 3, 5])
        if grown[rank] <= 10 and _product(grown) <= budget:
            sizes = grown
    at = sorted(draw.sample(range(depth), k=draw.choice([0, 1, 1, min(2, depth)])))
    levels = []
    for number in range(depth):
        count = draw.choice([1, 2]) if number in at else 0
        axes = tuple((f"{axis}{number}", draw.choice([2, 3, 4, 6])) for axis in "xy"[:count])
        keys = draw.choice([(), ("bandwidth",), ("read_bandwidth", "write_bandwidth"), ("read_bandwidth",)])
        scale = [200.0, 20.0, 6.0, 1.0][number]
        capacity = float("inf") if number == 0 else float(draw.choice([4, 6, 10, 20, 40]) * (depth - number))
        price = [scale * draw.choice([0.5, 1.0, 1.37]) for _ in range(2)]
        seconds = {key: draw.choice([0.1, 0.5, 1.0, 2.0, 7.3]) for key in keys}
        levels.append(ChainLevel(f"L{number}", price[0], price[1], capacity, seconds, axes, number == 0))
    names = tuple(dict.fromkeys(tensors.values()))
    keep: dict[str, frozenset[str]] = {}
    drop: dict[str, frozenset[str]] = {}
    for number in range(1, depth):
        fixed = names if not bypass else draw.sample(names, k=draw.choice([1, len(names) - 1]) if depth > 2 else 0)
        out = [tensor for tensor in fixed if bypass and draw.random() < 0.4]
        keep[f"L{number}"] = frozenset(fixed) - frozenset(out)
        drop[f"L{number}"] = frozenset(out)
    constraints = _constraints(draw, ranks, levels, keep, drop, deep=deep)
    return Problem(
        f"{kind} {seed}", "mac", tuple(ranks), tuple(sizes), tuple(operands), tensors, tuple(levels), 1.0,
        draw.choice([0.0, 1.0, 2.5]), 2.0, {}, constraints,
    )  # fmt: skip


def _constraints(
    draw: random.Random,
    ranks: str,
    levels: list[ChainLevel],
    keep: dict[str, frozenset[str]],
    drop: dict[str, frozenset[str]],
    *,
    deep: bool,
) -> Constraints:
    """None but what is kept, or some of every kind; `deep` problems have orders fixed, so that they can be enumerated."""
    if draw.random() < 0.6 and not deep:
        return Constraints(keep=keep, bypass=drop)
    axes = [axis for level in levels for axis, _ in level.axes]
    slots = [*(level.memory for level in levels), *axes]
    factors = {(draw.choice(slots), draw.choice(ranks)): draw.choice([(1, 1), (1, 2), (2, 4), (2, 2)])}
    allowed = {axis: frozenset(draw.sample(ranks, k=2)) for axis in axes if draw.random() < 0.4}
    order = {
        level.memory: tuple(draw.sample(ranks, k=min(len(ranks) - 1, 2)))
        for level in levels[:-1]
        if deep or draw.random() < 0.4
    }
    return Constraints(factors, allowed, keep, drop, order, draw.choice([0.0, 0.0, 0.4]))


def _product(values: list[int]) -> int:
    result = 1
    for value in values:
        result *= value
    return result


def imperfect_problem(seed: int) -> Problem | None:
    """A random problem whose sizes divide less well, some of its ranks imperfect; None where no rank may be."""
    problem, draw = random_problem(seed, bypass=seed % 2 == 0), random.Random(seed)
    whole = overlapping_ranks(problem.operands)
    grown = [
        size if rank in whole else max(1, min(9, size + draw.choice([0, 1, 1, 2])))
        for rank, size in zip(problem.ranks, problem.sizes, strict=True)
    ]
    free = [rank for rank, size in zip(problem.ranks, grown, strict=True) if rank not in whole and size > 1]
    chosen = frozenset(rank for rank in free if draw.random() < 0.7)
    if not chosen or _product(grown) > 90 or not any(level.axes for level in problem.levels):
        return None
    constraints = replace(problem.constraints, factors={})
    return replace(problem, sizes=tuple(grown), imperfect=chosen, constraints=constraints)
