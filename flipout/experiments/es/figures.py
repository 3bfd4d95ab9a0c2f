"""Figures of training by evolution strategies."""

from collections.abc import Mapping, Sequence

from flipout._drawing import AMBER, BLUE, GREY, RED, legend_outside, panels, styled

from ..evidence.curves import band
from .curves import EsCurves

_METHODS = {"FlipES": BLUE, "IdealES": GREY, "backprop": RED, "rank_one": AMBER}
_DASHES = ("-", "--", ":")
_TITLES = {"loss": "training loss, nats", "train_error": "training error", "test_error": "test error"}


def by_method(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the colour of each method, and dashes for each number of samples."""
    used: dict[str, int] = {}
    lines = {}
    for name in names:
        method = name.split()[0]
        lines[name] = _METHODS[method], _DASHES[used.get(method, 0) % len(_DASHES)]
        used[method] = used.get(method, 0) + 1
    return lines


@styled
def curves_figure(curves: EsCurves, lines: Mapping[str, tuple[str, str]] | None = None):
    """Draw the training loss, and the errors in training and test."""
    figure, grid = panels(1, len(_TITLES), height=2.9)
    for axes, (column, title) in zip(grid[0], _TITLES.items(), strict=True):
        for name, (colour, dashes) in (lines or by_method(curves.names)).items():
            band(axes, curves.of(name), column, colour, dashes, name)
        axes.set(title=title, xlabel="update", xlim=(1, curves.updates), xscale="log")
        axes.set_ylim(0, 2.6 if column == "loss" else 1)
    legend_outside(figure, columns=3)
    return figure
