"""Figures of scores against the strength of a corruption, of rejection, and of pictures."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from flipout._drawing import BLUE, GREEN, GREY, RED, WIDTH, legend_outside, panels, styled

from .claims import CLEAN, METHODS, SCORES, Found, over_corruptions
from .corruptions import CORRUPTIONS, STRENGTHS

_LINES = {"plain": (GREY, "D"), "dropout": (RED, "s"), "flipout": (BLUE, "o"), "ensemble": (GREEN, "^")}
_MIDDLE = 3  # strength of the rejection curves


@styled
def strength_figure(found: Found):
    """Draw accuracy, log-likelihood and calibration error against the strength."""
    shown = ("accuracy", "nll", "ece")
    figure, grid = panels(1, len(shown), height=2.8)
    for axes, score in zip(grid[0], shown, strict=True):
        for method, title in METHODS.items():
            values = [over_corruptions(found, method, score, strength) for strength in (0, *STRENGTHS)]
            colour, marker = _LINES[method]
            axes.plot((0, *STRENGTHS), values, f"{marker}-", ms=4, lw=1.4, color=colour, label=title)
        axes.set(title=SCORES[score], xlabel="strength of the corruption", xticks=(0, *STRENGTHS))
        axes.set_ylim(bottom=0)
    legend_outside(figure)
    return figure


@styled
def rejection_figure(found: Found):
    """Draw the error rate against the share of pictures that is kept."""
    figure, grid = panels(1, 2, height=3.0)
    for method, title in METHODS.items():
        results = [found[method][name, _MIDDLE]["risk"] for name in CORRUPTIONS]
        clean = found[method][CLEAN]
        middle = [sum(risks) / len(risks) for risks in zip(*results, strict=True)]
        for axes, risk in zip(grid[0], (clean["risk"], middle), strict=True):
            axes.plot(clean["shares"], risk, lw=1.4, color=_LINES[method][0], label=title)
    for axes, title in zip(grid[0], ("test set", f"corrupted, strength {_MIDDLE}"), strict=True):
        axes.set(title=title, xlabel="share of pictures kept", xlim=(0, 1.02))
        axes.set_ylim(bottom=0)
    grid[0, 0].set_ylabel("error rate among them")
    legend_outside(figure)
    return figure


@styled
def pictures_figure(shown: Mapping[str, Sequence[Tensor]]):
    """Draw one picture (C, H, W) in rows of corruptions and columns of strengths."""
    columns = len(next(iter(shown.values())))
    width = min(1.1 * columns + 0.9, WIDTH)
    figure, grid = panels(len(shown), columns, height=(width - 0.9) / columns * len(shown) + 0.3, width=width)
    for strength, axes in enumerate(grid[0]):
        axes.set_title(f"strength {strength}")
    for row, (name, pictures) in zip(grid, shown.items(), strict=True):
        for axes, picture in zip(row, pictures, strict=True):
            pixels = (picture / 255).clamp(0, 1).permute(1, 2, 0).numpy()
            axes.imshow(pixels, cmap="gray", vmin=0, vmax=1)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
        row[0].set_ylabel(name)
    return figure
