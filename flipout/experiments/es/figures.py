"""Figures of training by evolution strategies."""

from collections.abc import Mapping, Sequence

from ..evidence.colours import COLOURS
from ..evidence.curves import band
from .curves import EsCurves

_SHADES = {
    "FlipES": (COLOURS["flipout"], "#7fb2e5", "#0b2f5b"),
    "IdealES": (COLOURS["independent"], "#b5b5b5", "#3c3c3c"),
    "backprop": ("#c1442e",),
}


def by_method(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for each method, a shade of it for each number of samples."""
    used: dict[str, int] = {}
    colours = {}
    for name in names:
        method = name.split()[0]
        shades = _SHADES[method]
        colours[name] = shades[used.get(method, 0) % len(shades)]
        used[method] = used.get(method, 0) + 1
    return colours


def curves_figure(curves: EsCurves, colours: Mapping[str, str] | None = None):
    """Draw losses and errors; training errors are dashed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.8, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, colour in (colours or by_method(curves.names)).items():
        band(left, curves.of(name), "loss", colour, "-", name)
        band(right, curves.of(name), "test_error", colour, "-", name)
        band(right, curves.of(name), "train_error", colour, "--", None)
    for axes in (left, right):
        axes.set(xlabel="update", xlim=(1, curves.updates), xscale="log")
    left.set(title="training loss, nats per example", ylim=(0, 2.6))
    right.set(title="error: test solid, training dashed", ylim=(0, 1))
    figure.legend(*left.get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=3)
    return figure
