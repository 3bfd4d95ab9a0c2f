"""The figure of the table."""

from textwrap import fill
from typing import Any

import numpy as np

from flipout._drawing import AMBER, BLUE, GREEN, RED, REFERENCE, legend_outside, panels, styled

from ..rows import TITLES
from .claims import LEVEL, Table
from .ratings import SHIFTS

_STYLES = ((BLUE, "o"), (RED, "s"), (AMBER, "D"), (GREEN, "^"))  # colour and marker of each set
_LABELS = {
    "rmse": "RMSE, in the unit\nof the ratings",
    "nll": "NLL, nats",
    "coverage": f"coverage of\n{LEVEL:.0%} intervals",
}


@styled
def rows_figure(table: Table) -> Any:
    """Draw RMSE, NLL and coverage of each row, on the test set and on each shift."""
    figure, grid = panels(1, 3, height=0.6 * len(table) + 1.2, sharey=True)
    places, wheres = np.arange(len(table))[::-1], ("test", *SHIFTS)
    for axes, (name, label) in zip(grid[0], _LABELS.items(), strict=True):
        for number, (where, (colour, marker)) in enumerate(zip(wheres, _STYLES, strict=True)):
            shift = 0.27 - 0.18 * number
            for place, seeds in zip(places, table.values(), strict=True):
                values = [seed[where][name] for seed in seeds]
                axes.plot(values, [place + shift] * len(values), marker, ms=3, mew=0, color=colour, alpha=0.6)
                axes.plot(np.mean(values), place + shift, "|", ms=8, mew=2, color=colour)
            axes.plot([], [], marker, ms=3, mew=0, color=colour, label=where)
        axes.set(xlabel=label)
        axes.grid(axis="x", lw=0.4)
    grid[0, 2].axvline(LEVEL, color=REFERENCE, lw=0.8, ls="--")
    grid[0, 0].set(yticks=places, yticklabels=[fill(TITLES[row], 22) for row in table])
    legend_outside(figure)
    return figure
