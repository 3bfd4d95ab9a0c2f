"""Checked inputs of an evaluation, as numpy arrays."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InvalidInput
from ._prediction import Prediction

Array = NDArray[np.float64]
_AS_TENSOR = "torch.as_tensor(…)"


def class_probabilities(probabilities: Tensor, target: Tensor) -> tuple[Array, NDArray[np.int64]]:
    """Return probabilities (N, classes) that sum to 1, and classes (N,)."""
    for name, tensor, fix in (
        ("probabilities", probabilities, "give its .mean" if isinstance(probabilities, Prediction) else _AS_TENSOR),
        ("targets", target, _AS_TENSOR),
    ):
        if not isinstance(tensor, Tensor):
            raise InvalidInput(f"{name} of {type(tensor)}; expected a tensor: {fix}.")
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
            "Probabilities that are negative, or do not add up to 1. For logits, use predict(…, "
            "likelihood='categorical').mean, or logits.softmax(-1)."
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
