"""Language models: training curves, epoch by epoch, and the table as points beside the paper's."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, pairwise
from textwrap import fill
from typing import Any

import numpy as np

from flipout._drawing import AMBER, COLOURS, GREEN, GREY, REFERENCE, VIOLET, legend_outside, panels, styled

from .claims import CURVES_FIGURE, TABLE_FIGURE, Rows
from .rows import Row

_OTHERS = ("#000000", GREEN, AMBER, VIOLET, GREY)
_DASHES = ("-", "--", ":", "-.")
_LONGER = 8  # times as many epochs: beyond it short lines would be specks on a linear axis
_SOME = 6  # lines in a panel


def _colour(row: Row) -> str | None:
    """Return the colour of a row's scheme, if it has weight noise."""
    return COLOURS[row.scheme] if row.noisy else None


def _lines(table: Sequence[Row]) -> dict[str, tuple[str, str]]:
    """Return colour and dashes of each row. A reading has the colour of the row that it reads."""
    colours: dict[str, str] = {}
    lines: dict[str, tuple[str, str]] = {}
    for row in table:
        first = row.reading or row.name
        colour = colours.setdefault(first, _colour(row) or _OTHERS[len(colours) % len(_OTHERS)])
        used = sum(other == colour for other, _ in lines.values())
        lines[row.name] = colour, _DASHES[used % len(_DASHES)]
    return lines


def _groups(there: Sequence[Row]) -> list[list[Row]]:
    """Return the rows in one group if they are few, else with weight noise, without, and other readings."""
    if len(there) <= _SOME:
        return [list(there)]
    kinds = {row.name: 2 if row.reading else int(not row.noisy) for row in there}
    groups = ([row for row in there if kinds[row.name] == kind] for kind in range(3))
    return [group for group in groups if group]


@styled
def curves(rows: Rows) -> Mapping[str, tuple[str, Any]]:
    """Draw the training loss under the noise of each row, and the validation loss at the mean weights."""
    from matplotlib.ticker import LogFormatter

    groups = _groups(rows.there)
    figure, grid = panels(len(groups), 2, height=2.9 * len(groups) + 0.4, sharex=True)
    lines = _lines(rows.table)
    for (training, valid), group in zip(grid, groups, strict=True):
        for row in group:
            colour, dashes = lines[row.name]
            for axes, column in ((training, "train"), (valid, "valid")):
                _band(axes, _by_epoch(rows, row.name, column), color=colour, ls=dashes, label=fill(row.title, 30))
        training.set(ylabel=rows.unit.name)
        training.legend(loc="upper right")
    lengths = [len(model.history) for model in rows.trained]
    for axes in grid.flat:
        axes.set_yscale("log")
        if max(lengths) > _LONGER * min(lengths):
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2.0, 0.5)))
    for axes, title in zip(grid[0], ("training, under the noise", "validation, mean weights"), strict=True):
        axes.set(title=title)
    for axes in grid[-1]:
        axes.set(xlabel="epoch")
    caption = "Training and validation, epoch by epoch: the mean over seeds, and bands from the lowest to the highest."
    return {CURVES_FIGURE: (caption, figure)}


def _by_epoch(rows: Rows, name: str, column: str) -> list[list[float]]:
    """Return the values of each epoch: of all seeds that came so far."""
    histories = [model.history for model in rows.of(name)]
    values = [[rows.unit.of(epoch[column]) for epoch in h if epoch[column] is not None] for h in histories]
    return [[v[i] for v in values if i < len(v)] for i in range(max(map(len, values)))]


def _band(axes: Any, values: Sequence[Sequence[float]], **line: Any) -> None:
    at = np.arange(1, len(values) + 1)
    lows, highs = ([end(found) for found in values] for end in (min, max))
    axes.fill_between(at, lows, highs, color=line["color"], alpha=0.2, lw=0)
    axes.plot(at, [float(np.mean(found)) for found in values], lw=1.3, **line)


_FAR = 1.25  # a ratio of neighbours: beyond it the axis is cut


@styled
def table(rows: Rows) -> Mapping[str, tuple[str, Any]]:
    """Draw test values beside the paper's, with its best row at the top; nothing if the paper has none."""
    from matplotlib.ticker import FixedLocator, MaxNLocator

    there = sorted((row for row in rows.there if row.paper), key=lambda row: row.paper or (), reverse=True)
    if not there:
        return {}
    measured = [list(rows.values(row.name, "test").values()) for row in there]
    points = [*chain.from_iterable(measured), *(row.quoted[1] for row in there if row.quoted is not None)]
    spans = _spans(points)
    far = sum(point >= spans[-1][0] for point in points) / len(points) if len(spans) > 1 else 0.0
    widths = [1.0, min(max(far, 1 / 7), 1 / 2)][: len(spans)]
    figure, grid = panels(1, len(spans), height=1.0 + 0.36 * len(there), width=6.5, sharey=True, width_ratios=widths)
    across = grid[0]
    for axes, (low, high) in zip(across, spans, strict=True):
        for place, (row, values) in enumerate(zip(there, measured, strict=True)):
            if row.quoted is not None:
                axes.plot(row.quoted[1], place, "x", color="black", ms=7)
            axes.plot(values, [place] * len(values), "o", color=_colour(row) or REFERENCE, ms=6, alpha=0.8)
        room = 0.04 * (high - low) if high > low and axes is across[0] else max(0.02 * high, 0.15 * (high - low))
        axes.set(xlim=(low - room, high + room), ylim=(-0.6, len(there) - 0.4))
        ends = sorted({float(f"{end:.3g}") for end in (low, high)})
        axes.xaxis.set_major_locator(MaxNLocator(8) if axes is across[0] else FixedLocator(ends))
        axes.xaxis.set_major_formatter("{x:.4g}")
        axes.grid(axis="x", lw=0.3)
        if axes is not across[0]:
            axes.spines.left.set_linestyle(":")
            axes.tick_params(left=False)
    across[0].set_yticks(range(len(there)), [fill(row.title, 32) for row in there])
    across[0].set_xlabel(f"test {rows.unit.name}")
    across[0].plot([], [], "x", color="black", ms=7, label="the paper")
    for scheme in dict.fromkeys(row.scheme for row in there if row.noisy):
        across[0].plot([], [], "o", color=COLOURS[scheme], label=f"weight noise, {scheme}: a seed")
    across[0].plot([], [], "o", color=REFERENCE, label="another method: a seed")
    legend_outside(figure, "upper", columns=2)
    return {TABLE_FIGURE: ("The table: test values beside the paper's.", figure)}


def _spans(values: Sequence[float]) -> list[tuple[float, float]]:
    """Return the range of the values, in two parts if some are far from the others."""
    ordered = sorted(values)
    for before, after in pairwise(ordered):
        if after > _FAR * before:
            return [(ordered[0], before), (after, ordered[-1])]
    return [(ordered[0], ordered[-1])]


def figures_of(make: Callable[[Sequence[Any]], Rows]) -> Callable[[Sequence[Any]], Mapping[str, tuple[str, Any]]]:
    """Return a function from trained models to their figures."""

    def figures(trained: Sequence[Any]) -> Mapping[str, tuple[str, Any]]:
        rows = make(trained)
        return {**table(rows), **curves(rows)}

    return figures
