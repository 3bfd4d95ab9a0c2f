"""The figure of scores."""

from collections.abc import Mapping

from flipout._drawing import BLUE, RED, legend_outside, panels, styled

_DASHES = ("-", "--", ":", "-.", (0, (1, 1)))


@styled
def scores_figure(flips: Mapping[tuple[float, float], float], backprop: Mapping[float, float]):
    """Draw the score of FlipES by rate, a line for each standard deviation, and of backpropagation by rate."""
    figure, grid = panels(1, 2, height=2.9, sharey=True)
    left, right = grid[0]
    for std, dashes in zip(dict.fromkeys(std for std, _ in flips), _DASHES, strict=False):
        points = [(rate, value) for (at, rate), value in flips.items() if at == std]
        left.plot(*zip(*points, strict=True), linestyle=dashes, marker="o", ms=3, color=BLUE, label=f"noise of {std:g}")
    right.plot(list(backprop), list(backprop.values()), marker="o", ms=3, color=RED, label="backprop")
    for axes, title in ((left, "FlipES"), (right, "backpropagation")):
        axes.set(title=title, xlabel="rate of Adam", xscale="log")
    left.set_ylim(bottom=0)
    left.set_ylabel("held-out error,\nmean over the curve")
    legend_outside(figure, columns=3)
    return figure
