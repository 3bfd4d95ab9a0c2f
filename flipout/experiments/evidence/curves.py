"""Training curves: when to look at a network, when it reached a level, and the band over its seeds."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np


def points(iterations: int) -> list[int]:
    """Iterations at which a network is looked at: each a tenth after the one before."""
    made = {0, iterations}
    at = 1.0
    while at < iterations:
        made.add(round(at))
        at *= 1.1
    return sorted(made)


def reached(iterations: Sequence[int], values: Sequence[float], level: float) -> float:
    """The first iteration at which a value is down to a level, between two looks on a line; infinite if never.

    A curve that jumps about is down there early by luck: this favours the noisier one.
    """
    if values[0] <= level:
        return 0.0
    for (before, high), (after, low) in pairwise(zip(iterations, values, strict=True)):
        if low <= level:
            return before + (after - before) * (high - level) / (high - low)
    return math.inf


def band(axes, curves: Sequence[Any], column: str, colour: str, style: str, label: str | None) -> None:
    """A line for the mean over curves with the same `iterations`, and a band from the lowest to the highest."""
    begin = curves[0].iterations[0] == 0  # which a logarithmic axis has no place for
    at = np.asarray(curves[0].iterations[begin:])
    values = np.asarray([getattr(curve, column)[begin:] for curve in curves])
    axes.fill_between(at, values.min(0), values.max(0), color=colour, alpha=0.2, lw=0, zorder=2)
    axes.plot(at, values.mean(0), style, color=colour, lw=1.5, label=label, zorder=3)


def iteration_ratios(above: Sequence[Any], below: Sequence[Any], column: str, level: float) -> list[float]:
    """Iterations to a level, curve over curve, seed by seed; infinite where the one below begins there."""
    times = ((one.reached(column, level), two.reached(column, level)) for one, two in zip(above, below, strict=True))
    return [one / two if two else math.inf for one, two in times]
