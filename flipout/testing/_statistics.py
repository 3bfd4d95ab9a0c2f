"""Two-sample tests. Dimension 0 of a sample is the draw, dimension 1 the quantity."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .._student import t_quantile

ROUNDING = 1e-4  # in units of the noise: differences below this are put down to the arithmetic


class Worst(NamedTuple):
    """The quantity that is farthest from its expectation."""

    place: int  # its column
    errors: float  # its distance in standard errors
    limit: float  # the largest distance allowed

    @property
    def is_far(self) -> bool:
        return self.errors > self.limit

    def __str__(self) -> str:
        return f"{self.errors:.1f} standard errors, limit {self.limit:.1f}"


def worst_mean(a: Tensor, b: Tensor | float, unit: Tensor | float, error_rate: float) -> Worst:
    """Compare the mean of each quantity in two samples, or in a sample and theory.

    The limit is the normal quantile for `error_rate`, shared by all quantities (Bonferroni).

    Args:
        a: A sample, (draws, quantities).
        b: Another such sample, or the expected mean.
        unit: The size of a quantity. Differences below `ROUNDING` units do not count.
        error_rate: Probability that any quantity is found to be too far off although all means are equal.
    """
    variance = a.var(0) / len(a)
    expected = b
    if isinstance(b, Tensor):
        variance, expected = variance + b.var(0) / len(b), b.mean(0)
    difference = ((a.mean(0) - expected).abs() - ROUNDING * torch.as_tensor(unit)).clamp(min=0)
    errors = torch.where(difference > 0, difference / variance.sqrt(), 0.0)
    index = int(errors.argmax())
    return Worst(index, float(errors[index]), t_quantile(1 - error_rate / 2 / len(errors), math.inf))


def squared_deviations(sample: Tensor) -> Tensor:
    """Return squares whose mean is the unbiased variance."""
    return (sample - sample.mean(0)).square() * (len(sample) / (len(sample) - 1))


def kolmogorov(a: Tensor, b: Tensor) -> tuple[float, float]:
    """Return the largest distance of two empirical distribution functions, and its p-value.

    The p-value is Kolmogorov's series with the correction of Stephens; ties make it larger, never smaller.

    Args:
        a: A sample, (draws,).
        b: Another sample, (draws,).
    """
    # Values that differ by rounding alone must tie, or noise of few values would never pass.
    step = ROUNDING * float(b.std()) or 1.0
    a, b = ((sample / step).round().sort().values for sample in (a, b))
    places = torch.cat([a, b])
    shares = (torch.searchsorted(sample, places, right=True) / len(sample) for sample in (a, b))
    first, second = shares
    distance = float((first - second).abs().max())
    root = math.sqrt(len(a) * len(b) / (len(a) + len(b)))
    scaled = (root + 0.12 + 0.11 / root) * distance
    if scaled < 0.2:  # the series converges slowly, and its sum is 1
        return distance, 1.0
    series = (2 * (-1) ** (k - 1) * math.exp(-2 * k * k * scaled * scaled) for k in range(1, 101))
    return distance, min(1.0, max(0.0, sum(series)))
