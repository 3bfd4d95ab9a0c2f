"""Levels, intervals and ratios that the claims of all experiments share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flipout.variance import Term
from flipout.variance.records import interval

LEVEL = 1e-3


Z90 = 1.6448536269514722


def term_ratio(over: Term, under: Term) -> Term:
    """over / under, with the error of independent estimates; infinite where `under` is not told from 0."""
    if under.value <= 0:
        return Term(math.inf, math.inf)
    value = over.value / under.value
    return Term(value, math.hypot(over.error, value * under.error) / under.value)


def term_interval(term: Term) -> tuple[float, float] | None:
    """The 90 % interval."""
    if not math.isfinite(term.value):
        return None
    return term.value - Z90 * term.error, term.value + Z90 * term.error


@dataclass(frozen=True)
class Mean:
    value: float
    error: float
    freedom: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Mean":
        value, error, *_ = interval(values)
        return cls(value, error, len(values) - 1)


def geometric(ratios: Sequence[float]) -> tuple[float, float, float]:
    """The geometric mean, and its 90 % interval over the seeds; NaN where some seed has no ratio."""
    if not all(0 < ratio < math.inf for ratio in ratios):
        return math.nan, math.nan, math.nan
    value, _, low, high = interval([math.log(ratio) for ratio in ratios])
    return math.exp(value), math.exp(low), math.exp(high)
