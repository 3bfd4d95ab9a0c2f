"""Figures of known and unknown pictures."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from flipout._drawing import BLUE, GREY, RED, REFERENCE, WIDTH, legend_outside, panels, styled
from flipout._student import share_interval

from ..evidence.statistics import Z90
from .claims import MEASURES

_LINES = {"total": (BLUE, "o"), "epistemic": (RED, "s")}


@styled
def pictures_figure(shown: Mapping[str, tuple[Tensor, Tensor]]):
    """Draw a row of pictures with their entropies for each kind."""
    columns = max(len(pictures) for pictures, _ in shown.values())
    figure, grid = panels(len(shown), columns, height=0.92 * len(shown), width=min(0.72 * columns + 1.3, WIDTH))
    for (name, (pictures, entropies)), line in zip(shown.items(), grid, strict=True):
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
        for axes, picture, entropy in zip(line, pictures, entropies.tolist(), strict=True):
            axes.imshow(picture[0].cpu().numpy(), cmap="gray", vmin=0, vmax=255)
            axes.set_title(f"{entropy:.2f}", fontsize=8.5, pad=2)
            axes.set(xticks=[], yticks=[])
    return figure


@styled
def separation_figure(separation: Mapping[str, Mapping[str, tuple[float, float]]]):
    """Draw the AUROC of each kind of unknown picture."""
    figure, grid = panels(height=0.42 * len(separation) + 1.1, width=6.0)
    axes = grid[0, 0]
    axes.axvline(0.5, color=REFERENCE, lw=1, ls="--", label="chance")
    for i, (measure, named) in enumerate(MEASURES.items()):
        found = [terms[measure] for terms in separation.values()]
        at = [j + (i - 0.5) * 0.26 for j in range(len(found))]
        values, errors = [value for value, _ in found], [Z90 * error for _, error in found]
        colour, marker = _LINES[measure]
        axes.errorbar(values, at, xerr=errors, fmt=marker, ms=4, capsize=2, color=colour, label=named)
    axes.set(xlabel="AUROC against known pictures", xlim=(None, 1.02))
    axes.set_yticks(range(len(separation)), list(separation))
    axes.invert_yaxis()
    legend_outside(figure)
    return figure


@styled
def rotation_figure(rotation: Mapping[str, Any]):
    """Draw uncertainty and error against the angle."""
    figure, grid = panels(2, 1, height=4.4, width=5.6, sharex=True, height_ratios=(3, 2))
    above, below = grid[:, 0]
    angles, pictures = rotation["angles"], rotation["pictures"]
    for measure, named in MEASURES.items():
        means, errors = np.array(rotation[measure]).T
        colour, marker = _LINES[measure]
        above.fill_between(angles, means - Z90 * errors, means + Z90 * errors, color=colour, alpha=0.2, lw=0)
        above.plot(angles, means, f"{marker}-", ms=3.5, color=colour, label=named)
    shares = [wrong / pictures for wrong in rotation["wrong"]]
    low, high = zip(*(share_interval(share, pictures) for share in shares), strict=True)
    below.fill_between(angles, low, high, color=GREY, alpha=0.2, lw=0)
    below.plot(angles, shares, "D-", ms=3.5, color=GREY)
    above.set(ylabel="nats", ylim=(0, None))
    above.legend()
    below.set(xlabel="degrees", ylabel="error", ylim=(0, 1))
    below.set_xticks(range(0, round(max(angles)) + 1, 45))
    return figure
