"""Checks that a cascade computes what it should: it is run on random and on adversarial numbers, and its output compared
with a reference; where it differs, the first tensor that does is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.cascade.cascade import Cascade, rank_of
from dse.cascade.einsum import Affine, evaluate_index
from dse.cascade.interpreter import execute
from dse.cascade.reference import REFERENCES, Array, Reference

TOLERANCE = 1e-12
"""Largest error accepted, relative to the largest value of the tensor, in float64."""

ADVERSARIAL = ("large", "equal", "mostly zero")
"""Kinds of input on which an unstable form overflows, ties are everywhere, or rows are empty."""


@dataclass(frozen=True)
class Trial:
    """One set of inputs: the largest relative error of the output, and where.

    `overflows` where the output is not finite; `differs` names the first tensor that is wrong, None where all is well.
    """

    inputs: str
    error: float
    where: str
    overflows: bool
    differs: str | None

    @property
    def passed(self) -> bool:
        """Whether the output is right."""
        return self.differs is None


def verify_cascade(
    cascade: Cascade,
    reference: Reference,
    shapes: Mapping[str, int],
    small: Mapping[str, int],
    like: Cascade | None = None,
    seed: int = 0,
) -> list[Trial]:
    """Run a cascade and compare with its reference: on random numbers at `shapes` (by rank), on
    adversarial ones at `small` shapes, and on a single element.

    `like` is a cascade known to be right; tensors that it shares are compared too, to name the first that differs.
    """
    single = dict.fromkeys(shapes, 1)
    kinds = [("random", shapes), *((kind, small) for kind in ADVERSARIAL), ("single element", single)]
    trials = []
    for number, (name, sizes) in enumerate(kinds):
        dice = np.random.default_rng((seed, number))
        positive = REFERENCES[reference.function].positive
        inputs = {
            access.tensor: _numbers(name, [_length(index, sizes) for index in access.indices], dice, positive)
            for access in cascade.inputs
        }
        trials.append(_compare(cascade, reference, sizes, inputs, name, like))
    return trials


def _length(index: Affine, shapes: Mapping[str, int]) -> int:
    """Coordinates from 0 to the last that an index of an input points to."""
    return int(evaluate_index(index, {each: shapes[rank_of(each)] - 1 for each in index.variables}, shapes)) + 1


def _numbers(kind: str, shape: Sequence[int], dice: np.random.Generator, positive: bool) -> Array:
    """Input values of a kind; large ones are whole, so that sums of their products are exact in any order."""
    if kind == "large":
        found = dice.integers(-40, 41, shape).astype(np.float64)
    elif kind == "equal":
        found = np.ones(shape)
    elif kind == "mostly zero":
        found = dice.normal(size=shape) * (dice.random(shape) < 0.1)
    else:
        found = dice.normal(size=shape)
    return np.abs(found) + 0.5 if positive else found


def _compare(
    cascade: Cascade,
    reference: Reference,
    shapes: Mapping[str, int],
    inputs: Mapping[str, Array],
    kind: str,
    like: Cascade | None,
) -> Trial:
    output = reference.output
    with np.errstate(all="ignore"):
        expected = REFERENCES[reference.function].compute(shapes, *(inputs[name] for name in reference.arguments))
    found = execute(cascade, shapes, inputs, only=output)[output]
    result = next(iter(expected.values()))
    error, place = _largest_error(found, result)
    overflows = not bool(np.isfinite(found).all())
    where = f"{output}[{','.join(str(number) for number in place)}]" if place else output
    if error <= TOLERANCE:
        return Trial(kind, error, where, overflows, None)
    made = execute(cascade, shapes, inputs)
    known: dict[str, Any] = dict(expected) | {output: result}
    if like is not None:
        known = execute(like, shapes, inputs) | known
    differs = next(
        (
            einsum.name
            for einsum in cascade.einsums
            if einsum.name in known
            and made[einsum.name].shape == known[einsum.name].shape
            and _largest_error(made[einsum.name], known[einsum.name])[0] > TOLERANCE
        ),
        output,
    )
    return Trial(kind, error, where, overflows, differs)


def _largest_error(found: Array, expected: Array) -> tuple[float, tuple[int, ...]]:
    """The largest difference relative to the largest expected value, and its coordinates; inf where one is not finite."""
    if found.shape != expected.shape:
        return np.inf, ()
    with np.errstate(all="ignore"):
        difference = np.where(found == expected, 0.0, np.abs(found - expected))
    difference = np.where(np.isnan(difference), np.inf, difference)
    scale = np.max(np.abs(expected[np.isfinite(expected)]), initial=0.0)
    worst = np.unravel_index(int(np.argmax(difference)), difference.shape)
    return float(difference[worst] / (scale or 1.0)), tuple(int(number) for number in worst)
