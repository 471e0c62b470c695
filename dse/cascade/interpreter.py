"""Runs a cascade on numbers: NumPy arrays in, every tensor out. For checking what a cascade computes, not for speed -
though standard ranks are vectorised, and products that are summed go through matrix multiplication.

A tensor is an array with an axis per index of its declaration. Points that a filter leaves out are absent: an operation
on an absent value gives none, and reductions pass over it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.cascade.cascade import Cascade, rank_of
from dse.cascade.einsum import Access, Affine, Einsum, Expression, Literal, Operation, Size, evaluate_index
from dse.cascade.parser import CascadeError

Array = NDArray[np.float64]

_MAPS: Mapping[str, Any] = {
    "mul": np.multiply,
    "add": np.add,
    "sub": np.subtract,
    "div": np.divide,
    "neg": np.negative,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "relu": lambda x: np.maximum(x, 0),
    "abs": np.abs,
    "max": np.maximum,
    "min": np.minimum,
}
_REDUCTIONS: Mapping[str, tuple[Any, float]] = {"sum": (np.sum, 0.0), "max": (np.max, -np.inf), "min": (np.min, np.inf)}


@dataclass
class Tensor:
    """Values and, where a filter left points out, which are there.

    `step` is the variable of an iteration of which only the present step is held.
    """

    values: Array
    present: NDArray[np.bool_] | None = None
    step: str | None = None


def largest_array(cascade: Cascade, shapes: Mapping[str, int]) -> int:
    """Elements of the largest array that running a cascade makes: a tensor, or an operation's whole iteration space."""
    sizes = [1]
    for einsum in cascade.einsums:
        stepping = [variable for variable in einsum.output.variables if variable in cascade.iterative]
        multiplied = einsum.reduction == "sum" and _factors(einsum.expression) is not None and not einsum.where
        space = einsum.output.variables if multiplied else [v for v in einsum.variables if v not in stepping]
        for variables in (space, einsum.output.variables):
            sizes.append(math.prod(shapes[rank_of(variable)] for variable in variables))
    return max(sizes)


def execute(
    cascade: Cascade, shapes: Mapping[str, int], inputs: Mapping[str, Array], only: str | None = None
) -> dict[str, Array]:
    """Run a cascade: `shapes` by rank, `inputs` by tensor with an axis per declared index.

    Returns every tensor made, or `only` one of them, which holds less of what iterations make on the way.

    A tensor that an iteration fills has one coordinate more than its rank, the initial one first; absent points are 0.
    Overflow gives inf or NaN, as it does in hardware. Raises CascadeError where an Einsum iterates over two ranks.
    """
    tensors = {name: Tensor(np.asarray(values, dtype=np.float64)) for name, values in inputs.items()}
    for start in cascade.initial:
        _allocate(cascade, shapes, tensors, cascade[start.name], None)
        _assign(start, shapes, tensors, {})
    done: set[str] = set()
    with np.errstate(all="ignore"):
        for einsum in cascade.einsums:
            if einsum.name not in done:
                done |= _run_from(cascade, shapes, tensors, einsum, done, only)
    names = [einsum.name for einsum in cascade.einsums] if only is None else [only]
    return {name: tensors[name].values for name in names}


def _run_from(
    cascade: Cascade,
    shapes: Mapping[str, int],
    tensors: dict[str, Tensor],
    einsum: Einsum,
    done: set[str],
    only: str | None,
) -> set[str]:
    """Run an Einsum or, where it iterates, all Einsums that iterate with it, and what those need before."""
    stepping = [variable for variable in einsum.output.variables if variable in cascade.iterative]
    if not stepping:
        _allocate(cascade, shapes, tensors, einsum, None)
        _assign(einsum, shapes, tensors, {})
        return {einsum.name}
    if len(stepping) > 1:
        raise CascadeError(f"{einsum.name} iterates over {' and '.join(stepping)}; one at a time", einsum.text)
    ahead, body = _iteration(cascade, stepping[0], done)
    made: set[str] = set()
    for each in ahead:
        if each.name not in made:
            made |= _run_from(cascade, shapes, tensors, each, done | made, only)
    for each in body:
        passing = only is not None and _is_passing(cascade, each, stepping[0], only)
        _allocate(cascade, shapes, tensors, each, stepping[0] if passing else None)
    for step in range(shapes[rank_of(stepping[0])]):
        for each in body:
            _assign(each, shapes, tensors, {stepping[0]: step})
    return made | {each.name for each in body}


def _iteration(cascade: Cascade, variable: str, done: set[str]) -> tuple[list[Einsum], list[Einsum]]:
    """Of the Einsums not done: those to run before an iteration over a variable, and those that step with it.

    What needs the end of the iteration, and all that needs that, comes after both.
    """
    ahead: list[Einsum] = []
    body: list[Einsum] = []
    after: set[str] = set()
    for einsum in cascade.einsums:
        if einsum.name in done:
            continue
        read = {access.tensor for access in einsum.inputs}
        inside = {each.name for each in body}
        if variable in einsum.output.variables and not read & after:
            body.append(einsum)
        elif read & (inside | after) or any(step in cascade.iterative for step in einsum.output.variables):
            after.add(einsum.name)
        else:
            ahead.append(einsum)
    return ahead, body


