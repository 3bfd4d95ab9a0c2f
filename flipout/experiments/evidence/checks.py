"""Checks that several experiments make."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

from flipout.variance import compare

from ..running.results import MUST_HOLD, REPORTED, Check
from .statistics import LEVEL, Mean, f_quantile, f_tail, interval, t_quantile


def same_loss(drawn: Mapping[str, Sequence[float]], where: str = "At one posterior") -> list[Check]:
    """The loss of random batches at one posterior: one expectation, and no more variance under flipout."""
    pairs = list(combinations(drawn, 2))
    found = {pair: compare(*(Mean.of(drawn[scheme]) for scheme in pair)) for pair in pairs}
    worst = min(found.values(), key=lambda one: one.p)
    half = t_quantile(1 - LEVEL / 2 / len(pairs), worst.freedom) * worst.error
    shared, own = (Mean.of(drawn[scheme]) for scheme in ("shared", "flipout"))
    ratio = (own.error / shared.error) ** 2
    *others, last = drawn
    return [
        Check(
            f"{where}, {', '.join(others)} and {last} expect the same loss (difference that speaks most against it)",
            MUST_HOLD,
            worst.difference,
            (worst.difference - half, worst.difference + half),
            worst.p * len(pairs) >= LEVEL,
        ),
        Check(
            f"{where}, a batch's loss varies no more under flipout than under shared (ratio of variances, at most 1 "
            "within chance)",
            MUST_HOLD,
            ratio,
            (ratio / f_quantile(1 - LEVEL, own.freedom, shared.freedom), None),
            f_tail(ratio, own.freedom, shared.freedom) >= LEVEL,
        ),
    ]


def ratio_check(claim: str, found: tuple[float, float, float], holds: bool) -> Check:
    value, low, high = found
    if math.isnan(value):
        return Check(f"{claim}; never reached", REPORTED, None, None, False)
    return Check(claim, REPORTED, value, (low, high), holds)


def within_spread(what: str, whose: str, own: Sequence[float], others: Sequence[float]) -> Check:
    """The mean of `own` is at most two standard deviations of the `others` from theirs."""
    mean, error, *_ = interval(others)
    spread = error * math.sqrt(len(others)) or math.inf
    value, _, low, high = interval([(one - mean) / spread for one in own])
    claim = f"{what} is within the spread of {whose}'s seeds (difference in their standard deviations, at most 2)"
    return Check(claim, REPORTED, value, (low, high), abs(value) <= 2)
