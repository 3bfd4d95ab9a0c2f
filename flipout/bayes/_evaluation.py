"""Scores of predicted probabilities, and their calibration."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._arguments import whole_number
from .._extras import import_extra
from ._checked import Array, class_probabilities
from ._figures import FilePath, draw_reliability
from ._shown import shown


@dataclass(frozen=True, repr=False)
class Scores:
    """Scores of predicted probabilities. Lower is better, except for the accuracy."""

    accuracy: float  # the share of examples whose likeliest class is the target
    nll: float  # the mean of −log p(target), in nats
    brier: float  # the mean of Σ (p − 1[target])² over the classes, from 0 to 2
    ece: float  # the expected calibration error: |confidence − accuracy| of the bins, averaged over the examples

    def __repr__(self) -> str:
        return shown(self, accuracy=self.accuracy, nll=self.nll, brier=self.brier, ece=self.ece)


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


def evaluate(probabilities: Tensor, target: Tensor, bins: int = 15) -> Scores:
    """Score predicted probabilities. Needs scikit-learn.

    Args:
        probabilities: `predict(…).mean`, of shape (N, classes), or (N,) for the second of two classes.
        target: The classes, whole numbers of shape (N,).
        bins: The number of bins for the calibration error.

    Returns:
        Accuracy, log-likelihood, Brier score and calibration error.

    Raises:
        InvalidInput: The shapes do not fit, or the probabilities do not sum to 1.

    Example:
        >>> prediction = bayes.predict(model, x, likelihood="categorical")
        >>> bayes.evaluate(prediction.mean, y).nll
    """
    metrics = import_extra("sklearn.metrics", "evaluate", "experiments")
    p, y = class_probabilities(probabilities, target)
    labels = np.arange(p.shape[1])
    return Scores(
        accuracy=float(metrics.accuracy_score(y, p.argmax(1))),
        nll=_nll(p, y, torch.finfo(probabilities.dtype).tiny),
        brier=float(metrics.brier_score_loss(y, p, labels=labels, scale_by_half=False)),
        ece=reliability(probabilities, target, bins).ece,
    )


def reliability(probabilities: Tensor, target: Tensor, bins: int = 15) -> Reliability:
    """Compare confidence with accuracy, in bins of equal width.

    Args:
        probabilities: `predict(…).mean`, of shape (N, classes), or (N,) for the second of two classes.
        target: The classes, whole numbers of shape (N,).
        bins: The number of bins.

    Returns:
        Confidence and accuracy of each bin.

    Raises:
        InvalidInput: The shapes do not fit, or the probabilities do not sum to 1.

    Example:
        >>> bayes.reliability(prediction.mean, y).plot("reliability.svg")
    """
    bins = whole_number("bins", bins, 1, of="reliability")
    p, y = class_probabilities(probabilities, target)
    confidence, is_right = p.max(1), (p.argmax(1) == y).astype(np.float64)
    place = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    count = np.bincount(place, minlength=bins).astype(np.float64)
    with np.errstate(invalid="ignore"):
        means = (np.bincount(place, values, bins) / count for values in (confidence, is_right))
        return Reliability(np.linspace(0, 1, bins + 1), count, *means)


def _nll(p: Array, y: NDArray[np.int64], tiny: float) -> float:
    """Return the mean negative log-likelihood.

    A probability of 0 counts as the smallest number of its dtype. scikit-learn's log_loss would clip far sooner.
    """
    return float(-np.log(np.maximum(p[np.arange(len(y)), y], tiny)).mean())
