"""How well an uncertainty tells right from wrong, or known inputs from unknown ones."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from ..errors import InvalidInput
from ._auroc import auroc
from ._checked import Array, finite_numbers
from ._figures import FilePath, draw_selective
from ._shown import shown


@dataclass(frozen=True, eq=False, repr=False)
class Selective:
    """The error rate among the most certain examples, for every share of them that is kept."""

    coverage: Array  # (N,): the share of examples that is kept, 1/N, 2/N, …, 1
    risk: Array  # (N,): the error rate among the kept examples

    @property
    def area(self) -> float:
        """The mean risk over all coverages; 0 is best."""
        return float(self.risk.mean())

    def plot(self, path: FilePath | None = None) -> Any:
        """Draw the error rate against the share that is kept.

        Args:
            path: The file to write, if any.

        Returns:
            A matplotlib figure.
        """
        return draw_selective(self.coverage, self.risk, path)

    def __repr__(self) -> str:
        return shown(self, examples=len(self.risk), area=self.area, risk_of_all=float(self.risk[-1]))


def selective(uncertainty: Tensor, correct: Tensor) -> Selective:
    """Return the error rate that remains if the most uncertain examples are left out.

    Examples of equal uncertainty all count with their mean error, so their order does not matter.

    Args:
        uncertainty: A number for each example, of shape (N,).
        correct: Whether each prediction was right, of shape (N,).

    Returns:
        The error rate for every share of the examples that is kept.

    Raises:
        InvalidInput: The shapes differ, or a number is not finite.

    Example:
        >>> bayes.selective(prediction.total, prediction.mean.argmax(1) == y).area
    """
    doubt, is_right = finite_numbers(uncertainty, "uncertainty"), finite_numbers(correct, "correct")
    if doubt.shape != is_right.shape:
        raise InvalidInput(
            f"selective: {len(doubt)} uncertainties and {len(is_right)} answers; expected one of each, of the same "
            "examples."
        )
    _, tied, sizes = np.unique(doubt, return_inverse=True, return_counts=True)
    errors = (np.bincount(tied, 1 - is_right) / sizes)[tied][np.argsort(doubt, kind="stable")]
    kept = np.arange(1, len(errors) + 1)
    return Selective(kept / len(errors), np.cumsum(errors) / kept)


def ood_auroc(inside: Tensor, outside: Tensor) -> float:
    """Return the probability that an unknown input has a larger uncertainty than a known one.

    Args:
        inside: Uncertainties of inputs like the training data, of shape (N,).
        outside: Uncertainties of other inputs, of shape (M,).

    Returns:
        The area under the ROC curve: 1 is best, 0.5 is chance.

    Raises:
        InvalidInput: The shapes do not fit, or a number is not finite.

    Example:
        >>> bayes.ood_auroc(known.epistemic, unknown.epistemic)
    """
    known, unknown = finite_numbers(inside, "inside"), finite_numbers(outside, "outside")
    is_unknown = np.arange(len(known) + len(unknown)) >= len(known)
    return auroc(np.concatenate((known, unknown)), is_unknown)
