"""Figures of the posterior check."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..evidence.colours import COLOURS
from .claims import ByScheme
from .regressions import Regressions


def posterior_figure(made: Regressions, found: ByScheme):
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(8.6, 3.8), layout="constrained")
    left, right = drawn.subplots(1, 2)
    left.axhline(0, color="#7a7a7a", lw=1, ls="--")
    places = np.arange(made.best.shape[1])
    for i, (scheme, own) in enumerate(found.items()):
        apart = (own["mean"] - made.mean) / made.best
        dots = {"ms": 3, "color": COLOURS[scheme], "label": scheme, "rasterized": True}
        left.plot(made.mean.flatten().cpu(), apart.flatten().cpu(), ".", **dots)
        at, spreads = places + (i - (len(found) - 1) / 2) * 0.12, own["std"].cpu()
        right.errorbar(at, spreads.mean(0), spreads.std(0), fmt="o", ms=3, capsize=2, color=COLOURS[scheme])
    for place, best in zip(places, made.best[0].tolist(), strict=True):
        label = "best factorised" if place == 0 else None
        right.plot([place - 0.4, place + 0.4], [best] * 2, color="black", lw=1, zorder=1, label=label)
    right.plot(places, made.covariance.diagonal().sqrt().cpu(), "x", color="black", ms=6, label="exact posterior")
    left.set(xlabel="exact mean", ylabel="mean found − exact, in spreads")
    left.margins(y=0.4)
    right.set(xlabel="weight", ylabel="spread", ylim=(0, None), xticks=places)
    left.legend(fontsize=8, ncols=2, loc="upper center", markerscale=3)
    right.legend(fontsize=8, loc="lower right")
    return drawn


def calibration_figure(made: Regressions, held_out: ByScheme):
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(6.6, 3.6), layout="constrained")
    axes = drawn.subplots()
    levels = np.linspace(0.05, 0.99, 48)

    def line(shares: list[Tensor], **style: Any) -> None:
        axes.plot(levels, 100 * (torch.stack([share.mean() for share in shares]).cpu().numpy() - levels), **style)

    axes.axhline(0, color="#7a7a7a", lw=1, ls="--")
    for scheme, own in held_out.items():
        inside = [made.inside(own["mean"], own["variance"], float(level)) for level in levels]
        line(inside, color=COLOURS[scheme], lw=1.2, label=scheme)
    line([made.expected(float(level)) for level in levels], color="black", lw=1, ls=":", label="theory")
    whole = made.predictive(made.covariance)
    line([made.inside(*whole, float(level)) for level in levels], color="black", lw=1, label="exact posterior")
    axes.set(xlabel="level of the interval", ylabel="coverage − level, points", xlim=(0, 1))
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return drawn
