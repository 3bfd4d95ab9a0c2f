"""Levels, intervals and ratios that the claims of all experiments share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from flipout.variance import Term

LEVEL = 1e-3  # how often a claim that must hold may be refused although it is true
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


def interval(values: Sequence[float], level: float = 0.9) -> tuple[float, float, float, float]:
    """Return the mean, its standard error, and the ends of its t interval; a single value has infinite ends."""
    array = np.asarray(values, dtype=np.float64)
    mean = float(array.mean())
    if len(array) < 2:
        return mean, math.inf, -math.inf, math.inf
    error = float(array.std(ddof=1)) / math.sqrt(len(array))
    half = t_quantile((1 + level) / 2, len(array) - 1) * error
    return mean, error, mean - half, mean + half


def t_quantile(probability: float, freedom: float) -> float:
    """Return a quantile of Student's t; with infinite `freedom`, one of the normal distribution."""
    return float(special.stdtrit(freedom, probability))


def f_quantile(probability: float, above: float, below: float) -> float:
    """Return a quantile of Fisher's F with `above` degrees of freedom in the numerator, `below` in the denominator."""
    return float(special.fdtri(above, below, probability))


def f_tail(ratio: float, above: float, below: float) -> float:
    """Return P(F > ratio)."""
    return float(special.fdtrc(above, below, ratio))
