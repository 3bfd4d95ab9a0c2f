"""Scores of a prediction, by its likelihood."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InvalidInput
from ._auroc import auroc
from ._calibration import CalibrationCurve, calibration_curve, coverages
from ._checked import Array, is_scored, predicted_classes
from ._crps import crps
from ._needs import check_level, checked_targets, needed_likelihood, needed_mixture
from ._prediction import Prediction
from ._reliability import reliability
from ._shown import shown
from ._target_interval import target_interval

_CLASSES = 100  # the AUROC of more classes would take a sort for each


@dataclass(frozen=True, repr=False)
class Scores:
    """Scores of predicted classes. Lower is better, except for accuracy and AUROC."""

    accuracy: float  # the share of targets that are the likeliest class
    nll: float  # the mean of −log p(target), in nats
    brier: float  # the mean of Σ (p − 1[target])² over the classes, from 0 to 2
    ece: float  # the expected calibration error: |confidence − accuracy| of the bins, averaged over the examples
    auroc: float | None  # of class 1 against class 0, or the mean over classes against the rest; None if undefined

    def __repr__(self) -> str:
        return shown(self, **vars(self))


@dataclass(frozen=True, eq=False, repr=False)
class NumberScores:
    """Scores of predicted numbers or counts. Lower is better, except that `coverage` has to meet its levels."""

    nll: float  # the mean of −log p(target), in nats; for numbers p is a density, so it depends on their unit
    rmse: float  # the root mean squared error of the mean
    crps: float  # the continuous ranked probability score, in the unit of the targets
    coverage: dict[float, float]  # by level, the share of targets inside interval(level)
    sharpness: float  # the mean width of interval(0.9), in the unit of the targets
    calibration: CalibrationCurve  # coverage at many levels

    def __repr__(self) -> str:
        covered = "{" + ", ".join(f"{level:g}: {share:.3g}" for level, share in self.coverage.items()) + "}"
        values = {name: getattr(self, name) for name in ("nll", "rmse", "crps")}
        return shown(self, **values, coverage=covered, sharpness=self.sharpness)


def evaluate(
    prediction: Prediction | Tensor,
    target: Tensor,
    bins: int = 15,
    *,
    levels: float | Sequence[float] = (0.5, 0.8, 0.9, 0.95),
) -> Scores | NumberScores:
    """Score a prediction of classes, numbers or counts.

    All targets count alike, also several of one example.

    Args:
        prediction: What `predict` returned with a likelihood, or `Prediction.from_outputs`.
        target: The targets, in the shape of `prediction.total`.
        bins: The number of bins of the calibration error of classes.
        levels: The level, or levels, at which the coverage of the intervals of numbers is reported.

    Returns:
        `Scores` for classes, `NumberScores` for numbers and counts.

    Raises:
        InvalidArgument: A level is not between 0 and 1, or `bins` is not ≥ 1.
        InvalidInput: The targets have another shape than the prediction, or are out of range.
        Unsupported: The prediction has no likelihood, or its samples were not kept.

    Example:
        >>> prediction = bayes.predict(elbo, x)
        >>> bayes.evaluate(prediction, y).nll
    """
    if isinstance(prediction, Tensor):
        warnings.warn(
            "evaluate(probabilities, target) goes in the next version. Write evaluate(prediction, target) with what "
            "predict returned, not its mean; for other networks Prediction.from_outputs(logits.unsqueeze(0), "
            "'categorical').",
            DeprecationWarning,
            stacklevel=2,
        )
        p, y = predicted_classes(prediction, target, "evaluate")
        return _of_classes(p, y, None, bins, prediction.dtype)
    if not isinstance(prediction, Prediction):
        raise InvalidInput(f"evaluate: {type(prediction)} given; expected what predict returned.")
    several: list[Any] = list(levels) if isinstance(levels, Iterable) and not isinstance(levels, str) else [levels]
    for level in several:
        check_level("evaluate", level)
    is_of_classes = needed_likelihood("evaluate", prediction).entropic
    checked = checked_targets("evaluate", prediction, target)
    if not is_of_classes:
        return _of_numbers(prediction, checked, several)
    p, y = predicted_classes(prediction, checked, "evaluate")
    likelihoods = prediction.log_prob(checked)[is_scored(prediction, checked)].double().exp()
    return _of_classes(p, y, likelihoods.cpu().numpy(), bins, prediction.mean.dtype)


def _of_classes(p: Array, y: NDArray[np.int64], likelihoods: Array | None, bins: int, dtype: torch.dtype) -> Scores:
    of_truth = p[np.arange(len(y)), y]
    found = of_truth if likelihoods is None else likelihoods
    return Scores(
        accuracy=float((p.argmax(1) == y).mean()),
        # A probability of 0 counts as the smallest number of its dtype. scikit-learn's log_loss would clip far sooner.
        nll=float(-np.log(np.maximum(found, torch.finfo(dtype).tiny)).mean()),
        brier=float((np.square(p).sum(1) - 2 * of_truth + 1).mean()),
        ece=reliability(torch.from_numpy(p), torch.from_numpy(y), bins).ece,
        auroc=_mean_auroc(p, y),
    )


def _mean_auroc(p: Array, y: NDArray[np.int64]) -> float | None:
    """Return the AUROC of class 1, or the mean over the classes that occur, each against the rest."""
    present = np.unique(y)
    if len(present) < 2 or p.shape[1] > _CLASSES:
        return None
    classes = [1] if p.shape[1] == 2 else present.tolist()
    return float(np.mean([auroc(p[:, label], y == label) for label in classes]))


def _of_numbers(prediction: Prediction, target: Tensor, levels: Sequence[float]) -> NumberScores:
    low, high = target_interval(prediction, 0.9)
    return NumberScores(
        nll=-float(prediction.log_prob(target).double().mean()),
        rmse=float((prediction.mean - target).double().square().mean().sqrt()),
        crps=float(crps(needed_mixture("evaluate", prediction), target).mean()),
        coverage=coverages(prediction, target, list(levels)),
        sharpness=float((high - low).double().mean()),
        calibration=calibration_curve(prediction, target),
    )
