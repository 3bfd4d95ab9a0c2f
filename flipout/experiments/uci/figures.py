"""Figures of scores, coverages and bounds."""

from flipout._drawing import BLUE, COLOURS, REFERENCE, legend_outside, panels, styled

from ..evidence.statistics import interval
from .claims import BAR, NAMES, Found
from .networks import METHODS, SCHEMES
from .published import PUBLISHED

_COLUMNS = 3


@styled
def scores_figure(found: Found, score: str):
    """Draw a panel for each set, with a mark for each method."""
    figure, shown = _panels(len(found), height=2.0, sharey=True)
    titles = _titles(found)
    for axes, (name, methods) in zip(shown, found.items(), strict=True):
        for place, method in enumerate(methods):
            value, error, *_ = interval(methods[method][score])
            axes.errorbar(value, place, xerr=error, fmt="o", ms=4, color=COLOURS.get(method, REFERENCE), capsize=2)
        if name in PUBLISHED:
            published = PUBLISHED[name][score == "log_likelihood"][0]
            axes.axvline(
                published, color="black", lw=1, ls="--", label="MC dropout as published, with 10 times the epochs"
            )
        axes.set(title=name, yticks=range(len(titles)), yticklabels=titles, ylim=(len(titles) - 0.5, -0.5))
        axes.locator_params(axis="x", nbins=4)
        axes.grid(axis="x", alpha=0.3)
    shown[0].errorbar([], [], xerr=[], fmt="o", ms=4, capsize=2, color=REFERENCE, label="mean over splits ± its error")
    figure.supxlabel(f"test {NAMES[score]}")
    legend_outside(figure, "upper")
    return figure


@styled
def coverage_figure(found: Found):
    """Draw the coverage of each method: every set, and their mean."""
    figure, grid = panels(height=3.4, width=5.6)
    axes = grid[0, 0]
    axes.axvspan(*BAR, color=BLUE, alpha=0.12, lw=0, label="the bar")
    axes.axvline(0.9, color="black", lw=0.8)
    titles = _titles(found)
    for place, method in enumerate(next(iter(found.values()))):
        values = [interval(methods[method]["coverage"])[0] for methods in found.values()]
        last = place == len(titles) - 1
        axes.plot(values, [place] * len(values), "|", ms=9, color=REFERENCE, label="a data set" if last else None)
        mean = sum(values) / len(values)
        axes.plot(mean, place, "o", ms=6, color=BLUE, label="mean over the sets" if last else None)
    axes.set(yticks=range(len(titles)), yticklabels=titles, ylim=(len(titles) - 0.5, -0.5))
    axes.set_xlabel("share of test targets inside their 90 % interval")
    legend_outside(figure)
    return figure


@styled
def bounds_figure(found: Found):
    """Draw the bound of each scheme against the steps, a panel for each set."""
    figure, shown = _panels(len(found), height=1.8)
    for axes, (name, methods) in zip(shown, found.items(), strict=True):
        for scheme in (scheme for scheme in SCHEMES if scheme in methods):
            curve = methods[scheme]
            axes.plot(curve["steps"][1:], curve["bound"][1:], color=COLOURS[scheme], lw=1.3, label=scheme)
        axes.set(xscale="log", title=name)
    figure.supxlabel("step")
    figure.supylabel("negative bound, nats per example")
    legend_outside(figure, "upper")
    return figure


def _titles(found: Found) -> list[str]:
    return [METHODS[method].title for method in next(iter(found.values()))]


def _panels(count: int, *, height: float, **shared: bool):
    """Return a figure with panels of a height, in rows of three at most."""
    columns = min(count, _COLUMNS)
    rows = -(-count // columns)
    figure, grid = panels(rows, columns, height=height * rows + 0.7, **shared)
    shown = grid.flatten().tolist()
    for axes in shown[count:]:
        axes.remove()
    return figure, shown[:count]
