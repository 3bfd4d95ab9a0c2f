"""The area under the ROC curve, from ranks."""

import numpy as np
from numpy.typing import NDArray

from ._checked import Array


def auroc(scores: Array, is_positive: NDArray[np.bool_]) -> float:
    """Return the probability that a positive has a larger score than a negative; a tie counts as one half.

    Args:
        scores: A number for each example, of shape (N,).
        is_positive: Whether each example is a positive, of shape (N,). There are positives and negatives.
    """
    _, place, ties = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[place]  # equal scores have their mean rank
    positives = int(is_positive.sum())
    larger = ranks[is_positive].sum() - positives * (positives + 1) / 2
    return float(larger / (positives * (len(scores) - positives)))
