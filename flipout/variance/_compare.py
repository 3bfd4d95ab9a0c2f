"""Test whether one variance is above another, or above a prediction."""

import math
from dataclasses import dataclass
from typing import Protocol

from .._student import t_tail
from ..errors import InvalidArgument
from ._fits import ROUNDING


class Estimate(Protocol):
    """A value with its standard error.

    An estimate may also have `freedom`, the degrees of freedom of its error. Without it they are taken as infinite.
    """

    @property
    def value(self) -> float: ...

    @property
    def error(self) -> float: ...


@dataclass(frozen=True)
class Comparison:
    """Welch's t test of two independent estimates."""

    difference: float  # first − second
    error: float  # standard error of the difference
    freedom: float  # degrees of freedom of the error
    p_greater: float  # probability of a difference at least as large if the first is not greater than the second
    p: float  # probability of a difference at least as far from 0 if both are equal

    def __repr__(self) -> str:
        return f"Comparison({self.difference:.4g} ± {self.error:.2g}, p_greater={self.p_greater:.2g}, p={self.p:.2g})"


def compare(first: Estimate, second: Estimate) -> Comparison:
    """Compare two estimates by Welch's t test.

    Args:
        first: A `Record`, or a `Term` that `Decomposition.predict` returned.
        second: Another one, independent of the first.

    Returns:
        The difference first − second, its standard error and its p-values.

    Raises:
        InvalidArgument: An estimate has no standard error, since it was measured with `repeats=1`.

    Example:
        >>> shared, flipped = measured.select(parameter="0.weight", batch_size=64)
        >>> flipout.variance.compare(shared, flipped).p_greater
    """
    estimates = (first, second)
    if not all(math.isfinite(estimate.error) for estimate in estimates):
        raise InvalidArgument(f"compare({first}, {second}): each needs a standard error, so repeats ≥ 2.")
    squares = [estimate.error**2 for estimate in estimates]
    error, difference = math.sqrt(sum(squares)), first.value - second.value
    freedoms = [getattr(estimate, "freedom", math.inf) for estimate in estimates]
    lost = sum(square**2 / freedom for square, freedom in zip(squares, freedoms, strict=True))
    freedom = sum(squares) ** 2 / lost if lost else math.inf
    size = max(abs(estimate.value) for estimate in estimates)
    t = difference / max(error, ROUNDING * size or 1.0)
    return Comparison(difference, error, freedom, t_tail(t, freedom), 2 * t_tail(abs(t), freedom))
