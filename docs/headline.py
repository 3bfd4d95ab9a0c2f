"""Draw the figure of the README and the card of links to the site, from the committed results/variance-fc alone.

    python docs/headline.py

A test compares the committed figure with what this script would draw.
"""

from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from flipout._drawing import COLOURS
from flipout.variance import Measurements

ROOT = Path(__file__).parents[1]
FIGURE = ROOT / "docs" / "images" / "headline.svg"
CARD = ROOT / "docs" / "theme" / "assets" / "card.png"
PITCH = "Error bars, weight noise\nand gradient-free training\nfor your PyTorch model"
LAYER = "fc2.weight"
STOPPED = 256  # the batch size that the upper arrow points at; shared is within a tenth of its floor there
MARKERS = {"shared": "s", "flipout": "o"}


def figure() -> Figure:
    """Return gradient variance against batch size for one layer, with what to see in it written beside the curves."""
    drawing = Figure(figsize=(7, 3.9), layout="constrained")
    annotated(drawing.subplots())
    return drawing


def card() -> Figure:
    """Return what other sites show beside a link: the name, what it is for, and the figure. 1200 × 630 pixels."""
    drawing = Figure(figsize=(12, 6.3), dpi=100)
    drawing.text(0.05, 0.66, "flipout", fontsize=56, weight="bold")
    drawing.text(0.05, 0.36, PITCH, fontsize=21, linespacing=1.5)
    drawing.text(0.05, 0.1, "Wen et al., ICLR 2018", fontsize=15, color="#5c6670")
    annotated(drawing.add_axes((0.5, 0.15, 0.46, 0.72)))
    return drawing


def annotated(axes: Any) -> None:
    """Draw the two curves with what to see in them."""
    measured = Measurements.from_json(ROOT / "results" / "variance-fc" / "measurements.json")
    last = {}
    for scheme, marker in MARKERS.items():
        curve = list(measured.select(parameter=LAYER, scheme=scheme))
        sizes, values = [r.batch_size for r in curve], [r.variance for r in curve]
        axes.plot(sizes, values, marker=marker, ms=5, lw=2, color=COLOURS[scheme])
        last[scheme] = curve[-1]
    stopped = next(r for r in measured.select(parameter=LAYER, scheme="shared") if r.batch_size == STOPPED)
    shared, flipped = last["shared"], last["flipout"]
    arrow = {"arrowstyle": "->", "lw": 1.2, "color": "#333333"}
    axes.annotate(
        "here one shared perturbation\nstops helping",
        (STOPPED, stopped.variance * 1.15),
        (STOPPED, stopped.variance * 9),
        color=COLOURS["shared"],
        fontsize=12,
        ha="center",
        arrowprops=arrow,
    )
    middle = next(r for r in measured.select(parameter=LAYER, scheme="flipout") if r.batch_size == STOPPED)
    axes.annotate(
        "flipout goes on",
        (STOPPED * 0.93, middle.variance * 0.85),
        (STOPPED / 24, middle.variance / 5),
        color=COLOURS["flipout"],
        fontsize=12,
        ha="center",
        arrowprops=arrow,
    )
    axes.annotate(
        "", (flipped.batch_size, flipped.variance * 1.3), (shared.batch_size, shared.variance / 1.3), arrowprops=arrow
    )
    axes.text(
        shared.batch_size / 1.25,
        (shared.variance * flipped.variance) ** 0.5,
        f"{shared.variance / flipped.variance:.0f} times\nless variance",
        fontsize=11,
        ha="right",
        va="center",
        color="#333333",
    )
    axes.set(xscale="log", yscale="log")
    axes.set_xlabel("batch size", fontsize=12)
    axes.set_ylabel("variance of the gradient", fontsize=12)
    axes.tick_params(labelsize=11)
    axes.spines[["top", "right"]].set_visible(False)


def draw(path: Path) -> None:
    """Write the figure. The same results always give the same bytes."""
    with rc_context({"svg.hashsalt": "headline"}):
        figure().savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    draw(FIGURE)
    card().savefig(CARD, metadata={"Software": None})
