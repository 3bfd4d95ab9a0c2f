"""How often intervals of each level hold the target."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ._checked import Array
from ._figures import FilePath, draw_calibration
from ._prediction import Prediction
from ._shown import shown
from ._target_interval import target_interval

_LEVELS = [i / 20 for i in range(1, 20)]


@dataclass(frozen=True, eq=False, repr=False)
class CalibrationCurve:
    """The share of targets inside `interval(level)`, for many levels. A calibrated prediction has equal numbers."""

    levels: Array  # (levels,): 0.05, 0.1, …, 0.95
    coverage: Array  # (levels,): the share of targets inside
    examples: int  # the number of targets

    @property
    def error(self) -> float:
        """The mean of |coverage − level|."""
        return float(np.abs(self.coverage - self.levels).mean())

    def plot(self, path: FilePath | None = None) -> Any:
        """Draw coverage against level.

        Args:
            path: The file to write, if any.

        Returns:
            A matplotlib figure.
        """
        return draw_calibration(self.levels, self.coverage, self.examples, path)

    def __repr__(self) -> str:
        return shown(self, levels=len(self.levels), examples=self.examples, error=self.error)


def calibration_curve(prediction: Prediction, target: Tensor) -> CalibrationCurve:
    """Return the coverage of the intervals at levels from 0.05 to 0.95."""
    found = coverages(prediction, target, _LEVELS)
    return CalibrationCurve(np.array(_LEVELS), np.array(list(found.values())), target.numel())


def coverages(prediction: Prediction, target: Tensor, levels: list[float]) -> dict[float, float]:
    """Return the share of targets inside the interval of each level."""
    likelihood = prediction.likelihood
    assert likelihood is not None
    if likelihood.defines("cdf") and not likelihood.counts:
        # An interval has equal tails, so it holds y just if |2 cdf(y) − 1| ≤ level.
        distance = (2 * prediction.cdf(target).double() - 1).abs()
        return {level: float((distance <= level).double().mean()) for level in levels}
    return {level: _share_inside(prediction, target, level) for level in levels}


def _share_inside(prediction: Prediction, target: Tensor, level: float) -> float:
    low, high = target_interval(prediction, level)
    return float(((low <= target) & (target <= high)).to(torch.float64).mean())
