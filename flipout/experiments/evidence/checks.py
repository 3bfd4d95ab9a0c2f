"""Checks that several families of experiments make."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

from flipout.variance import compare

from ..running.results import MUST_HOLD, REPORTED, Check
from .statistics import LEVEL, Mean, f_quantile, f_tail, interval, t_quantile


def same_loss(losses: Mapping[str, Sequence[float]], where: str = "At one posterior") -> list[Check]:
    """Compare the losses of random batches: equal in expectation, and no more variable under flipout.

    Args:
        losses: The losses of random batches under each scheme, all at the same weights.
        where: The beginning of both claims.
    """
    pairs = list(combinations(losses, 2))
    comparisons = [compare(*(Mean.of(losses[scheme]) for scheme in pair)) for pair in pairs]
    worst = min(comparisons, key=lambda comparison: comparison.p)
    half = t_quantile(1 - LEVEL / 2 / len(pairs), worst.freedom) * worst.error
    shared, flipped = (Mean.of(losses[scheme]) for scheme in ("shared", "flipout"))
    ratio = (flipped.error / shared.error) ** 2
    *others, last = losses
    return [
        Check(
            "same-loss",
            f"{where}, the expected loss is the same under {', '.join(others)} and {last} (largest difference)",
            MUST_HOLD,
            "largest difference",
            worst.difference,
            (worst.difference - half, worst.difference + half),
            worst.p * len(pairs) >= LEVEL,
        ),
        Check(
            "loss-variance",
            f"{where}, the loss of a batch varies no more under flipout than under shared (ratio of variances, at most "
            "1 up to chance)",
            MUST_HOLD,
            "ratio of variances",
            ratio,
            (ratio / f_quantile(1 - LEVEL, flipped.freedom, shared.freedom), None),
            f_tail(ratio, flipped.freedom, shared.freedom) >= LEVEL,
        ),
    ]


def ratio_check(
    name: str, claim: str, quantity: str, ratio: tuple[float, float, float], holds: bool, figure: str | None
) -> Check:
    """Report a ratio (value, low, high). A ratio that is NaN was never reached, and does not hold."""
    value, low, high = ratio
    if math.isnan(value):
        return Check(name, claim, REPORTED, quantity, None, None, False, figure, "never reached")
    return Check(name, claim, REPORTED, quantity, value, (low, high), holds, figure)


def within_spread(
    name: str, subject: str, reference: str, values: Sequence[float], others: Sequence[float], figure: str
) -> Check:
    """Report whether the mean of `values` is at most two standard deviations of the `others` from their mean."""
    mean, error, *_ = interval(others)
    spread = error * math.sqrt(len(others)) or math.inf
    value, _, low, high = interval([(value_of_seed - mean) / spread for value_of_seed in values])
    claim = f"{subject} is within the spread of the seeds of {reference} (difference in standard deviations, at most 2)"
    quantity = "difference in standard deviations"
    return Check(name, claim, REPORTED, quantity, value, (low, high), abs(value) <= 2, figure)
