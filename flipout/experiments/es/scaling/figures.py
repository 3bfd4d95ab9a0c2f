"""The figure of times against the size of the network."""

from collections.abc import Mapping
from statistics import median

from ...evidence.colours import COLOURS
from .claims import CORES, PAPER, Times


def times_figure(times: Mapping[str, Times]):
    """Draw our times and the paper's against the size of the network."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.8, 4.4), layout="constrained")
    for axes, kind, label in zip(
        figure.subplots(1, 2), ("FC", "ConvLe"), ("hidden units", "scale of ConvLe"), strict=True
    ):
        measured = {float(name.split()[1]): seconds for name, seconds in times.items() if name.startswith(kind)}
        quoted = {float(name.split()[1]): pair for name, pair in PAPER.items() if name.startswith(kind)}
        lines = {
            "FlipES": (COLOURS["flipout"], [median(seconds.flip) for seconds in measured.values()]),
            "IdealES, same device": (COLOURS["independent"], [median(seconds.ideal) for seconds in measured.values()]),
            f"{CORES} cores": (COLOURS["shared"], [median(seconds.core) / CORES for seconds in measured.values()]),
            "backprop, one update": ("black", [median(seconds.backprop) for seconds in measured.values()]),
        }
        for name, (colour, values) in lines.items():
            axes.plot(list(measured), values, "o-", ms=3.5, color=colour, label=name)
        for i, (name, colour) in enumerate((("FlipES", COLOURS["flipout"]), (f"{CORES} cores", COLOURS["shared"]))):
            values = [pair[i] for pair in quoted.values()]
            axes.plot(list(quoted), values, "x:", ms=4, color=colour, alpha=0.7, label=f"{name}, the paper")
        places = sorted({*measured, *quoted})
        axes.set(xscale="log", yscale="log", xlabel=label, title=kind)
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.minorticks_off()
    figure.axes[0].set_ylabel("seconds, 5,000 samples")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=3)
    return figure
