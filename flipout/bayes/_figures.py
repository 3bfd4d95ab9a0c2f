"""Figures of an evaluation. matplotlib is imported when a figure is drawn."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._extras import import_extra

Array = NDArray[np.float64]
FilePath = str | os.PathLike[str]
_BLUE, _GREY = "#1f5fa8", "#7a7a7a"


def draw_reliability(edges: Array, count: Array, confidence: Array, accuracy: Array, path: FilePath | None) -> Any:
    """Draw the accuracy in each bin of the confidence, and the bin's share of the examples."""
    figure = _new_figure(4.4)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    is_full = count > 0
    above.plot([0, 1], [0, 1], "--", color=_GREY, label="calibrated")
    above.plot(confidence[is_full], accuracy[is_full], "o-", ms=4, color=_BLUE, label="found")
    above.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy")
    above.legend(fontsize=8)
    below.bar(edges[:-1], count / count.sum(), np.diff(edges), align="edge", color=_BLUE, edgecolor="white")
    below.set(xlabel="confidence", ylabel="share")
    return _saved(figure, path)


def draw_selective(coverage: Array, risk: Array, path: FilePath | None) -> Any:
    """Draw the error rate against the share of examples that is kept."""
    figure = _new_figure(3.2)
    axes = figure.subplots()
    axes.plot(coverage, risk, color=_BLUE)
    axes.axhline(risk[-1], ls="--", color=_GREY, label="without the uncertainty")
    axes.set(xlim=(0, 1), ylim=(0, None), xlabel="coverage", ylabel="error rate")
    axes.legend(fontsize=8)
    return _saved(figure, path)


def draw_pruning(fractions: list[float], scores: list[float], path: FilePath | None) -> Any:
    """Draw the score against the share of pruned weights."""
    figure = _new_figure(3.2)
    axes = figure.subplots()
    axes.plot(fractions, scores, "o-", ms=4, color=_BLUE)
    axes.set(xlim=(0, 1), xlabel="share of weights pruned", ylabel="score")
    return _saved(figure, path)


def _new_figure(height: float) -> Any:
    return import_extra("matplotlib.figure", "A figure", "experiments").Figure(
        figsize=(4.0, height), layout="constrained"
    )


def _saved(figure: Any, path: FilePath | None) -> Any:
    if path is not None:
        figure.savefig(Path(path))
    return figure
