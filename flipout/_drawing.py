"""How every figure looks: one palette, and text that can be read in a column of the docs.

Any two colours of the palette are told apart with protanopia and deuteranopia too, on white and, by their partners in
`DARK`, on a dark page. tests/test_drawing.py computes the distances.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from ._extras import import_extra

RED, BLUE, GREEN, GREY, VIOLET, AMBER = "#a8320f", "#0b4f96", "#14a08a", "#444444", "#dc62ea", "#c08a00"
REFERENCE = "#767676"  # reference lines: zero, a bar to meet, perfect calibration
COLOURS = {
    "shared": RED,
    "flipout": BLUE,
    "local_reparam": GREEN,
    "independent": GREY,
    "low_rank": VIOLET,
    "rank_one": AMBER,
}
# What a colour becomes on a dark page.
DARK = {
    RED: "#ec6a3c",
    BLUE: "#4a94f0",
    GREEN: "#66f0b0",
    GREY: "#909090",
    VIOLET: "#efc4fb",
    AMBER: "#ffcf40",
    REFERENCE: "#a0a0a0",
}

WIDTH = 7.0  # inches: the text column of the docs has 688 pixels, of which 96 make an inch
SMALLEST = 8.5  # points
_STYLE = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.labelsize": 9,
    "legend.fontsize": SMALLEST,
    "legend.frameon": False,
    "xtick.labelsize": SMALLEST,
    "ytick.labelsize": SMALLEST,
}

P = ParamSpec("P")
R = TypeVar("R")


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Make a function draw in the style of all figures, whatever matplotlib's settings are."""

    @wraps(draw)
    def drawing(*args: P.args, **kwargs: P.kwargs) -> R:
        with import_extra("matplotlib", "A figure", "experiments").rc_context(_STYLE):
            return draw(*args, **kwargs)

    return drawing


def panels(rows: int = 1, columns: int = 1, *, height: float, width: float = WIDTH, **shared: Any) -> tuple[Any, Any]:
    """Return a new figure and its axes, as an array of the shape (rows, columns). The sizes are of all of it."""
    figure = import_extra("matplotlib.figure", "A figure", "experiments").Figure(
        figsize=(width, height), layout="constrained"
    )
    grid = figure.subplots(rows, columns, squeeze=False, **shared)
    for axes in grid.flat:
        axes.tick_params(which="both", labelsize=SMALLEST)  # ticks are made later, outside of the style
    return figure, grid


def legend_outside(figure: Any, where: str = "lower", *, columns: int = 4) -> None:
    """Put one legend of all panels under or, with "upper", above them, with each label once."""
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(
        list(entries.values()), list(entries), loc=f"outside {where} center", ncols=min(columns, len(entries))
    )
