"""Checks of variance curves: what theory predicts, and what the paper observed.

A claim that must hold in every layer and at every N makes many comparisons at once. Together they refuse a true claim
about once in 1/LEVEL runs (Bonferroni). The value of such a check is the comparison that speaks most against the claim,
and its interval is simultaneous over all comparisons.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from itertools import combinations
from typing import Literal

from flipout.variance import Decomposition, Measurements, Record, Term, compare

from ..evidence.statistics import LEVEL, t_quantile, term_interval, term_ratio
from ..running.results import MUST_HOLD, REPORTED, Check, Kind

# The p-values of fits, and of differences from a prediction, come out too small in their far tail.
TAIL_LEVEL = 1e-4
FIGURE = "variance"
SLOPE, KNEE = "slope of flipout", "knee of shared, α/(β + γ)"
FLOOR = "N at which shared is within 10 % of its floor"
Pairs = Sequence[tuple[Record, Record | Term]]


def agree(name: str, claim: str, pairs: Pairs, level: float = LEVEL, figure: str | None = None) -> Check:
    """Check that both variances of every pair are equal."""
    return _worst(name, claim, pairs, "equal", level, figure)


def not_above(name: str, claim: str, pairs: Pairs, figure: str | None = None) -> Check:
    """Check that in every pair the first variance is not above the second."""
    return _worst(name, claim, pairs, "less", LEVEL, figure)


def on_average_below(
    name: str, claim: str, kind: Kind, pairs: Sequence[tuple[Record, Record]], figure: str
) -> list[Check]:
    """Check that the geometric mean of the ratios first / second is below 1, with its interval at LEVEL.

    A claim that must hold is left out where the interval is wider than a factor of 2 each way: such an interval cannot
    tell a broken scheme from a sound one.
    """
    parts = [(math.log(a.variance / b.variance), (a.error / a.variance) ** 2, a.freedom) for a, b in pairs]
    parts += [(0.0, (b.error / b.variance) ** 2, b.freedom) for _, b in pairs]
    mean = sum(log for log, *_ in parts) / len(pairs)
    total = sum(square for _, square, _ in parts)
    loss = sum(square**2 / freedom for _, square, freedom in parts)
    half = t_quantile(1 - LEVEL / 2, total**2 / loss if loss else math.inf) * math.sqrt(total) / len(pairs)
    if kind == MUST_HOLD and half > math.log(2):
        return []
    bounds = math.exp(mean - half), math.exp(mean + half)
    claim = f"{claim} (geometric mean of the ratios)"
    return [Check(name, claim, kind, "geometric mean of ratios", math.exp(mean), bounds, bounds[1] < 1, figure)]


def _worst(
    name: str, claim: str, pairs: Pairs, relation: Literal["equal", "less"], level: float, figure: str | None
) -> Check:
    """Return a check of all pairs, with the ratio of the pair that speaks most against the claim as its value."""
    comparisons = [compare(first, second) for first, second in pairs]
    chances = [comparison.p if relation == "equal" else comparison.p_greater for comparison in comparisons]
    ratios = [first.variance / second.value for first, second in pairs]
    worst = min(range(len(pairs)), key=lambda i: (chances[i], -ratios[i]))
    first, ratio = pairs[worst][0], ratios[worst]
    share = level / len(pairs) / (2 if relation == "equal" else 1)
    # In logarithms: a ratio of variances is not negative.
    half = t_quantile(1 - share, comparisons[worst].freedom) * comparisons[worst].error / first.variance
    width = math.exp(min(half, 700))
    bounds = (ratio / width, ratio * width if relation == "equal" else None)
    holds = chances[worst] * len(pairs) >= level
    return Check(name, f"{claim} (worst ratio)", MUST_HOLD, "worst ratio", ratio, bounds, holds, figure)


def start_together(measured: Measurements) -> Check:
    """Check that at N = 1 all schemes that perturb weights have the same distribution."""
    at_one = [r for r in measured if r.batch_size == 1 and r.scheme != "local_reparam"]
    pairs = [pair for pair in combinations(at_one, 2) if pair[0].parameter == pair[1].parameter]
    names = " and ".join(dict.fromkeys(r.scheme for r in at_one))
    claim = f"At N = 1 the variances of {names} are equal, in every layer"
    return agree("start-together", claim, pairs, figure=FIGURE)


def below(measured: Measurements, scheme: str, others: Iterable[str], strictly: Kind) -> list[Check]:
    """Check that a scheme is nowhere above others, and strictly below.

    Theory has it strictly below at all sizes; the paper saw it at the largest.
    """
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
    compared = [pair for pair in pairs if everywhere or pair[0].batch_size == largest]
    where = "" if everywhere else f" at N = {largest}"
    return [
        not_above(f"not-above-{scheme}", f"{scheme} ≤ {named} at every N, in every layer", pairs, FIGURE),
        *on_average_below(f"below-{scheme}", f"{scheme} is below {named}{where}", strictly, compared, FIGURE),
    ]


def form(measured: Measurements) -> Check:
    """Check that each curve has the form a + b/N."""
    fits = measured.fit()
    smallest = min(min(fit.p for fit in fits) * len(fits), 1.0)
    claim = "Every curve has the form a + b/N (chance of a fit this bad)"
    return Check("form", claim, MUST_HOLD, "p-value", smallest, None, smallest >= TAIL_LEVEL, FIGURE)


def predicted(
    measured: Measurements, terms: Sequence[Decomposition], network: str = "", figure: str | None = None
) -> Check:
    """Check the theorem: α, β and γ, estimated separately, predict the measured curves.

    `network` names the check if the run has several networks.
    """
    known = {decomposition.parameter: decomposition for decomposition in terms}
    pairs = [
        (r, known[r.parameter].predict(r.scheme, r.batch_size, r.bases))
        for r in measured
        if r.scheme != "local_reparam"
    ]
    claim = "the variance predicted from α, β and γ is the measured one, at every N, in every layer"
    claim = f"{network}: {claim}" if network else claim[0].upper() + claim[1:]
    return agree(f"predicted/{network}" if network else "predicted", claim, pairs, TAIL_LEVEL, figure)


def slopes(measured: Measurements, shown: Collection[str] = (), scheme: str = "flipout") -> list[Check]:
    """Check that the log-log slope of each layer is −1. `shown` names the layers in the figure; empty means all."""
    sizes = sorted({r.batch_size for r in measured})
    span = f"N = {sizes[0]} … {sizes[-1]}"
    return [
        Check(
            f"slope/{layer_name(slope.parameter)}",
            f"{layer_name(slope.parameter)}: the log-log slope of {scheme} over {span} is −1 (to 0.05)",
            REPORTED,
            SLOPE,
            slope.value,
            (slope.low, slope.high),
            abs(slope.value + 1) <= 0.05,
            _figure_of(slope.parameter, shown),
        )
        for slope in measured.select(scheme=scheme).slope()
    ]


def levelling(terms: Sequence[Decomposition], shown: Collection[str] = ()) -> list[Check]:
    """Check where a shared perturbation levels off. Its variance is (β + γ) + (α − β − γ) / N.

    The knee α/(β + γ) is the N at which the straight lines of both regimes meet on a log-log plot. The paper's phase
    transition is there; the curve comes within 10 % of its floor only at ten times that N.
    """
    checks = []
    for decomposition in terms:
        knee = term_ratio(decomposition.alpha, decomposition.both)
        layer = layer_name(decomposition.parameter)
        claim = f"{layer}: shared turns from falling to level at an N from 100 to 1000 (its knee)"
        holds, figure = 100 <= knee.value <= 1000, _figure_of(decomposition.parameter, shown)
        checks.append(Check(f"knee/{layer}", claim, REPORTED, KNEE, knee.value, term_interval(knee), holds, figure))
    return checks


def orders(terms: Sequence[Decomposition], network: str = "") -> list[Check]:
    """Check that α ≫ β ≫ γ in every layer. `network` names the checks and the figure if the run has several."""
    checks = []
    for decomposition in terms:
        # A γ that cannot be told from 0 counts as two of its errors.
        gamma = Term(max(decomposition.gamma.value, 2 * decomposition.gamma.error), decomposition.gamma.error)
        ratios = term_ratio(decomposition.alpha, decomposition.beta), term_ratio(decomposition.beta, gamma)
        least = min(ratios, key=lambda term: term.value)
        layer = layer_name(decomposition.parameter)
        claim = f"{layer}: α ≫ β ≫ γ (each at least 10 times the next; the smaller ratio)"
        checks.append(
            Check(
                f"orders/{network}/{layer}" if network else f"orders/{layer}",
                f"{network}: {claim}" if network else claim,
                REPORTED,
                "smaller of α / β and β / γ",
                least.value,
                term_interval(least),
                least.value >= 10,
                network or None,
            )
        )
    return checks


def term(record: Record) -> Term:
    return Term(record.variance, record.error)


def layer_name(parameter: str) -> str:
    return parameter.removesuffix(".weight")


def _figure_of(parameter: str, shown: Collection[str]) -> str | None:
    return FIGURE if not shown or layer_name(parameter) in shown else None
