"""Figures of an evaluation; matplotlib is imported when one is made."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._extras import import_extra

Array = NDArray[np.float64]
_BLUE, _GREY = "#1f5fa8", "#7a7a7a"


def reliability(edges: Array, count: Array, confidence: Array, accuracy: Array, path: Any) -> Any:
    """Accuracy in each bin of the confidence, and the share of the examples that it has."""
    made = import_extra("matplotlib.figure", "A figure", "experiments").Figure(figsize=(4.0, 4.4), layout="constrained")
    above, below = made.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    full = count > 0
    above.plot([0, 1], [0, 1], "--", color=_GREY, label="calibrated")
    above.plot(confidence[full], accuracy[full], "o-", ms=4, color=_BLUE, label="found")
    above.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy")
    above.legend(fontsize=8)
    below.bar(edges[:-1], count / count.sum(), np.diff(edges), align="edge", color=_BLUE, edgecolor="white")
    below.set(xlabel="confidence", ylabel="share")
    return _written(made, path)


def selective(coverage: Array, risk: Array, path: Any) -> Any:
    """The error rate against the share of examples that is kept."""
    made = import_extra("matplotlib.figure", "A figure", "experiments").Figure(figsize=(4.0, 3.2), layout="constrained")
    axes = made.subplots()
    axes.plot(coverage, risk, color=_BLUE)
    axes.axhline(risk[-1], ls="--", color=_GREY, label="without the uncertainty")
    axes.set(xlim=(0, 1), ylim=(0, None), xlabel="coverage", ylabel="error rate")
    axes.legend(fontsize=8)
    return _written(made, path)


def pruning(fractions: list[float], scores: list[float], path: Any) -> Any:
    """The score against the share of weights that is gone."""
    made = import_extra("matplotlib.figure", "A figure", "experiments").Figure(figsize=(4.0, 3.2), layout="constrained")
    axes = made.subplots()
    axes.plot(fractions, scores, "o-", ms=4, color=_BLUE)
    axes.set(xlim=(0, 1), xlabel="share of weights pruned", ylabel="score")
    return _written(made, path)


def _written(figure: Any, path: str | os.PathLike[str] | None) -> Any:
    if path is not None:
        figure.savefig(Path(path))
    return figure
