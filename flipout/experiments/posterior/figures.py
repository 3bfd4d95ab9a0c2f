"""Figures of the posterior check."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..evidence.colours import COLOURS
from .claims import ByScheme
from .regressions import Regressions


def posterior_figure(tasks: Regressions, found: ByScheme):
    """Draw the errors of all means, and the spread of each weight."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.axhline(0, color="#7a7a7a", lw=1, ls="--")
    places = np.arange(tasks.best.shape[1])
    for i, (scheme, scheme_found) in enumerate(found.items()):
        error = (scheme_found["mean"] - tasks.mean) / tasks.best
        dots = {"ms": 3, "color": COLOURS[scheme], "label": scheme, "rasterized": True}
        left.plot(tasks.mean.flatten().cpu(), error.flatten().cpu(), ".", **dots)
        at, spreads = places + (i - (len(found) - 1) / 2) * 0.12, scheme_found["std"].cpu()
        right.errorbar(at, spreads.mean(0), spreads.std(0), fmt="o", ms=3, capsize=2, color=COLOURS[scheme])
    for place, best in zip(places, tasks.best[0].tolist(), strict=True):
        label = "best factorised" if place == 0 else None
        right.plot([place - 0.4, place + 0.4], [best] * 2, color="black", lw=1, zorder=1, label=label)
    right.plot(places, tasks.covariance.diagonal().sqrt().cpu(), "x", color="black", ms=6, label="exact posterior")
    left.set(xlabel="exact mean", ylabel="mean found − exact, in spreads")
    left.margins(y=0.4)
    right.set(xlabel="weight", ylabel="spread", ylim=(0, None), xticks=places)
    left.legend(fontsize=8, ncols=2, loc="upper center", markerscale=3)
    right.legend(fontsize=8, loc="lower right")
    return figure


def calibration_figure(tasks: Regressions, held_out: ByScheme):
    """Draw coverage minus level against the level."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.6, 3.6), layout="constrained")
    axes = figure.subplots()
    levels = np.linspace(0.05, 0.99, 48)

    def line(shares: list[Tensor], **style: Any) -> None:
        axes.plot(levels, 100 * (torch.stack([share.mean() for share in shares]).cpu().numpy() - levels), **style)

    axes.axhline(0, color="#7a7a7a", lw=1, ls="--")
    for scheme, scheme_found in held_out.items():
        inside = [tasks.inside(scheme_found["mean"], scheme_found["variance"], float(level)) for level in levels]
        line(inside, color=COLOURS[scheme], lw=1.2, label=scheme)
    line([tasks.expected(float(level)) for level in levels], color="black", lw=1, ls=":", label="theory")
    exact = tasks.predictive(tasks.covariance)
    line([tasks.inside(*exact, float(level)) for level in levels], color="black", lw=1, label="exact posterior")
    axes.set(xlabel="level of the interval", ylabel="coverage − level, points", xlim=(0, 1))
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure
