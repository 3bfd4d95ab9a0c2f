"""Student's t and Fisher's F for any positive degrees of freedom, and the intervals of a mean and of a share."""

import functools
import math
from collections.abc import Iterable

import numpy as np
import torch


def interval(values: Iterable[float], level: float = 0.9) -> tuple[float, float, float, float]:
    """Return the mean, its standard error, and the bounds of its t interval.

    The error and the bounds of a single value are infinite.
    """
    array = np.asarray(list(values), dtype=np.float64)
    mean = float(array.mean())
    if len(array) < 2:
        return mean, math.inf, -math.inf, math.inf
    error = float(array.std(ddof=1)) / math.sqrt(len(array))
    half_width = t_quantile((1 + level) / 2, len(array) - 1) * error
    return mean, error, mean - half_width, mean + half_width


def share_interval(share: float, count: float, level: float = 0.9) -> tuple[float, float]:
    """Return Wilson's interval of a share that was found in `count` trials."""
    squared = t_quantile((1 + level) / 2, math.inf) ** 2 / count
    middle = (share + squared / 2) / (1 + squared)
    half_width = math.sqrt(squared * (share * (1 - share) + squared / 4)) / (1 + squared)
    return middle - half_width, middle + half_width


def t_tail(t: float, freedom: float) -> float:
    """Return P(T > t). Infinite `freedom` means the normal distribution."""
    if math.isinf(freedom):
        return math.erfc(t / math.sqrt(2)) / 2
    half = _beta(freedom / 2, 0.5, freedom, t * t) / 2
    return half if t > 0 else 1 - half


@functools.lru_cache
def t_quantile(probability: float, freedom: float) -> float:
    """Invert `t_tail` by bisection over θ, where t = √ν tan θ."""
    if probability < 0.5:
        return -t_quantile(1 - probability, freedom)
    if math.isinf(freedom):
        return float(torch.special.ndtri(torch.tensor(probability, dtype=torch.float64)))
    low, high = 0.0, math.pi / 2
    for _ in range(50):
        middle = (low + high) / 2
        is_below = 1 - probability < t_tail(math.sqrt(freedom) * math.tan(middle), freedom)
        low, high = (middle, high) if is_below else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def f_tail(ratio: float, numerator: float, denominator: float) -> float:
    """Return P(F > ratio), given the degrees of freedom of the numerator and of the denominator."""
    return _beta(denominator / 2, numerator / 2, denominator, numerator * ratio)


@functools.lru_cache
def f_quantile(probability: float, numerator: float, denominator: float) -> float:
    """Invert `f_tail` by bisection over θ, where F = tan θ."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        is_below = 1 - probability < f_tail(math.tan(middle), numerator, denominator)
        low, high = (middle, high) if is_below else (low, middle)
    return math.tan(low)


def _beta(a: float, b: float, part: float, rest: float) -> float:
    """Return the regularised incomplete beta function at part / (part + rest)."""
    if part == 0 or rest == 0:
        return float(rest == 0)
    logs = a * -math.log1p(rest / part) + b * -math.log1p(part / rest)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + logs)
    x, y = part / (part + rest), rest / (part + rest)
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1 - front * _beta_fraction(b, a, y) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Evaluate the continued fraction of the beta function by Lentz's method, in about √(a + b) steps."""
    tiny = 1e-300
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or tiny)
    value = d
    for m in range(1, 100_000):
        before = value
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * d or tiny)
            c = 1 + term / c or tiny
            value *= c * d
        if abs(value - before) <= 1e-15 * abs(value):
            break
    return value
