"""Figures of an evaluation. matplotlib is imported when a figure is drawn."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._drawing import BLUE, REFERENCE, legend_outside, panels, styled
from .._student import share_interval

Array = NDArray[np.float64]
FilePath = str | os.PathLike[str]
_WIDTH = 4.5  # inches


@styled
def draw_reliability(edges: Array, count: Array, confidence: Array, accuracy: Array, path: FilePath | None) -> Any:
    """Draw the accuracy in each bin of the confidence with its 90 % interval, and the number of examples in the bin."""
    figure, grid = panels(2, 1, height=4.6, width=_WIDTH, sharex=True, height_ratios=(3, 1))
    above, below = grid[:, 0]
    is_full = count > 0
    above.plot([0, 1], [0, 1], "--", color=REFERENCE, label="calibrated")
    _draw_shares(above, confidence[is_full], accuracy[is_full], count[is_full], "found, with 90 % intervals")
    above.set(xlim=(0, 1), ylim=(-0.02, 1.02), ylabel="accuracy")
    above.legend(loc="upper left")
    below.bar(edges[:-1], count, np.diff(edges), align="edge", color=BLUE, edgecolor="white")
    below.set(xlabel="confidence", ylabel="examples", yscale="log", ylim=(0.7, 2 * count.max()))
    return _saved(figure, path)


@styled
def draw_calibration(levels: Array, coverage: Array, examples: int, path: FilePath | None) -> Any:
    """Draw the share of targets inside the interval of each level, with its 90 % interval."""
    figure, grid = panels(height=4.0, width=_WIDTH)
    axes = grid[0, 0]
    axes.plot([0, 1], [0, 1], "--", color=REFERENCE, label="calibrated")
    counts = np.full(len(levels), float(examples))
    _draw_shares(axes, levels, coverage, counts, f"found, {examples:,} targets,\nwith 90 % intervals")
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="level of the interval", ylabel="share of targets inside")
    axes.legend()
    return _saved(figure, path)


@styled
def draw_band(
    x: Array,
    mean: Array,
    bands: dict[str, tuple[Array, ...]],
    target: Array | None,
    labels: tuple[str, str],
    path: FilePath | None,
) -> Any:
    """Draw the mean over x, inside bands from the widest to the narrowest."""
    figure, grid = panels(height=3.6, width=5.6)
    axes = grid[0, 0]
    for (name, (low, high)), alpha in zip(bands.items(), (0.2, 0.45), strict=False):
        axes.fill_between(x, low, high, color=BLUE, alpha=alpha, lw=0, label=name)
    axes.plot(x, mean, color=BLUE, lw=1.5, label="mean")
    if target is not None:
        axes.plot(x, target, ".", color="black", ms=3, label="target")
    axes.set(xlabel=labels[0], ylabel=labels[1])
    legend_outside(figure, "upper", columns=2)  # bands leave no corner free
    return _saved(figure, path)


@styled
def draw_probabilities(probability: Array, path: FilePath | None) -> Any:
    """Draw the probability of the likeliest class of each target, the surest first."""
    figure, grid = panels(height=3.2, width=_WIDTH)
    axes = grid[0, 0]
    axes.plot(np.arange(1, len(probability) + 1) / len(probability), probability, color=BLUE)
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="share of targets, the surest first", ylabel="probability")
    axes.set_title("the likeliest class")
    return _saved(figure, path)


@styled
def draw_selective(coverage: Array, risk: Array, path: FilePath | None) -> Any:
    """Draw the error rate against the share of examples that is kept."""
    figure, grid = panels(height=3.2, width=_WIDTH)
    axes = grid[0, 0]
    axes.plot(coverage, risk, color=BLUE, label="the surest are kept")
    axes.axhline(risk[-1], ls="--", color=REFERENCE, label="without the uncertainty")
    axes.set(xlim=(0, 1), ylim=(0, None), xlabel="coverage", ylabel="error rate")
    axes.legend()
    return _saved(figure, path)


@styled
def draw_pruning(fractions: list[float], scores: list[float], path: FilePath | None) -> Any:
    """Draw the score against the share of pruned weights."""
    figure, grid = panels(height=3.2, width=_WIDTH)
    axes = grid[0, 0]
    axes.plot(fractions, scores, "o-", ms=4, color=BLUE)
    axes.set(xlim=(0, 1), xlabel="share of weights pruned", ylabel="score")
    return _saved(figure, path)


def _draw_shares(axes: Any, places: Array, shares: Array, counts: Array, label: str) -> None:
    ends = np.array([share_interval(share, count) for share, count in zip(shares, counts, strict=True)])
    errors = np.abs(ends - shares[:, None]).T
    axes.errorbar(places, shares, errors, fmt="o", ms=4, capsize=2, color=BLUE, label=label)


def _saved(figure: Any, path: FilePath | None) -> Any:
    if path is not None:
        figure.savefig(Path(path))
    return figure
