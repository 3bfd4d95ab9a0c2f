"""How good predicted probabilities are, and how well an uncertainty tells right from wrong, or known from unknown."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._arguments import whole_number
from .._extras import import_extra
from ..errors import InvalidInput
from . import figures
from .predictive import Prediction

Array = NDArray[np.float64]
_AS_TENSOR = "torch.as_tensor(…)"


@dataclass(frozen=True)
class Scores:
    """Lower is better, but for the accuracy."""

    accuracy: float  # share whose likeliest class is the target
    nll: float  # mean −log p(target), in nats
    brier: float  # mean Σ (p − 1[target])² over the classes: 0 to 2
    ece: float  # expected calibration error: mean |confidence − accuracy| of the bins, by their counts


@dataclass(frozen=True, eq=False)
class Reliability:
    """Bins of the confidence, that of the likeliest class: how often it was right there. NaN in empty bins."""

    edges: Array  # (bins + 1,)
    count: Array  # (bins,): examples
    confidence: Array  # (bins,): its mean
    accuracy: Array  # (bins,): share that was right

    @property
    def ece(self) -> float:
        """The expected calibration error: |accuracy − confidence|, averaged over the examples."""
        full = self.count > 0
        gaps = np.abs(self.accuracy[full] - self.confidence[full])
        return float(gaps @ self.count[full] / self.count.sum())

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """The reliability diagram, a matplotlib figure; written where a path is given."""
        return figures.reliability(self.edges, self.count, self.confidence, self.accuracy, path)


@dataclass(frozen=True, eq=False)
class Selective:
    """The error rate among the examples that are kept, where the most uncertain are left to somebody else."""

    coverage: Array  # share of the examples that is kept: 1/N, 2/N, …, 1
    risk: Array  # (N,): errors among them

    @property
    def area(self) -> float:
        """The mean risk over all coverages; 0 is best."""
        return float(self.risk.mean())

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Error against the share that is kept, a matplotlib figure; written where a path is given."""
        return figures.selective(self.coverage, self.risk, path)


def evaluate(probabilities: Tensor, target: Tensor, bins: int = 15) -> Scores:
    """Scores of `predict(…).mean`, (N, classes), or (N,) for the second of two classes; targets are (N,)."""
    metrics = import_extra("sklearn.metrics", "evaluate", "experiments")
    p, y = _classes(probabilities, target)
    labels = np.arange(p.shape[1])
    return Scores(
        accuracy=float(metrics.accuracy_score(y, p.argmax(1))),
        nll=_nll(p, y, torch.finfo(probabilities.dtype).tiny),
        brier=float(metrics.brier_score_loss(y, p, labels=labels, scale_by_half=False)),
        ece=reliability(probabilities, target, bins).ece,
    )


def _nll(p: Array, y: NDArray[np.int64], tiny: float) -> float:
    """A probability of 0 counts as the least that its dtype has; scikit-learn's log_loss would clip far sooner."""
    return float(-np.log(np.maximum(p[np.arange(len(y)), y], tiny)).mean())


def reliability(probabilities: Tensor, target: Tensor, bins: int = 15) -> Reliability:
    """Confidence against accuracy, in bins of equal width: of probabilities (N, classes) and classes (N,)."""
    bins = whole_number("bins", bins, 1, of="reliability")
    p, y = _classes(probabilities, target)
    confidence, right = p.max(1), (p.argmax(1) == y).astype(np.float64)
    place = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    count = np.bincount(place, minlength=bins).astype(np.float64)
    with np.errstate(invalid="ignore"):
        sums = (np.bincount(place, values, bins) / count for values in (confidence, right))
        return Reliability(np.linspace(0, 1, bins + 1), count, *sums)


def ood_auroc(inside: Tensor, outside: Tensor) -> float:
    """The probability that an uncertainty is larger outside of the known data, (M,), than inside, (N,): 1 is best."""
    known, unknown = _numbers(inside, "inside"), _numbers(outside, "outside")
    labels = np.concatenate((np.zeros(len(known)), np.ones(len(unknown))))
    return float(
        import_extra("sklearn.metrics", "ood_auroc", "experiments").roc_auc_score(
            labels, np.concatenate((known, unknown))
        )
    )


def selective(uncertainty: Tensor, correct: Tensor) -> Selective:
    """(N,) each. Examples of equal uncertainty come in an order that does not matter: each has their mean error."""
    doubt, right = _numbers(uncertainty, "uncertainty"), _numbers(correct, "correct")
    if doubt.shape != right.shape:
        raise InvalidInput(
            f"selective: {len(doubt)} uncertainties and {len(right)} answers; expected one of each, of the same "
            "examples."
        )
    _, tied, sizes = np.unique(doubt, return_inverse=True, return_counts=True)
    errors = (np.bincount(tied, 1 - right) / sizes)[tied][np.argsort(doubt, kind="stable")]
    kept = np.arange(1, len(errors) + 1)
    return Selective(kept / len(errors), np.cumsum(errors) / kept)


def _classes(probabilities: Tensor, target: Tensor) -> tuple[Array, NDArray[np.int64]]:
    for name, given, fix in (
        ("probabilities", probabilities, "give its .mean" if isinstance(probabilities, Prediction) else _AS_TENSOR),
        ("targets", target, _AS_TENSOR),
    ):
        if not isinstance(given, Tensor):
            raise InvalidInput(f"{name} of {type(given)}; expected a tensor: {fix}.")
    p = probabilities.detach().double().cpu()
    p = torch.stack((1 - p, p), 1) if p.dim() == 1 else p
    y = target.detach().cpu()
    if p.dim() != 2 or y.shape != p.shape[:1] or not len(y) or y.is_floating_point():
        raise InvalidInput(
            f"Probabilities of shape {tuple(probabilities.shape)} and targets of shape {tuple(target.shape)}, "
            f"{target.dtype}; expected (N, classes) and whole numbers (N,), N ≥ 1. Where examples have "
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


def _numbers(given: Tensor, name: str) -> Array:
    if not isinstance(given, Tensor):
        raise InvalidInput(f"{name} of {type(given)}; expected a tensor (N,), such as predict(…).epistemic.")
    made = given.detach().double().cpu()
    if made.dim() != 1 or not len(made):
        raise InvalidInput(f"{name} of shape {tuple(given.shape)}; expected numbers (N,), N ≥ 1.")
    if not bool(made.isfinite().all()):
        raise InvalidInput(
            f"{name}: {int((~made.isfinite()).sum())} of {len(made)} are infinite or not a number; expected finite "
            "ones. Look at what was predicted for these, or leave them out: x[x.isfinite()]."
        )
    return made.numpy()
