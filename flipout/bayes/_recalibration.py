"""One number, fitted on held-out data, that corrects how sure later predictions are."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import InvalidArgument, InvalidInput, Unsupported
from ._checked import is_scored
from ._likelihood import wide
from ._mixture import Mixture
from ._moments import Moments
from ._needs import checked_targets, needed_mixture
from ._prediction import Prediction, prediction_of
from ._shown import shown

_GRID = [i / 10 for i in range(-30, 31)]  # logarithms of the numbers to try first
_STEPS = 40  # golden sections after the grid, which leave 1e-9 of a step
_GOLDEN = (5**0.5 - 1) / 2
_TOO_WIDE = "Or the posterior is too wide: lower kl_weight, train longer, or start from trained weights."
_TOO_SURE = (
    "far too confident for these targets. Look whether they belong to these inputs, in the same order{}. Or the "
    "network overfits, and what it predicts on other data carries no information."
)
# Why a number is at the end of what is tried, by its kind and whether it is the upper end.
_REASONS = {
    ("temperature", False): (
        "not confident enough. Either nearly all of the held-out targets are the likeliest class, and there are too "
        f"few of them to say how confident to be: use more. {_TOO_WIDE}"
    ),
    ("scale", False): (
        "not confident enough: their deviations are far larger than the errors. Either there are too few held-out "
        f"targets: use more. {_TOO_WIDE} Or the noise of the likelihood was set too large."
    ),
    ("temperature", True): _TOO_SURE.format(""),
    ("scale", True): _TOO_SURE.format(" and in the same unit"),
}


@dataclass(frozen=True, repr=False)
class Recalibration:
    """A temperature or a scale that was fitted on held-out data. Call it with the prediction of other data."""

    kind: str  # "temperature" divides the logits of classes; "scale" multiplies the deviations of numbers
    value: float  # above 1 the predictions were too sure
    examples: int  # the number of held-out targets
    nll_before: float  # their mean negative log-likelihood
    nll: float  # the same after the recalibration

    def __call__(self, prediction: Prediction) -> Prediction:
        """Return a prediction of other data, recalibrated.

        Args:
            prediction: A prediction of the same model, with the same likelihood.

        Returns:
            The prediction; printed, it says what was done.

        Raises:
            InvalidArgument: The prediction is of another kind than the one of the fit, or is recalibrated already.
            InvalidInput: This is no prediction.
            Unsupported: The samples of classes were not kept.

        Example:
            >>> recalibration = bayes.recalibrate(bayes.predict(elbo, x_valid), y_valid)
            >>> prediction = recalibration(bayes.predict(elbo, x_test))
        """
        kind = _kind(prediction, "A recalibration")
        if kind != self.kind or prediction.note:
            found = prediction.note or f"recalibrated by a {kind}"
            raise InvalidArgument(f"A {self.kind} was fitted, but this prediction is {found}. Predict with that model.")
        note = f"recalibrated: {self.kind} {self.value:.4g} fitted on {self.examples} held-out targets"
        return replace(_applied(prediction, self.kind, self.value), note=note)

    def __repr__(self) -> str:
        return shown(self, **{self.kind: self.value}, examples=self.examples, nll_before=self.nll_before, nll=self.nll)


def recalibrate(prediction: Prediction, target: Tensor) -> Recalibration:
    """Fit the one number that makes held-out targets likeliest.

    For classes it is a temperature, which divides the logits of every sample. For numbers it is a scale: deviations
    from the mean, of noise and weights alike, are multiplied by it, so variances by its square. The mean of numbers
    and their order stay.

    Args:
        prediction: A prediction of data that the model was not trained on, and that later scores do not use.
        target: Its targets, in the shape of `prediction.total`.

    Returns:
        The recalibration, to be called with other predictions.

    Raises:
        InvalidInput: This is no prediction, the targets have another shape, or the likelihood ignores all of them.
        InvalidArgument: The prediction is recalibrated already.
        Unsupported: There is no likelihood, it has neither logits nor a scale, or the samples were not kept.

    Example:
        >>> recalibration = bayes.recalibrate(bayes.predict(elbo, x_valid), y_valid)
        >>> bayes.evaluate(recalibration(bayes.predict(elbo, x_test)), y_test)
    """
    kind, checked = _kind(prediction, "recalibrate"), checked_targets("recalibrate", prediction, target)
    if prediction.note:
        raise InvalidArgument(f"recalibrate: this prediction is {prediction.note}. Fit on what predict returned.")
    is_counted = is_scored(prediction, checked)
    if not bool(is_counted.any()):
        raise InvalidInput(
            f"recalibrate: all {checked.numel()} targets are ignored by Categorical(ignore="
            f"{getattr(prediction.likelihood, 'ignore', None)}); expected some that count. Fit on other held-out data, "
            "or give the likelihood another number to ignore."
        )

    def nll(log: float) -> float:
        found = _mixture(prediction, kind, math.exp(log)).log_prob(checked)
        return -float(found[is_counted].mean())

    with torch.no_grad():
        best = _smallest(nll)
        result = Recalibration(kind, math.exp(best), int(is_counted.sum()), nll(0.0), nll(best))
    if not _GRID[1] < best < _GRID[-2]:
        warnings.warn(
            f"recalibrate: the {kind} {result.value:.3g} is at the end of what is tried: the predictions are "
            f"{_REASONS[kind, best > 0]}",
            RuntimeWarning,
            stacklevel=2,
        )
    return result


def _kind(prediction: Any, of: str) -> str:
    """Return which number can be fitted, or refuse what has none."""
    if not isinstance(prediction, Prediction):
        raise InvalidInput(
            f"{of}: {type(prediction)} given; expected a Prediction: predict(elbo, x), or predict(model, x, "
            "likelihood=…), first."
        )
    likelihood = prediction.likelihood
    if likelihood is not None and likelihood.defines("logits"):
        return "temperature"
    if likelihood is not None and likelihood.defines("rescaled"):
        return "scale"
    found = "no likelihood" if likelihood is None else f"{type(likelihood).__name__} targets"
    raise Unsupported(
        f"{of}: this prediction has {found}; a temperature needs classes, and a scale Gaussian noise. Give what "
        "predict(elbo, x) returned."
    )


def _mixture(prediction: Prediction, kind: str, value: float) -> Mixture:
    """Return the recalibrated distribution of the targets."""
    if kind == "scale":
        return needed_mixture("recalibrate", _applied(prediction, kind, value))
    if prediction.outputs is None:
        raise Unsupported("recalibrate needs the samples, which were not kept. Use predict(…, keep=True).")
    assert prediction.likelihood is not None
    return Mixture(prediction.likelihood, wide(prediction.outputs) / value)  # half precision would round them again


def _applied(prediction: Prediction, kind: str, value: float) -> Prediction:
    """Return the recalibrated prediction."""
    if kind == "scale":
        return prediction.rescale(value, prediction.mean * (1 - value))
    moments = Moments(prediction.likelihood, prediction.group, math.inf, prediction.antithetic)
    moments.add(_mixture(prediction, kind, value).outputs)
    return prediction_of([moments], is_whole=prediction.is_whole)


def _smallest(function: Callable[[float], float]) -> float:
    """Return where a function is smallest: the best point of the grid, then golden sections around it."""
    best = min(range(len(_GRID)), key=lambda i: function(_GRID[i]))
    low, high = _GRID[max(best - 1, 0)], _GRID[min(best + 1, len(_GRID) - 1)]
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(_STEPS):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = function(right)
    return (low + high) / 2
