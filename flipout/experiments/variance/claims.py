"""What the theory says about variance curves, and what the paper saw in them, as checks.

A claim that must hold in every layer and at every N speaks of many comparisons at once; together they refuse a true
claim about once in 1/LEVEL runs (Bonferroni). The value of such a check is the comparison that speaks most against the
claim, and its interval is simultaneous over all of them.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Literal

from flipout.variance import Decomposition, Measurements, Record, Term, compare

from ..evidence.statistics import LEVEL, t_quantile, term_interval, term_ratio
from ..running.results import MUST_HOLD, REPORTED, Check

# The chance of a fit, and of a difference from a prediction, comes out too small in its far tail.
TAIL_LEVEL = 1e-4
Kind = Literal["must_hold", "reported"]
Pairs = Sequence[tuple[Record, Record | Term]]


def agree(claim: str, pairs: Pairs, level: float = LEVEL) -> Check:
    """first = second in every pair; the value is the ratio of the pair that speaks most against it."""
    return _worst(f"{claim} (ratio that speaks most against it)", pairs, "equal", level)


def not_above(claim: str, pairs: Pairs) -> Check:
    """first ≤ second in every pair; the value is as above."""
    return _worst(f"{claim} (ratio that speaks most against it)", pairs, "less", LEVEL)


def on_average_below(claim: str, kind: Kind, pairs: Sequence[tuple[Record, Record]]) -> list[Check]:
    """first < second: the geometric mean of the ratios, with its interval at LEVEL, is below 1. Theory is not asked
    where the interval is wider than a factor of 2 each way: a broken scheme could not be told from a sound one."""
    parts = [(math.log(a.variance / b.variance), (a.error / a.variance) ** 2, a.freedom) for a, b in pairs]
    parts += [(0.0, (b.error / b.variance) ** 2, b.freedom) for _, b in pairs]
    mean = sum(log for log, *_ in parts) / len(pairs)
    total = sum(square for _, square, _ in parts)
    loss = sum(square**2 / freedom for _, square, freedom in parts)
    half = t_quantile(1 - LEVEL / 2, total**2 / loss if loss else math.inf) * math.sqrt(total) / len(pairs)
    if kind == MUST_HOLD and half > math.log(2):
        return []
    interval = math.exp(mean - half), math.exp(mean + half)
    return [Check(f"{claim} (geometric mean of the ratios)", kind, math.exp(mean), interval, interval[1] < 1)]


def _worst(claim: str, pairs: Pairs, relation: Literal["equal", "less"], level: float) -> Check:
    found = [compare(first, second) for first, second in pairs]
    chances = [one.p if relation == "equal" else one.p_greater for one in found]
    ratios = [first.variance / second.value for first, second in pairs]
    worst = min(range(len(pairs)), key=lambda i: (chances[i], -ratios[i]))
    first, ratio = pairs[worst][0], ratios[worst]
    share = level / len(pairs) / (2 if relation == "equal" else 1)
    # In logarithms: a ratio of variances is not negative.
    width = math.exp(min(t_quantile(1 - share, found[worst].freedom) * found[worst].error / first.variance, 700))
    interval = (ratio / width, ratio * width if relation == "equal" else None)
    return Check(claim, MUST_HOLD, ratio, interval, chances[worst] * len(pairs) >= level)


def start_together(measured: Measurements) -> Check:
    """At N = 1 the schemes that perturb weights have one and the same distribution."""
    at_one = [r for r in measured if r.batch_size == 1 and r.scheme != "local_reparam"]
    pairs = [pair for pair in combinations(at_one, 2) if pair[0].parameter == pair[1].parameter]
    names = " and ".join(dict.fromkeys(r.scheme for r in at_one))
    return agree(f"At N = 1 the variances of {names} are equal, in every layer", pairs)


def below(measured: Measurements, scheme: str, others: Iterable[str], strictly: Kind) -> list[Check]:
    """Nowhere above; and strictly below: in theory at all sizes, or as the paper saw it at the largest."""
    others = tuple(others)
    pairs = [
        (first, second)
        for first in measured.select(scheme=scheme)
        for other in others
        for second in measured.select(
            scheme=other, parameter=first.parameter, batch_size=first.batch_size, bases=first.bases
        )
    ]
    named = " and ".join(others)
    largest = max(first.batch_size for first, _ in pairs)
    everywhere = strictly == MUST_HOLD
    apart = [pair for pair in pairs if everywhere or pair[0].batch_size == largest]
    where = "" if everywhere else f" at N = {largest}"
    return [
        not_above(f"{scheme} ≤ {named} at every N, in every layer", pairs),
        *on_average_below(f"{scheme} is below {named}{where}", strictly, apart),
    ]


def form(measured: Measurements) -> Check:
    """Each curve is a + b/N."""
    fits = measured.fit()
    smallest = min(min(fit.p for fit in fits) * len(fits), 1.0)
    return Check(
        "Every curve has the form a + b/N (chance of so bad a fit)", MUST_HOLD, smallest, None, smallest >= TAIL_LEVEL
    )


def predicted(measured: Measurements, found: Sequence[Decomposition]) -> Check:
    """The theorem: α, β and γ, estimated apart, give the measured curves."""
    known = {one.parameter: one for one in found}
    pairs = [
        (r, known[r.parameter].predict(r.scheme, r.batch_size, r.bases))
        for r in measured
        if r.scheme != "local_reparam"
    ]
    claim = "The variance predicted from α, β, γ is the measured one, at every N, in every layer"
    return agree(claim, pairs, TAIL_LEVEL)


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
        knee = term_ratio(one.alpha, one.both)
        ten = Term(10 * (knee.value - 1), 10 * knee.error)
        claim = f"{_layer(one.parameter)}: shared is within 10 % of its floor at an N from 100 to 1000"
        made.append(Check(claim, REPORTED, ten.value, term_interval(ten), 100 <= ten.value <= 1000))
    return made


def orders(found: Sequence[Decomposition]) -> list[Check]:
    made = []
    for one in found:
        # A γ that is not told from 0 counts as two of its errors.
        gamma = Term(max(one.gamma.value, 2 * one.gamma.error), one.gamma.error)
        ratios = term_ratio(one.alpha, one.beta), term_ratio(one.beta, gamma)
        least = min(ratios, key=lambda term: term.value)
        claim = f"{_layer(one.parameter)}: α ≫ β ≫ γ (each at least 10 times the next; the smaller ratio)"
        made.append(Check(claim, REPORTED, least.value, term_interval(least), least.value >= 10))
    return made


def term(record: Record) -> Term:
    return Term(record.variance, record.error)


def _layer(parameter: str) -> str:
    return parameter.removesuffix(".weight")
