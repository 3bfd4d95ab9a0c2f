"""Figures of Bayesian LoRA."""

from textwrap import fill
from typing import Any

import numpy as np

from flipout._drawing import BLUE, RED, legend_outside, panels, styled

from .claims import Information, Table
from .rows import TITLES

_SETS = {"test": (BLUE, "o", 0.16), "shift": (RED, "s", -0.16)}  # colour, marker, place beside the row's


@styled
def rows_figure(table: Table) -> Any:
    """Draw the calibration error and the NLL of each row, in and out of distribution."""
    figure, grid = panels(1, 2, height=0.42 * len(table) + 1.0, sharey=True)
    places = np.arange(len(table))[::-1]
    for axes, name, label in zip(grid[0], ("ece", "nll"), ("expected calibration error", "NLL, nats"), strict=True):
        for where, (colour, marker, shift) in _SETS.items():
            for place, seeds in zip(places, table.values(), strict=True):
                values = [seed[where][name] for seed in seeds]
                axes.plot(values, [place + shift] * len(values), marker, ms=3.5, color=colour, alpha=0.6, mew=0)
                axes.plot(np.mean(values), place + shift, "|", ms=11, mew=2, color=colour)
            axes.plot([], [], marker, ms=3.5, mew=0, color=colour, label=f"{where}: a seed")
            axes.plot([], [], "|", ms=11, mew=2, color=colour, label=f"{where}: the mean")
        axes.set(xlabel=label, xlim=(0, None))
        axes.grid(axis="x", lw=0.4)
    grid[0, 0].set(yticks=places, yticklabels=[fill(TITLES[row], 22) for row in table])
    legend_outside(figure)
    return figure


@styled
def information_figure(found: Information) -> Any:
    """Plot the mutual information for each way to draw weights."""
    figure, grid = panels(height=2.2, width=5.2)
    axes = grid[0, 0]
    ways = list(found)[::-1]
    for place, way in enumerate(ways):
        value, error = found[way]
        colour, marker = (RED, "s") if way == "per token" else (BLUE, "o")
        axes.errorbar(value, place, xerr=2 * error, fmt=marker, color=colour, capsize=3)
    axes.set(yticks=range(len(ways)), yticklabels=ways, xlabel="mutual information, nats, ± 2 standard errors")
    axes.set(xlim=(0, None), ylim=(-0.6, len(ways) - 0.4))
    return figure
