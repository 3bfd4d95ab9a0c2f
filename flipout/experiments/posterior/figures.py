"""Figures of the posterior check."""

from collections.abc import Mapping, Sequence

import numpy as np

from flipout._drawing import COLOURS, REFERENCE, legend_outside, panels, styled

from .claims import ByScheme
from .regressions import Regressions

Coverage = Mapping[str, Sequence[float]]  # value, low and high, at each level


@styled
def posterior_figure(tasks: Regressions, found: ByScheme):
    """Draw the errors of the means, a column for each scheme, and the spread of each weight."""
    figure, grid = panels(1, 2, height=3.6)
    left, right = grid[0]
    left.axhline(0, color=REFERENCE, lw=1, ls="--")
    places = np.arange(tasks.best.shape[1])
    jitter = np.linspace(-0.32, 0.32, tasks.mean.numel())
    for i, (scheme, scheme_found) in enumerate(found.items()):
        error = ((scheme_found["mean"] - tasks.mean) / tasks.best).flatten().cpu()
        left.plot(i + jitter, error, ".", ms=2, color=COLOURS[scheme], rasterized=True)
        at, spreads = places + (i - (len(found) - 1) / 2) * 0.15, scheme_found["std"].cpu()
        right.errorbar(
            at, spreads.mean(0), spreads.std(0), fmt="osD^"[i % 4], ms=3.5, color=COLOURS[scheme], label=scheme
        )
    for place, best in zip(places, tasks.best[0].tolist(), strict=True):
        label = "best factorised" if place == 0 else None
        right.plot([place - 0.4, place + 0.4], [best] * 2, color="black", lw=1, zorder=1, label=label)
    right.plot(places, tasks.covariance.diagonal().sqrt().cpu(), "x", color="black", ms=6, label="exact posterior")
    left.set_xticks(range(len(found)), [scheme.replace("_", "\n") for scheme in found])
    left.set(ylabel="mean found − exact, in spreads")
    right.set(xlabel="weight", ylabel="spread", ylim=(0, None), xticks=places)
    legend_outside(figure, columns=3)
    return figure


@styled
def calibration_figure(levels: Sequence[float], found: Mapping[str, Coverage], exact: Coverage):
    """Draw coverage minus what theory says against the level."""
    figure, grid = panels(height=3.6, width=6.0)
    axes = grid[0, 0]

    def points(values: Sequence[float]) -> list[float]:
        return [100 * value for value in values]

    axes.axhline(0, color=REFERENCE, lw=1, ls="--", label="theory")
    for scheme, coverage in found.items():
        if scheme == "flipout":
            ends = points(coverage["low"]), points(coverage["high"])
            axes.fill_between(levels, *ends, color=COLOURS[scheme], alpha=0.15, lw=0, label="flipout, 90 % interval")
        axes.plot(levels, points(coverage["value"]), color=COLOURS[scheme], lw=1.3, label=scheme)
    axes.plot(levels, points(exact["value"]), color="black", lw=1.3, ls=":", label="exact posterior")
    axes.set(xlabel="level of the interval", ylabel="coverage − theory, points", xlim=(0, 1))
    legend_outside(figure)
    return figure
