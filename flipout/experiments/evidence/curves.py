"""Training curves: when a network is measured, when it reached a level, and the band over its seeds."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np


def measured_iterations(iterations: int) -> list[int]:
    """Return the iterations after which a network is measured: 0, the last, and steps that grow by a tenth."""
    found = {0, iterations}
    at = 1.0
    while at < iterations:
        found.add(round(at))
        at *= 1.1
    return sorted(found)


def legs(iterations: int) -> list[tuple[int, int]]:
    """Return the iterations between which a network is measured: the first pair is (0, 0)."""
    at = measured_iterations(iterations)
    return [(0, 0), *pairwise(at)]


def cost(leg: tuple[int, int]) -> int:
    """Return the relative time of a leg. A look at the network costs about as much as an iteration."""
    before, now = leg
    return now - before + 1


def reached(iterations: Sequence[int], values: Sequence[float], level: float) -> float:
    """Return the first iteration at which a value is down to a level, or infinity.

    Between two measurements the curve is taken to be a line. A curve that jumps about is down there early by luck, so
    this favours the noisier one.
    """
    if values[0] <= level:
        return 0.0
    for (before, high), (after, low) in pairwise(zip(iterations, values, strict=True)):
        if low <= level:
            return before + (after - before) * (high - level) / (high - low)
    return math.inf


def iteration_ratios(above: Sequence[Any], below: Sequence[Any], column: str, level: float) -> list[float]:
    """Return, for each seed, the iterations to a level of one curve over those of another.

    The ratio is infinite where the curve below begins at that level.
    """
    times = (
        (upper.reached(column, level), lower.reached(column, level)) for upper, lower in zip(above, below, strict=True)
    )
    return [upper / lower if lower else math.inf for upper, lower in times]


def band(axes, curves: Sequence[Any], column: str, colour: str, style: str, label: str | None) -> None:
    """Draw the mean over curves with the same `iterations`, and a band from the lowest to the highest."""
    begin = curves[0].iterations[0] == 0  # a logarithmic axis has no 0
    at = np.asarray(curves[0].iterations[begin:])
    values = np.asarray([getattr(curve, column)[begin:] for curve in curves])
    axes.fill_between(at, values.min(0), values.max(0), color=colour, alpha=0.2, lw=0, zorder=2)
    axes.plot(at, values.mean(0), style, color=colour, lw=1.5, label=label, zorder=3)
