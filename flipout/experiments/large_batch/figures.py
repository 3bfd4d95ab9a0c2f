"""Figures of losses and errors, iteration by iteration."""

from flipout._drawing import COLOURS, legend_outside, panels, styled

from ..evidence.curves import band
from .curves import Curves

_LOSSES = {"likelihood": "expected negative\nlog-likelihood", "divergence": "weighted KL", "total": "total"}
_ERRORS = {"train_error": "training error", "test_error": "test error"}


@styled
def losses_figure(curves: Curves):
    """Draw the likelihood term, the KL term and their sum."""
    figure, grid = panels(1, len(_LOSSES), height=3.0)
    for axes, (column, title) in zip(grid[0], _LOSSES.items(), strict=True):
        _draw(axes, curves, column, title)
    grid[0, 0].set(ylabel="nats per example", yscale="log")
    legend_outside(figure)
    return figure


@styled
def errors_figure(curves: Curves):
    """Draw training and test errors."""
    figure, grid = panels(1, len(_ERRORS), height=3.2, sharey=True)
    for axes, (column, title) in zip(grid[0], _ERRORS.items(), strict=True):
        _draw(axes, curves, column, title)
        axes.set_yscale("symlog", linthresh=0.01)  # training errors reach 0
        axes.set_ylim(0, 1)
    grid[0, 0].set_ylabel("error at the mean weights")
    legend_outside(figure)
    return figure


def _draw(axes, curves: Curves, column: str, title: str) -> None:
    for scheme in curves.schemes:
        band(axes, curves.of(scheme), column, COLOURS[scheme], "-", scheme)
    axes.set(title=title, xlabel="iteration", xlim=(1, curves.iterations), xscale="log")
