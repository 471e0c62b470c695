"""Cascade -> cascade with fewer passes over a rank, by the reassociations that Nayak et al., MICRO 2024, section IV,
describe; what each computes stays the same.

* Deferral: a factor that does not have the rank moves out of a sum over it, `sum(N/S * V)` -> `sum(N*V) / S`, so that
  the sum no longer waits for it.
* Running maximum: a maximum that later exponentials subtract is kept as the maximum so far, and sums of those
  exponentials are corrected whenever it grows, by `exp(old - new)` (Milakov and Gimelshein, 2018).
* Running mean: a sum of squared distances from a mean is built beside the mean so far (Welford, 1962).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from dse.cascade.cascade import Cascade, variable_of
from dse.cascade.einsum import Access, Affine, Einsum, Expression, Literal, Operation, Size, variables_in, walk
from dse.cascade.parser import parse_einsum
from dse.cascade.passes import Barrier, analyze_rank, passes_in_words
from dse.cascade.rebuild import at_start, build_einsum, checked, fresh_name, reassembled, steps_of, without_unused


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
        steps.append(f"{step}: {passes_in_words(passes)} over {rank}")
    left = tuple(f"{barrier}; {_why(cascade, rank, barrier)}" for barrier in analyze_rank(cascade, rank).barriers)
    return Reduction(cascade, tuple(steps), left)


Candidates = list[tuple[Cascade, str]]


def _defer(cascade: Cascade, rank: str) -> Candidates:
    """Move factors without the rank out of sums over it."""
    variable = variable_of(rank)
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
        inner = fresh_name(cascade, f"{einsum.name}N")
        inside = Access(inner, einsum.output.indices)
        summed = build_einsum(inside, _product(kept, []), "sum", cascade)
        outside = build_einsum(einsum.output, _product([inside, *out_over], out_under), None, cascade)
        einsums = [each for other in cascade.einsums for each in ([summed, outside] if other is einsum else [other])]
        moved = ", ".join(str(factor) for factor in (*out_over, *out_under))
        found.append(
            (
                checked(without_unused(replace(cascade, einsums=tuple(einsums)), inlined)),
                f"{einsum.name}: {moved} moves out of the sum over {variable}",
            )
        )
    return found


def _run_maximum(cascade: Cascade, rank: str) -> Candidates:
    """Keep a maximum as the one so far, where all that follows it in the rank are sums of exponentials less it."""
    variable = variable_of(rank)
    found: Candidates = []
    for largest in cascade.einsums:
        if largest.reduction != "max" or largest.reduced != (variable,) or _is_filtered(cascade, rank):
            continue
        shifted = {
            each.name: value
            for each in cascade.einsums
            if variable in each.output.variables and (value := _shifted(each, largest)) is not None
        }
        if not shifted:
            continue
        sums = [each for each in cascade.einsums if any(each.reads(name) for name in shifted)]
        made = [cascade[name].output for name in shifted]
        if not all(_is_sum_of(each, made, variable) for each in sums) or set(cascade.outputs) & set(shifted):
            continue
        found.append(
            (
                checked(_with_running_maximum(cascade, largest, shifted, sums, variable)),
                f"{largest.name} becomes the maximum so far, and {', '.join(s.name for s in sums)} are corrected as it grows",
            )
        )
    return found


def _with_running_maximum(
    cascade: Cascade, largest: Einsum, shifted: Mapping[str, Expression], sums: Sequence[Einsum], variable: str
) -> Cascade:
    now, ahead, last = steps_of(variable)
    running = {each.name: fresh_name(cascade, f"R{each.name}") for each in (largest, *sums)}

    def at(einsum: Einsum, step: Affine) -> Access:
        return Access(running[einsum.name], (*einsum.output.indices, step))

    new: dict[str, list[Einsum]] = {}
    grown = Operation("max", (at(largest, now), largest.expression))
    correction = Access(fresh_name(cascade, f"P{largest.name}"), (*largest.output.indices, now))
    difference = Operation("sub", (at(largest, now), at(largest, ahead)))
    new[largest.name] = [
        build_einsum(at(largest, ahead), grown, None, cascade),
        build_einsum(correction, Operation("exp", (difference,)), None, cascade),
    ]
    for name, value in shifted.items():
        fresh = Operation("exp", (Operation("sub", (value, at(largest, ahead))),))
        new[name] = [build_einsum(cascade[name].output, fresh, None, cascade)]
    for each in sums:
        corrected = Operation("mul", (at(each, now), correction))
        new[each.name] = [build_einsum(at(each, ahead), Operation("add", (corrected, each.expression)), None, cascade)]
    ends = [
        build_einsum(each.output, at(each, last), None, cascade)
        for each in (largest, *sums)
        if _is_needed(cascade, each, new)
    ]
    starts = [
        parse_einsum(f"{at_start(at(largest, now))} = -inf"),
        *(parse_einsum(f"{at_start(at(each, now))} = 0") for each in sums),
    ]
    return reassembled(cascade, new, ends, starts, variable)


def _run_mean(cascade: Cascade, rank: str) -> Candidates:
    """Build the sum of squared distances from a mean beside the mean so far."""
    variable = variable_of(rank)
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
        mean = next((each for each in cascade.einsums if each.expression == whole and not each.where), None)
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
                    checked(_with_running_mean(cascade, total, mean, spread, value, variable)),
                    f"{mean.name} becomes the mean so far, and {spread.name} grows beside it",
                )
            )
    return found


def _with_running_mean(
    cascade: Cascade, total: Einsum, mean: Einsum, spread: Einsum, value: Access, variable: str
) -> Cascade:
    now, ahead, last = steps_of(variable)
    count, middle, second = (
        fresh_name(cascade, name) for name in (f"N{mean.name}", f"R{mean.name}", f"R{spread.name}")
    )

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
            build_einsum(counted(ahead), Operation("add", (counted(now), Literal(1.0))), None, cascade),
            build_einsum(mean_at(ahead), grown, None, cascade),
            build_einsum(spread_at(ahead), wider, None, cascade),
        ],
        mean.name: [],
        spread.name: [],
    }
    ends = [
        build_einsum(mean.output, mean_at(last), None, cascade),
        build_einsum(spread.output, spread_at(last), None, cascade),
    ]
    starts = [parse_einsum(f"{at_start(each)} = 0") for each in (counted(now), mean_at(now), spread_at(now))]
    return reassembled(cascade, new, ends, starts, variable)


RULES: tuple[Callable[[Cascade, str], Candidates], ...] = (_defer, _run_maximum, _run_mean)


def _why(cascade: Cascade, rank: str, barrier: Barrier) -> str:
    """Why no rule takes a barrier away."""
    einsum = cascade[barrier.einsum]
    if _is_filtered(cascade, rank):
        return "a filter leaves points out, which no rule carries over to a running value"
    leaving = _leaves_as(cascade, einsum, variable_of(rank))
    if leaving is not None:
        return f"{leaving} leaves with every {variable_of(rank)}, so it waits for values made of all of them"
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
        if other.reads(einsum.name) and other is not einsum
    )
    return next((name for name in later if name is not None), None)


def _is_filtered(cascade: Cascade, rank: str) -> bool:
    """Whether an Einsum over a rank has a filter."""
    return any(einsum.where and variable_of(rank) in einsum.variables for einsum in cascade.einsums)


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
            if any(variable not in variables_in(factor) for factor in (*over, *under)):
                return over, under, [*inlined, maker.name]
    return [expression], [], []


def _is_product(einsum: Einsum) -> bool:
    return isinstance(einsum.expression, Operation) and einsum.expression.operator in ("mul", "div")


def _is_outside(factor: Expression, einsum: Einsum) -> bool:
    """Whether a factor depends on nothing that its Einsum sums over."""
    return variables_in(factor) <= set(einsum.output.variables)


def _product(over: Sequence[Expression], under: Sequence[Expression]) -> Expression:
    result = over[0]
    for factor in over[1:]:
        result = Operation("mul", (result, factor))
    for factor in under:
        result = Operation("div", (result, factor))
    return result


def _shifted(einsum: Einsum, largest: Einsum) -> Expression | None:
    """`something` where an Einsum is exp(something - the maximum), element by element; None where it is not."""
    match einsum.expression:
        case Operation("exp", (Operation("sub", (value, Access() as subtracted)),)):
            return value if subtracted == largest.output and not einsum.reduced else None
    return None


def _is_sum_of(einsum: Einsum, made: Collection[Access], variable: str) -> bool:
    """Whether an Einsum sums, over the variable alone, a product in which one of some tensors occurs once, as it is
    made and as a factor: so that what scales the tensor scales the sum."""
    tensors = {access.tensor for access in made}
    read = [
        factor
        for factor in _plain_factors(einsum.expression)
        if any(isinstance(node, Access) and node.tensor in tensors for node in walk(factor))
    ]
    return einsum.reduction == "sum" and einsum.reduced == (variable,) and len(read) == 1 and read[0] in made


def _plain_factors(expression: Expression) -> list[Expression]:
    if isinstance(expression, Operation) and expression.operator == "mul":
        return [factor for side in expression.operands for factor in _plain_factors(side)]
    return [expression]


def _is_needed(cascade: Cascade, einsum: Einsum, rewritten: Collection[str]) -> bool:
    """Whether anything but the rewritten Einsums uses what an Einsum makes."""
    used = any(other.reads(einsum.name) for other in cascade.einsums if other.name not in rewritten)
    return used or einsum.name in cascade.outputs
