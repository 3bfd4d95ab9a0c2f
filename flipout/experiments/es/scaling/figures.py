"""The figure of times against the size of the network."""

from collections.abc import Mapping
from statistics import median

from flipout._drawing import BLUE, GREEN, GREY, RED, legend_outside, panels, styled

from .claims import CORES, PAPER, Times

_NETWORKS = {"FC": "hidden units", "ConvLe": "scale of ConvLe"}


@styled
def times_figure(times: Mapping[str, Times]):
    """Draw our times and the paper's against the size of the network."""
    figure, grid = panels(1, len(_NETWORKS), height=3.9)
    for axes, (kind, label) in zip(grid[0], _NETWORKS.items(), strict=True):
        measured = {float(name.split()[1]): seconds for name, seconds in times.items() if name.startswith(kind)}
        quoted = {float(name.split()[1]): pair for name, pair in PAPER.items() if name.startswith(kind)}
        lines = {
            "FlipES": (BLUE, "o", [median(seconds.flip) for seconds in measured.values()]),
            "IdealES, same device": (GREY, "D", [median(seconds.ideal) for seconds in measured.values()]),
            f"{CORES} cores": (RED, "s", [median(seconds.core) / CORES for seconds in measured.values()]),
            "backprop, one update": (GREEN, "^", [median(seconds.backprop) for seconds in measured.values()]),
        }
        for name, (colour, marker, values) in lines.items():
            axes.plot(list(measured), values, f"{marker}-", ms=4, color=colour, label=name)
        for i, (name, colour) in enumerate((("FlipES", BLUE), (f"{CORES} cores", RED))):
            values = [pair[i] for pair in quoted.values()]
            axes.plot(list(quoted), values, "x:", ms=4, color=colour, alpha=0.7, label=f"{name}, the paper")
        places = sorted({*measured, *quoted})
        axes.set(xscale="log", yscale="log", xlabel=label, title=kind)
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.minorticks_off()
    grid[0, 0].set_ylabel("seconds, 5,000 samples")
    legend_outside(figure, columns=3)
    return figure