def _is_passing(cascade: Cascade, einsum: Einsum, step: str, only: str) -> bool:
    """Whether what an Einsum makes is used in the step that makes it, and nowhere else."""
    uses = [access for other in cascade.einsums for access in other.inputs if access.tensor == einsum.name]
    return einsum.name != only and all(
        any(index.is_plain and index.variables == (step,) for index in access.indices)
        for access in (einsum.output, *uses)
    )


def _allocate(
    cascade: Cascade, shapes: Mapping[str, int], tensors: dict[str, Tensor], einsum: Einsum, step: str | None
) -> None:
    if einsum.name in tensors:
        return
    sizes = []
    for index in einsum.output.indices:
        ahead = 1 if index.offset and set(index.variables) & set(cascade.iterative) else 0
        held = 1 if step in index.variables or not index.variables else shapes[rank_of(index.variables[0])]
        sizes.append(held + ahead)
    tensors[einsum.name] = Tensor(np.empty(sizes) if step else np.zeros(sizes), step=step)


def _assign(einsum: Einsum, shapes: Mapping[str, int], tensors: dict[str, Tensor], fixed: Mapping[str, int]) -> None:
    """Compute an Einsum where some variables are fixed, and store it where its output points."""
    free = [variable for variable in einsum.output.variables if variable not in fixed]
    summed = list(einsum.reduced)
    space = {variable: shapes[rank_of(variable)] for variable in (*free, *summed)}
    found = _contraction(einsum, shapes, tensors, fixed, space, free) or _mapped(
        einsum, shapes, tensors, fixed, space, len(free)
    )
    target = tensors[einsum.name]
    places = tuple(
        slice(None) if index.is_plain and index.variables[0] not in fixed else _place(index, shapes, fixed, target.step)
        for index in einsum.output.indices
    )
    target.values[places] = found.values
    if found.present is not None:
        if target.present is None:
            target.present = np.ones(target.values.shape, dtype=bool)
        target.present[places] = found.present


def _place(index: Affine, shapes: Mapping[str, int], fixed: Mapping[str, int], step: str | None = None) -> Any:
    if step in index.variables:
        return 0
    free = [variable for variable in index.variables if variable not in fixed]
    values: dict[str, Any] = {**fixed, **{variable: np.arange(shapes[rank_of(variable)]) for variable in free}}
    return evaluate_index(index, values, shapes)


def _contraction(
    einsum: Einsum,
    shapes: Mapping[str, int],
    tensors: Mapping[str, Tensor],
    fixed: Mapping[str, int],
    space: Mapping[str, int],
    free: Sequence[str],
) -> Tensor | None:
    """A product of tensors summed over some ranks, by matrix multiplication; None where it is anything else."""
    factors = _factors(einsum.expression)
    if einsum.reduction != "sum" or factors is None or einsum.where or len(factors) < 2:
        return None
    if any(tensors[access.tensor].present is not None for access in factors):
        return None
    operands = [
        (
            _aligned(access, shapes, tensors, fixed, mine).values,
            mine,
        )
        for access in factors
        for mine in [[variable for variable in dict.fromkeys(access.variables) if variable in space]]
    ]
    if len(operands) == 2:
        return Tensor(_matrix_product(*operands[0], *operands[1], free))
    letters = {variable: chr(97 + number) for number, variable in enumerate(space)}
    terms = ["".join(letters[variable] for variable in mine) for _, mine in operands]
    equation = f"{','.join(terms)}->{''.join(letters[variable] for variable in free)}"
    return Tensor(np.einsum(equation, *(values for values, _ in operands), optimize=True))


def _matrix_product(left: Array, left_has: list[str], right: Array, right_has: list[str], free: Sequence[str]) -> Array:
    """The product of two tensors over all variables, summed over those that are not free, as a stack of matrices."""
    left, left_has = _sum_alone(left, left_has, right_has, free)
    right, right_has = _sum_alone(right, right_has, left_has, free)
    stack = [variable for variable in left_has if variable in right_has and variable in free]
    inner = [variable for variable in left_has if variable in right_has and variable not in free]
    rows = [variable for variable in left_has if variable not in right_has]
    columns = [variable for variable in right_has if variable not in left_has]
    size = {**dict(zip(left_has, left.shape, strict=True)), **dict(zip(right_has, right.shape, strict=True))}

    def matrices(array: Array, has: list[str], *groups: list[str]) -> Array:
        arranged = array.transpose([has.index(variable) for group in (stack, *groups) for variable in group])
        return arranged.reshape(
            [*(size[v] for v in stack), *(int(np.prod([size[v] for v in group])) for group in groups)]
        )

    product = matrices(left, left_has, rows, inner) @ matrices(right, right_has, inner, columns)
    found = [*stack, *rows, *columns]
    return product.reshape([size[variable] for variable in found]).transpose(
        [found.index(variable) for variable in free]
    )


