"""Cascade -> cascade with fewer passes over a rank, by the reassociations that Nayak et al., MICRO 2024, section IV,
describe; what each computes stays the same.

* Deferral: a factor that does not have the rank moves out of a sum over it, `sum(N/S * V)` -> `sum(N*V) / S`, so that
  the sum no longer waits for it.
* Running maximum: a maximum that later exponentials subtract is kept as the maximum so far, and sums of those
  exponentials are corrected whenever it grows, by `exp(old - new)` (Milakov and Gimelshein, 2018).
* Running mean: a sum of squared distances from a mean is built beside the mean so far (Welford, 1962).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dse.cascade.cascade import Cascade, check_einsum, check_iterations, rank_of
from dse.cascade.einsum import Access, Affine, Einsum, Expression, Literal, Operation, Size, write_einsum
from dse.cascade.parser import parse_einsum
from dse.cascade.passes import Barrier, analyze_rank, families
from dse.cascade.polynomial import Polynomial


@dataclass(frozen=True)
class Reduction:
    """A rewritten cascade, what was done step by step, and why the barriers that are left stay."""

    cascade: Cascade
    steps: tuple[str, ...]
    left: tuple[str, ...]


def reduce_passes(cascade: Cascade, rank: str) -> Reduction:
    """Rewrite a cascade until no rule takes another pass over `rank` away. Raises KeyError for an unknown rank."""
    steps: list[str] = []
    passes = analyze_rank(cascade, rank).passes
    while passes > 1:
        better = next(
            (
                (candidate, step)
                for rule in RULES
                for candidate, step in rule(cascade, rank)
                if analyze_rank(candidate, rank).passes < passes
            ),
            None,
        )
        if better is None:
            break
        cascade, step = better
        passes = analyze_rank(cascade, rank).passes
        steps.append(f"{step}: {passes} pass{'es' if passes > 1 else ''} over {rank}")
    left = tuple(f"{barrier}; {_why(cascade, rank, barrier)}" for barrier in analyze_rank(cascade, rank).barriers)
    return Reduction(cascade, tuple(steps), left)


Candidates = list[tuple[Cascade, str]]


def _defer(cascade: Cascade, rank: str) -> Candidates:
    """Move factors without the rank out of sums over it."""
    variable = _variable(rank)
    found: Candidates = []
    for einsum in cascade.einsums:
        if einsum.reduction != "sum" or variable not in einsum.reduced or einsum.where:
            continue
        over, under, inlined = _factors(cascade, einsum.expression, variable)
        out_over = [factor for factor in over if _is_outside(factor, einsum)]
        out_under = [factor for factor in under if _is_outside(factor, einsum)]
        kept = [factor for factor in over if factor not in out_over]
        if not (out_over or out_under) or not kept or len(out_under) < len(under):
            continue
        inner = _fresh(cascade, f"{einsum.name}N")
        inside = Access(inner, einsum.output.indices)
        summed = _einsum(inside, _product(kept, []), "sum", cascade)
        outside = _einsum(einsum.output, _product([inside, *out_over], out_under), None, cascade)
        einsums = [each for other in cascade.einsums for each in ([summed, outside] if other is einsum else [other])]
        moved = ", ".join(str(factor) for factor in (*out_over, *out_under))
        found.append(
            (
                _checked(_without_unused(replace(cascade, einsums=tuple(einsums)), inlined)),
                f"{einsum.name}: {moved} moves out of the sum over {variable}",
            )
        )
    return found


def _run_maximum(cascade: Cascade, rank: str) -> Candidates:
    """Keep a maximum as the one so far, where all that follows it in the rank are sums of exponentials less it."""
    variable = _variable(rank)
    found: Candidates = []
    for largest in cascade.einsums:
        if largest.reduction != "max" or largest.reduced != (variable,) or _is_filtered(cascade, rank):
            continue
        shifted = [
            each for each in cascade.einsums if _is_shifted_exp(each, largest) and variable in each.output.variables
        ]
        if not shifted:
            continue
        sums = [each for each in cascade.einsums if any(_uses(each, one.name) for one in shifted)]
        if not all(_is_sum_of(each, shifted, variable) for each in sums) or set(cascade.outputs) & {
            s.name for s in shifted
        }:
            continue
        found.append(
            (
                _checked(_with_running_maximum(cascade, largest, shifted, sums, variable)),
                f"{largest.name} becomes the maximum so far, and {', '.join(s.name for s in sums)} are corrected as it grows",
            )
        )
    return found


def _with_running_maximum(
    cascade: Cascade, largest: Einsum, shifted: Sequence[Einsum], sums: Sequence[Einsum], variable: str
) -> Cascade:
    now, ahead, last = _steps(variable)
    running = {each.name: _fresh(cascade, f"R{each.name}") for each in (largest, *sums)}

    def at(einsum: Einsum, step: Affine) -> Access:
        return Access(running[einsum.name], (*einsum.output.indices, step))

    new: dict[str, list[Einsum]] = {}
    grown = Operation("max", (at(largest, now), largest.expression))
    correction = Access(_fresh(cascade, f"P{largest.name}"), (*largest.output.indices, now))
    difference = Operation("sub", (at(largest, now), at(largest, ahead)))
    new[largest.name] = [
        _einsum(at(largest, ahead), grown, None, cascade),
        _einsum(correction, Operation("exp", (difference,)), None, cascade),
    ]
    for each in shifted:
        (inner,) = _operands(each.expression)
        value, _ = _operands(inner)
        fresh = Operation("exp", (Operation("sub", (value, at(largest, ahead))),))
        new[each.name] = [_einsum(each.output, fresh, None, cascade)]
    for each in sums:
        corrected = Operation("mul", (at(each, now), correction))
        new[each.name] = [_einsum(at(each, ahead), Operation("add", (corrected, each.expression)), None, cascade)]
    ends = [
        _einsum(each.output, at(each, last), None, cascade)
        for each in (largest, *sums)
        if _is_needed(cascade, each, shifted, sums)
    ]
    starts = [
        parse_einsum(f"{_start(at(largest, now))} = -inf"),
        *(parse_einsum(f"{_start(at(each, now))} = 0") for each in sums),
    ]
    return _reassembled(cascade, new, ends, starts, variable)


def _run_mean(cascade: Cascade, rank: str) -> Candidates:
    """Build the sum of squared distances from a mean beside the mean so far."""
    variable = _variable(rank)
    found: Candidates = []
    for total in cascade.einsums:
        if (
            total.reduction != "sum"
            or total.reduced != (variable,)
            or not isinstance(total.expression, Access)
            or _is_filtered(cascade, rank)
        ):
            continue
        value = total.expression
        whole = Operation("div", (total.output, Size(rank)))
        mean = next((each for each in cascade.einsums if each.expression == whole), None)
        centred = next(
            (
                each
                for each in cascade.einsums
                if mean is not None and each.expression == Operation("sub", (value, mean.output))
            ),
            None,
        )
        if mean is None or centred is None:
            continue
        square = Operation("mul", (centred.output, centred.output))
        spread = next(
            (
                each
                for each in cascade.einsums
                if each.expression == square and each.reduced == (variable,) and each.reduction == "sum"
            ),
            None,
        )
        if spread is not None:
            found.append(
                (
                    _checked(_with_running_mean(cascade, total, mean, spread, value, variable)),
                    f"{mean.name} becomes the mean so far, and {spread.name} grows beside it",
                )
            )
    return found


def _with_running_mean(
    cascade: Cascade, total: Einsum, mean: Einsum, spread: Einsum, value: Access, variable: str
) -> Cascade:
    now, ahead, last = _steps(variable)
    count, middle, second = (_fresh(cascade, name) for name in (f"N{mean.name}", f"R{mean.name}", f"R{spread.name}"))

    def counted(step: Affine) -> Access:
        return Access(count, (step,))

    def mean_at(step: Affine) -> Access:
        return Access(middle, (*mean.output.indices, step))

    def spread_at(step: Affine) -> Access:
        return Access(second, (*spread.output.indices, step))

    before, after = (Operation("sub", (value, mean_at(step))) for step in (now, ahead))
    grown = Operation("add", (mean_at(now), Operation("div", (before, counted(ahead)))))
    wider = Operation("add", (spread_at(now), Operation("mul", (before, after))))
    new = {
        total.name: [
            _einsum(counted(ahead), Operation("add", (counted(now), Literal(1.0))), None, cascade),
            _einsum(mean_at(ahead), grown, None, cascade),
            _einsum(spread_at(ahead), wider, None, cascade),
        ],
        mean.name: [],
        spread.name: [],
    }
    ends = [_einsum(mean.output, mean_at(last), None, cascade), _einsum(spread.output, spread_at(last), None, cascade)]
    starts = [parse_einsum(f"{_start(each)} = 0") for each in (counted(now), mean_at(now), spread_at(now))]
    return _reassembled(cascade, new, ends, starts, variable)


RULES: tuple[Callable[[Cascade, str], Candidates], ...] = (_defer, _run_maximum, _run_mean)


def _why(cascade: Cascade, rank: str, barrier: Barrier) -> str:
    """Why no rule takes a barrier away."""
    einsum = cascade[barrier.einsum]
    if _is_filtered(cascade, rank):
        return "a filter leaves points of the rank out, and a running value would stop at the first of them"
    leaving = _leaves_as(cascade, einsum, _variable(rank))
    if leaving is not None:
        return f"{leaving} leaves with every {_variable(rank)}, so it waits for values made of all of them"
    return f"no rule corrects {' and '.join(einsum.operators)} of {einsum.name} for a {barrier.reduction} that is not final"


def _leaves_as(cascade: Cascade, einsum: Einsum, variable: str) -> str | None:
    """The output that an Einsum is on its way to, element by element of a rank; None where it is summed first."""
    if variable not in einsum.output.variables:
        return None
    if einsum.name in cascade.outputs:
        return einsum.name
    later = (
        _leaves_as(cascade, other, variable)
        for other in cascade.einsums
        if _uses(other, einsum.name) and other is not einsum
    )
    return next((name for name in later if name is not None), None)


def _is_filtered(cascade: Cascade, rank: str) -> bool:
    """Whether a filter leaves points of a rank out."""
    sides = [side for einsum in cascade.einsums for each in einsum.where for side in (each.left, each.right)]
    return any(_variable(rank) in side.variables for side in sides)


def _variable(rank: str) -> str:
    return rank.lower()


def _steps(variable: str) -> tuple[Affine, Affine, Affine]:
    """The indices of this step of an iteration, of the next, and of the last."""
    one = Polynomial.of(1)
    now = Affine(((variable, one),), Polynomial())
    return now, replace(now, offset=one), Affine((), Polynomial.of(rank_of(variable)))


def _start(access: Access) -> str:
    """A tensor at the start of its iteration, which is its last index."""
    return str(Access(access.tensor, (*access.indices[:-1], Affine((), Polynomial.of(0)))))


def _factors(
    cascade: Cascade, expression: Expression, variable: str
) -> tuple[list[Expression], list[Expression], list[str]]:
    """Factors above and below the line of a product, with elementwise products that it reads written out; those reads."""
    if isinstance(expression, Operation) and expression.operator in ("mul", "div"):
        left, right = (_factors(cascade, side, variable) for side in expression.operands)
        if expression.operator == "div":
            right = (right[1], right[0], right[2])
        return left[0] + right[0], left[1] + right[1], left[2] + right[2]
    if isinstance(expression, Access) and variable in expression.variables:
        maker = next((e for e in cascade.einsums if e.name == expression.tensor), None)
        if (
            maker is not None
            and _is_product(maker)
            and maker.output == expression
            and not maker.reduced
            and not maker.where
        ):
            over, under, inlined = _factors(cascade, maker.expression, variable)
            if any(variable not in _variables(factor) for factor in (*over, *under)):
                return over, under, [*inlined, maker.name]
    return [expression], [], []


def _is_product(einsum: Einsum) -> bool:
    return isinstance(einsum.expression, Operation) and einsum.expression.operator in ("mul", "div")


def _variables(expression: Expression) -> set[str]:
    if isinstance(expression, Access):
        return set(expression.variables)
    return set().union(*(_variables(each) for each in _operands(expression)))


def _operands(expression: Expression) -> tuple[Expression, ...]:
    return expression.operands if isinstance(expression, Operation) else ()


def _is_outside(factor: Expression, einsum: Einsum) -> bool:
    """Whether a factor depends on nothing that its Einsum sums over."""
    return _variables(factor) <= set(einsum.output.variables)


def _product(over: Sequence[Expression], under: Sequence[Expression]) -> Expression:
    result = over[0]
    for factor in over[1:]:
        result = Operation("mul", (result, factor))
    for factor in under:
        result = Operation("div", (result, factor))
    return result


def _is_shifted_exp(einsum: Einsum, largest: Einsum) -> bool:
    """Whether an Einsum is exp(something - the maximum)."""
    match einsum.expression:
        case Operation("exp", (Operation("sub", (_, Access() as subtracted)),)):
            return subtracted == largest.output and not einsum.reduced
    return False


def _uses(einsum: Einsum, tensor: str) -> bool:
    return any(access.tensor == tensor for access in einsum.inputs)


def _is_sum_of(einsum: Einsum, shifted: Sequence[Einsum], variable: str) -> bool:
    """Whether an Einsum sums, over the variable alone, a product with one of the exponentials as one factor."""
    factors = _plain_factors(einsum.expression)
    names = {each.name for each in shifted}
    hits = sum(isinstance(factor, Access) and factor.tensor in names for factor in factors)
    return einsum.reduction == "sum" and einsum.reduced == (variable,) and hits == 1


def _plain_factors(expression: Expression) -> list[Expression]:
    if isinstance(expression, Operation) and expression.operator == "mul":
        return [factor for side in expression.operands for factor in _plain_factors(side)]
    return [expression]


def _is_needed(cascade: Cascade, einsum: Einsum, shifted: Sequence[Einsum], sums: Sequence[Einsum]) -> bool:
    """Whether anything but the rewritten Einsums uses what an Einsum makes."""
    inside = {each.name for each in (*shifted, *sums)}
    used = any(_uses(other, einsum.name) for other in cascade.einsums if other.name not in inside)
    return used or einsum.name in cascade.outputs


def _reassembled(
    cascade: Cascade, new: dict[str, list[Einsum]], ends: Sequence[Einsum], starts: Sequence[Einsum], variable: str
) -> Cascade:
    """The cascade with Einsums replaced; what an iteration ends with follows its last Einsum, then all that needs it."""
    last = max(number for number, each in enumerate(cascade.einsums) if each.name in new)
    waiting = {each.name for each in ends}
    einsums: list[Einsum] = []
    later: list[Einsum] = []
    for number, each in enumerate(cascade.einsums):
        if each.name in new:
            einsums += new[each.name]
        elif number < last and any(access.tensor in waiting for access in each.inputs):
            waiting.add(each.name)
            later.append(each)
        else:
            einsums.append(each)
        if number == last:
            einsums += [*ends, *later]
    iterative = {**cascade.iterative, variable: rank_of(variable)}
    return replace(cascade, einsums=tuple(einsums), initial=(*cascade.initial, *starts), iterative=iterative)


def _without_unused(cascade: Cascade, names: Sequence[str]) -> Cascade:
    """The cascade without those of the named Einsums that nothing reads any more."""
    kept = [
        each
        for each in cascade.einsums
        if each.name not in names or any(_uses(other, each.name) for other in cascade.einsums)
    ]
    return replace(cascade, einsums=tuple(kept))


def _einsum(output: Access, expression: Expression, reduction: str | None, cascade: Cascade) -> Einsum:
    """An Einsum through its text, so that what is written is what is meant."""
    probe = Einsum(output, expression, reduction, (), "")
    text = write_einsum(output, expression, reduction, probe.reduced)
    return parse_einsum(text, frozenset((*cascade.ranks, *families(cascade))))


def _fresh(cascade: Cascade, name: str) -> str:
    taken = {access.tensor for access in cascade.inputs} | {einsum.name for einsum in cascade.einsums}
    while name in taken:
        name += "X"
    return name


def _checked(cascade: Cascade) -> Cascade:
    """The same cascade, once every check that a written one passes has passed."""
    for number in range(len(cascade.einsums)):
        check_einsum(cascade, number)
    check_iterations(cascade)
    return cascade
