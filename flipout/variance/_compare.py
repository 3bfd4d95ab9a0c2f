"""Is one measured variance above another, or above what is predicted?"""

import math
from dataclasses import dataclass
from typing import Protocol

from .._student import t_tail
from ..errors import InvalidArgument
from ._fits import ROUNDING


class Estimate(Protocol):
    """A value and its standard error; `freedom` of the error, where it has one, is else taken to be infinite."""

    @property
    def value(self) -> float: ...

    @property
    def error(self) -> float: ...


@dataclass(frozen=True)
class Comparison:
    """Welch's t test of two independent estimates."""

    difference: float  # first − second
    error: float  # its standard error
    freedom: float  # degrees of freedom of that
    p_greater: float  # of a difference at least as large, were the first not greater than the second
    p: float  # of a difference at least as far from 0, were they equal


def compare(first: Estimate, second: Estimate) -> Comparison:
    """first − second: two Records, or a Record and a Term that `decompose` predicts."""
    estimates = (first, second)
    if not all(math.isfinite(one.error) for one in estimates):
        raise InvalidArgument(f"compare({first}, {second}): each needs a standard error, so repeats ≥ 2.")
    squares = [one.error**2 for one in estimates]
    error, difference = math.sqrt(sum(squares)), first.value - second.value
    loss = sum(square**2 / getattr(one, "freedom", math.inf) for square, one in zip(squares, estimates, strict=True))
    freedom = sum(squares) ** 2 / loss if loss else math.inf
    size = max(abs(one.value) for one in estimates)
    t = difference / max(error, ROUNDING * size or 1.0)
    return Comparison(difference, error, freedom, t_tail(t, freedom), 2 * t_tail(abs(t), freedom))