def _sum_alone(array: Array, has: list[str], other: list[str], free: Sequence[str]) -> tuple[Array, list[str]]:
    """Sum over variables that neither the other factor nor the output has."""
    alone = [variable for variable in has if variable not in other and variable not in free]
    return array.sum(axis=tuple(has.index(variable) for variable in alone)), [v for v in has if v not in alone]


def _factors(expression: Expression) -> list[Access] | None:
    if isinstance(expression, Access):
        return [expression]
    if isinstance(expression, Operation) and expression.operator == "mul":
        sides = [_factors(operand) for operand in expression.operands]
        return None if None in sides else [access for side in sides for access in side or ()]
    return None


def _mapped(
    einsum: Einsum,
    shapes: Mapping[str, int],
    tensors: Mapping[str, Tensor],
    fixed: Mapping[str, int],
    space: Mapping[str, int],
    kept: int,
) -> Tensor:
    """Every operation over the whole iteration space, then the reduction."""
    variables = list(space)
    result = _evaluate(einsum.expression, shapes, tensors, fixed, variables)
    present: Any = result.present
    grids = (
        dict(zip(variables, np.ix_(*(np.arange(size) for size in space.values())), strict=True)) if variables else {}
    )
    for condition in einsum.where:
        compare = {
            "<=": np.less_equal,
            "<": np.less,
            ">=": np.greater_equal,
            ">": np.greater,
            "==": np.equal,
            "!=": np.not_equal,
        }
        sides = (evaluate_index(side, {**grids, **fixed}, shapes) for side in (condition.left, condition.right))
        holds = compare[condition.relation](*sides)
        present = holds if present is None else present & holds
    full = tuple(space.values())
    values = np.broadcast_to(result.values, full)
    present = None if present is None else np.broadcast_to(present, full)
    if einsum.reduction is not None:
        operate, identity = _REDUCTIONS[einsum.reduction]
        axes = tuple(range(kept, len(full)))
        values = operate(values if present is None else np.where(present, values, identity), axis=axes)
        present = None if present is None else present.any(axis=axes)
    return Tensor(values if present is None else np.where(present, values, 0.0), present)


def _evaluate(
    expression: Expression,
    shapes: Mapping[str, int],
    tensors: Mapping[str, Tensor],
    fixed: Mapping[str, int],
    variables: Sequence[str],
) -> Tensor:
    if isinstance(expression, Literal):
        return Tensor(np.asarray(expression.value))
    if isinstance(expression, Size):
        return Tensor(np.asarray(float(shapes[expression.rank])))
    if isinstance(expression, Access):
        return _aligned(expression, shapes, tensors, fixed, variables)
    operands = [_evaluate(operand, shapes, tensors, fixed, variables) for operand in expression.operands]
    masks = [operand.present for operand in operands if operand.present is not None]
    present = reduce(np.logical_and, masks) if masks else None
    return Tensor(_MAPS[expression.operator](*(operand.values for operand in operands)), present)


def _aligned(
    access: Access,
    shapes: Mapping[str, int],
    tensors: Mapping[str, Tensor],
    fixed: Mapping[str, int],
    variables: Sequence[str],
) -> Tensor:
    """What an access reads, with an axis per variable (length 1 where it does not use the variable)."""
    tensor = tensors[access.tensor]
    position = {variable: number for number, variable in enumerate(variables)}
    plain = [index.variables[0] for index in access.indices if index.is_plain and index.variables[0] not in fixed]
    simple = len(set(plain)) == len(plain) and all(
        index.is_plain or not any(variable not in fixed for variable in index.variables) for index in access.indices
    )
    if simple:
        picked = tuple(
            slice(None)
            if index.is_plain and index.variables[0] not in fixed
            else int(_place(index, shapes, fixed, tensor.step))
            for index in access.indices
        )
        order = sorted(range(len(plain)), key=lambda axis: position[plain[axis]])
        shape = [shapes[rank_of(variable)] if variable in plain else 1 for variable in variables]

        def arrange(array: Any) -> Any:
            return array[picked].transpose(order).reshape(shape)

    else:
        places = []
        for index in access.indices:
            grids: dict[str, Any] = dict(fixed)
            for variable in index.variables:
                if variable not in fixed:
                    size = shapes[rank_of(variable)]
                    grids[variable] = np.arange(size).reshape([size if v == variable else 1 for v in variables])
            places.append(np.asarray(evaluate_index(index, grids, shapes)))

        def arrange(array: Any) -> Any:
            _check_inside(access, places, array.shape)
            return array[tuple(places)]

    return Tensor(arrange(tensor.values), None if tensor.present is None else arrange(tensor.present))


def _check_inside(access: Access, places: Sequence[Any], shape: Sequence[int]) -> None:
    for number, (place, size) in enumerate(zip(places, shape, strict=True)):
        if place.size and (place.min() < 0 or place.max() >= size):
            raise CascadeError(f"{access} points to coordinate {place.max()} of index {number + 1}, which has {size}")
