"""How well the confidence in the likeliest class agrees with its accuracy."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from .._arguments import whole_number
from ._checked import Array, predicted_classes
from ._figures import FilePath, draw_reliability
from ._prediction import Prediction
from ._shown import shown


@dataclass(frozen=True, eq=False, repr=False)
class Reliability:
    """How often the likeliest class was right, in bins of its probability (the confidence).

    Confidence and accuracy are NaN in empty bins.
    """

    edges: Array  # (bins + 1,): the edges of the bins
    count: Array  # (bins,): the number of examples in each bin
    confidence: Array  # (bins,): the mean confidence
    accuracy: Array  # (bins,): the share of examples that were right

    @property
    def ece(self) -> float:
        """The expected calibration error: |accuracy − confidence|, averaged over the examples."""
        is_full = self.count > 0
        gaps = np.abs(self.accuracy[is_full] - self.confidence[is_full])
        return float(gaps @ self.count[is_full] / self.count.sum())

    def plot(self, path: FilePath | None = None) -> Any:
        """Draw the reliability diagram.

        Args:
            path: The file to write, if any.

        Returns:
            A matplotlib figure.
        """
        return draw_reliability(self.edges, self.count, self.confidence, self.accuracy, path)

    def __repr__(self) -> str:
        return shown(self, bins=len(self.count), examples=int(self.count.sum()), ece=self.ece)


def reliability(prediction: Prediction | Tensor, target: Tensor, bins: int = 15) -> Reliability:
    """Compare confidence with accuracy, in bins of equal width.

    Args:
        prediction: A prediction of classes, or probabilities (N, classes), or (N,) for the second of two classes.
        target: The classes, in the shape of `prediction.total`.
        bins: The number of bins.

    Returns:
        Confidence and accuracy of each bin.

    Raises:
        InvalidInput: The shapes do not fit, the probabilities do not sum to 1, or the prediction is of numbers.

    Example:
        >>> bayes.reliability(prediction, y).plot("reliability.svg")
    """
    bins = whole_number("bins", bins, 1, of="reliability")
    p, y = predicted_classes(prediction, target, "reliability")
    confidence, is_right = p.max(1), (p.argmax(1) == y).astype(np.float64)
    place = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    count = np.bincount(place, minlength=bins).astype(np.float64)
    with np.errstate(invalid="ignore"):
        means = (np.bincount(place, values, bins) / count for values in (confidence, is_right))
        return Reliability(np.linspace(0, 1, bins + 1), count, *means)
