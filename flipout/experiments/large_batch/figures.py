"""Figures of losses and errors, iteration by iteration."""

from collections.abc import Sequence

import numpy as np

from ..evidence.colours import COLOURS
from ..evidence.curves import band
from .curves import Curves

_TITLES = {"likelihood": "expected negative log-likelihood", "divergence": "weighted KL", "total": "total"}


def losses_figure(curves: Curves):
    """Draw the likelihood term, the KL term and their sum."""
    figure, panels = _panels(list(_TITLES))
    for scheme in curves.schemes:
        batches = curves.of(scheme)[0].batches
        panels["likelihood"].plot(
            np.arange(1, len(batches) + 1), batches, lw=0.5, alpha=0.45, color=COLOURS[scheme], zorder=1
        )
    for column, axes in panels.items():
        for scheme in curves.schemes:
            band(axes, curves.of(scheme), column, COLOURS[scheme], "-", scheme)
        axes.set(title=_TITLES[column], xlabel="iteration", xlim=(1, curves.iterations), xscale="log")
    panels["likelihood"].set(ylabel="nats per example", yscale="log")
    panels["total"].legend(fontsize=8)
    return figure


def errors_figure(curves: Curves):
    """Draw training and test errors."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.6), layout="constrained")
    axes = figure.subplots()
    for scheme in curves.schemes:
        band(axes, curves.of(scheme), "test_error", COLOURS[scheme], "-", scheme)
        band(axes, curves.of(scheme), "train_error", COLOURS[scheme], "--", None)
    axes.set(xlabel="iteration", ylabel="error", xlim=(1, curves.iterations), xscale="log")
    axes.set_yscale("symlog", linthresh=0.01)  # training errors reach 0
    axes.set_ylim(0, 1)
    axes.legend(fontsize=8)
    return figure


def _panels(names: Sequence[str]):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * len(names) + 0.6, 3.6), layout="constrained")
    return figure, dict(zip(names, figure.subplots(1, len(names)), strict=True))
