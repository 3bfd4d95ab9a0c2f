"""What the theory says about variance curves, and what the paper saw in them, as checks.

A claim that must hold speaks of many comparisons at once; together they refuse a true claim once in 1/LEVEL runs
(Bonferroni). The value of such a check is the comparison that speaks most against the claim, and its interval is
simultaneous over all of them.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Literal

from flipout.variance import Decomposition, Measurements, Record, Term, compare
from flipout.variance.student import t_quantile

from .results import MUST_HOLD, REPORTED, Check

LEVEL = 1e-3
FORM_LEVEL = 1e-4  # the chance of a fit comes out too small in its far tail
Z90 = 1.6448536269514722
Pairs = Sequence[tuple[Record, Record | Term]]


def agree(claim: str, pairs: Pairs) -> Check:
    """first = second in every pair; the value is a ratio."""
    return _worst(claim, pairs, "equal")


def not_above(claim: str, pairs: Pairs) -> Check:
    """first ≤ second in every pair; the value is a ratio."""
    return _worst(claim, pairs, "less")


def _worst(claim: str, pairs: Pairs, relation: Literal["equal", "less"]) -> Check:
    found = [compare(first, second) for first, second in pairs]
    chances = [one.p if relation == "equal" else one.p_greater for one in found]
    worst = min(range(len(pairs)), key=chances.__getitem__)
    first, second = pairs[worst]
    against = second.variance if isinstance(second, Record) else second.value
    share = LEVEL / len(pairs) / (2 if relation == "equal" else 1)
    half = t_quantile(1 - share, found[worst].freedom) * found[worst].error / against
    ratio = first.variance / against
    interval = (ratio - half, ratio + half if relation == "equal" else None)
    return Check(claim, MUST_HOLD, ratio, interval, chances[worst] * len(pairs) >= LEVEL)


def start_together(measured: Measurements) -> Check:
    """At N = 1 the schemes that perturb weights have one and the same distribution."""
    at_one = [r for r in measured.select(batch_size=1) if r.scheme != "local_reparam"]
    pairs = [pair for pair in combinations(at_one, 2) if pair[0].parameter == pair[1].parameter]
    names = " and ".join(dict.fromkeys(r.scheme for r in at_one))
    return agree(f"At N = 1 the variances of {names} are equal, in every layer (ratio)", pairs)


def below(measured: Measurements, scheme: str, others: Iterable[str]) -> Check:
    others = tuple(others)
    pairs = [
        (first, second)
        for first in measured.select(scheme=scheme)
        for other in others
        for second in measured.select(
            scheme=other, parameter=first.parameter, batch_size=first.batch_size, bases=first.bases
        )
    ]
    return not_above(f"{scheme} ≤ {' and '.join(others)} at every N, in every layer (largest ratio)", pairs)


def form(measured: Measurements) -> Check:
    """Each curve is a + b/N."""
    fits = measured.fit()
    smallest = min(min(fit.p for fit in fits) * len(fits), 1.0)
    return Check(
        "Every curve has the form a + b/N (chance of so bad a fit)", MUST_HOLD, smallest, None, smallest >= FORM_LEVEL
    )


def predicted(measured: Measurements, found: Sequence[Decomposition]) -> Check:
    """The theorem: α, β and γ, estimated apart, give the measured curves."""
    known = {one.parameter: one for one in found}
    pairs = [
        (r, known[r.parameter].predict(r.scheme, r.batch_size, r.bases))
        for r in measured
        if r.scheme != "local_reparam"
    ]
    return agree("The variance predicted from α, β, γ is the measured one, at every N, in every layer (ratio)", pairs)


def slopes(measured: Measurements, scheme: str = "flipout") -> list[Check]:
    sizes = sorted({r.batch_size for r in measured})
    span = f"N = {sizes[0]} … {sizes[-1]}"
    return [
        Check(
            f"{_layer(slope.parameter)}: the log-log slope of {scheme} over {span} is −1 (to 0.05)",
            REPORTED,
            slope.value,
            (slope.low, slope.high),
            abs(slope.value + 1) <= 0.05,
        )
        for slope in measured.select(scheme=scheme).slope()
    ]


def levelling(found: Sequence[Decomposition]) -> list[Check]:
    """Where shared perturbations stop paying. The variance is (β + γ) + (α − β − γ) / N."""
    made = []
    for one in found:
        knee = ratio(one.alpha, one.both)
        ten = Term(10 * (knee.value - 1), 10 * knee.error)
        claim = f"{_layer(one.parameter)}: shared is within 10 % of its floor at an N from 100 to 1000"
        made.append(Check(claim, REPORTED, ten.value, within(ten), 100 <= ten.value <= 1000))
    return made


def orders(found: Sequence[Decomposition]) -> list[Check]:
    made = []
    for one in found:
        ratios = ratio(one.alpha, one.beta), ratio(one.beta, one.gamma)
        least = min(ratios, key=lambda term: term.value)
        claim = f"{_layer(one.parameter)}: α ≫ β ≫ γ (each at least 10 times the next; the smaller ratio)"
        made.append(Check(claim, REPORTED, least.value, within(least), least.value >= 10))
    return made


def ratio(over: Term, under: Term) -> Term:
    """over / under, with the error of independent estimates; infinite where `under` is not told from 0."""
    if under.value <= 0:
        return Term(math.inf, math.inf)
    value = over.value / under.value
    return Term(value, value * math.hypot(over.error / over.value, under.error / under.value))


def term(record: Record) -> Term:
    return Term(record.variance, record.error)


def within(term: Term) -> tuple[float, float] | None:
    """The 90 % interval."""
    if not math.isfinite(term.value):
        return None
    return term.value - Z90 * term.error, term.value + Z90 * term.error


def _layer(parameter: str) -> str:
    return parameter.removesuffix(".weight")
