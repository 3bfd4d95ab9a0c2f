"""Checked inputs of an evaluation, as numpy arrays."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InvalidInput
from ._needs import checked_targets
from ._prediction import Prediction
from .likelihoods import Bernoulli, Categorical

Array = NDArray[np.float64]


def predicted_classes(prediction: Prediction | Tensor, target: Tensor, of: str) -> tuple[Array, NDArray[np.int64]]:
    """Return probabilities (targets, classes) and classes (targets,) of a prediction, or of probabilities."""
    if not isinstance(prediction, Prediction):
        return class_probabilities(prediction, target)
    likelihood = prediction.likelihood
    if likelihood is None or not likelihood.entropic:
        kind = "no likelihood" if likelihood is None else f"{type(likelihood).__name__} targets, which are numbers"
        raise InvalidInput(
            f"{of}: this prediction has {kind}; expected classes, predict(…, likelihood='categorical') or 'bernoulli'. "
            "The calibration of numbers is evaluate(prediction, target).calibration."
        )
    classes = checked_targets(of, prediction, target)
    if classes.is_floating_point():
        if not bool(((classes == 0) | (classes == 1)).all()):
            found = f"targets of dtype {classes.dtype}, from {classes.min():.3g} to {classes.max():.3g}"
            wanted = "the classes 0 and 1 themselves" if isinstance(likelihood, Bernoulli) else "classes: target.long()"
            raise InvalidInput(f"{of}: {found}; expected {wanted}.")
        classes = classes.long()
    is_kept = is_scored(prediction, classes)
    return class_probabilities(likelihood.probabilities(prediction.mean)[is_kept], classes[is_kept].long())


def is_scored(prediction: Prediction, target: Tensor) -> Tensor:
    """Return True for the targets that count, False for those that the likelihood ignores, such as padded tokens."""
    likelihood = prediction.likelihood
    ignored = likelihood.ignore if isinstance(likelihood, Categorical) else None
    return torch.ones_like(target, dtype=torch.bool) if ignored is None else target != ignored


def class_probabilities(probabilities: Tensor, target: Tensor) -> tuple[Array, NDArray[np.int64]]:
    """Return probabilities (N, classes) that sum to 1, and classes (N,)."""
    for name, tensor in (("probabilities", probabilities), ("targets", target)):
        if not isinstance(tensor, Tensor):
            raise InvalidInput(f"{name} of {type(tensor)}; expected a tensor: torch.as_tensor(…).")
    p = probabilities.detach().double().cpu()
    p = torch.stack((1 - p, p), 1) if p.dim() == 1 else p
    y = target.detach().cpu()
    if p.dim() != 2 or y.shape != p.shape[:1] or not len(y) or y.is_floating_point():
        raise InvalidInput(
            f"Probabilities of shape {tuple(probabilities.shape)} and targets of shape {tuple(target.shape)}, "
            f"{target.dtype}; expected (N, classes) and whole numbers (N,), N ≥ 1. If examples have "
            "several targets: probabilities.flatten(0, 1), target.flatten()."
        )
    total = p.sum(1)
    if not bool(((p >= 0).all(1) & ((total - 1).abs() < 1e-3)).all()):
        raise InvalidInput(
            "Probabilities that are negative, or do not add up to 1. Give the prediction itself, with the likelihood "
            "'categorical' or 'bernoulli', or logits.softmax(-1)."
        )
    if int(y.min()) < 0 or int(y.max()) >= p.shape[1]:
        raise InvalidInput(
            f"Targets from {int(y.min())} to {int(y.max())}; there are {p.shape[1]} classes. Expected 0 to "
            f"{p.shape[1] - 1}: number them from 0, and leave out examples without a class (ignore_index)."
        )
    return (p / total.unsqueeze(1)).numpy(), y.long().numpy()


def finite_numbers(tensor: Tensor, name: str) -> Array:
    """Return finite numbers (N,)."""
    if not isinstance(tensor, Tensor):
        raise InvalidInput(f"{name} of {type(tensor)}; expected a tensor (N,), such as predict(…).epistemic.")
    numbers = tensor.detach().double().cpu()
    if numbers.dim() != 1 or not len(numbers):
        raise InvalidInput(f"{name} of shape {tuple(tensor.shape)}; expected numbers (N,), N ≥ 1.")
    is_finite = numbers.isfinite()
    if not bool(is_finite.all()):
        raise InvalidInput(
            f"{name}: {int((~is_finite).sum())} of {len(numbers)} are infinite or not a number; expected finite "
            "ones. Look at what was predicted for these, or leave them out: x[x.isfinite()]."
        )
    return numbers.numpy()
