"""The figure of returns."""

from collections.abc import Sequence
from typing import Any

from ...evidence.curves import band
from ..figures import by_method
from .claims import Returns, of_method


def returns_figure(curves: Sequence[Returns], bar: float) -> Any:
    """Draw the mean return of the population by generation, and the final returns."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    axes.axhline(bar, color="#7a7a7a", lw=1, ls=":", label=f"{bar:g}")
    end = curves[0].iterations[-1]
    for i, (method, colour) in enumerate(by_method(list(dict.fromkeys(curve.method for curve in curves))).items()):
        policies = of_method(curves, method)
        band(axes, policies, "mean", colour, "-", method)
        places = [end * (1.03 + 0.02 * i)] * len(policies)
        axes.plot(places, [curve.at_the_end for curve in policies], "o", ms=4, color=colour, clip_on=False)
    axes.set(xlabel="generation", ylabel="mean return", xlim=(0, end * 1.08), ylim=(min(0, axes.get_ylim()[0]), None))
    axes.legend(fontsize=8)
    return figure
