"""The figure of returns."""

from collections.abc import Sequence
from typing import Any

from flipout._drawing import REFERENCE, legend_outside, panels, styled

from ...evidence.curves import band
from ..figures import by_method
from .claims import Returns, of_method


@styled
def returns_figure(curves: Sequence[Returns], bar: float) -> Any:
    """Draw the mean return of the population by generation, and the final returns."""
    figure, grid = panels(height=3.9, width=6.0)
    axes = grid[0, 0]
    end = curves[0].iterations[-1]
    for i, (method, (colour, _)) in enumerate(by_method(list(dict.fromkeys(curve.method for curve in curves))).items()):
        policies, marker, dashes = of_method(curves, method), "os^"[i % 3], ("-", "--", "-.")[i % 3]
        band(axes, policies, "mean", colour, dashes, method)
        places = [end * (1.03 + 0.02 * i)] * len(policies)
        ends = [curve.at_the_end for curve in policies]
        axes.plot(places, ends, marker, ms=4, color=colour, clip_on=False, label=f"{method}, a policy at the end")
    axes.axhline(bar, color=REFERENCE, lw=1, ls=":", label=f"the bar, {bar:g}")
    axes.set(xlabel="generation", ylabel="mean return", xlim=(0, end * 1.08), ylim=(min(0, axes.get_ylim()[0]), None))
    legend_outside(figure, columns=2)
    return figure
