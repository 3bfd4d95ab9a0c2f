"""Language models: training curves, epoch by epoch, and the table as points beside the paper's."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, pairwise
from textwrap import fill
from typing import Any

from ..evidence.colours import COLOURS
from .claims import CURVES_FIGURE, TABLE_FIGURE, Rows
from .rows import Row

_OTHERS = ("#2e8b57", "#7a7a7a", "#b8860b", "#17a2b8", "#8a4fbf")
_READINGS = (":", "--", "-.")
_LONGER = 8  # times as many epochs: beyond it short lines would be specks on a linear axis


def _colour(row: Row) -> str | None:
    """Return the colour of a row's scheme, if it has weight noise."""
    return COLOURS[row.scheme] if row.noisy else None


def _lines(table: Sequence[Row]) -> dict[str, tuple[str, str]]:
    """Return colour and style of each row. A reading has the colour of the row with which its name begins."""
    others = [row.name for row in table if not (row.noisy or row.reading)]
    colours, readings = dict(zip(others, _OTHERS, strict=False)), [row.name for row in table if row.reading]
    both = any(not row.tied for row in table)
    return {
        row.name: (
            _colour(row) or colours[row.name.partition("-")[0]],
            _READINGS[readings.index(row.name) % len(_READINGS)] if row.reading else "--" if row.tied and both else "-",
        )
        for row in table
    }


def curves(rows: Rows) -> Mapping[str, tuple[str, Any]]:
    """Draw the training loss under the noise of each row, and the validation loss at the mean weights."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter

    figure = Figure(figsize=(9.0, 4.2), layout="constrained")
    training, valid = figure.subplots(1, 2)
    lines = _lines(rows.table)
    for row in rows.there:
        colour, style = lines[row.name]
        for axes, column in ((training, "train"), (valid, "valid")):
            for number, model in enumerate(rows.of(row.name)):
                values = [rows.unit.of(epoch[column]) for epoch in model.history if epoch[column] is not None]
                axes.plot(
                    range(1, len(values) + 1),
                    values,
                    ls=style,
                    color=colour,
                    lw=1.2,
                    label=row.title if number == 0 else None,
                )
    training.set(title="training, under the noise", xlabel="epoch", ylabel=rows.unit.name, yscale="log")
    valid.set(title="validation, mean weights", xlabel="epoch", yscale="log")
    lengths = [len(model.history) for model in rows.trained]
    for axes in (training, valid):
        if max(lengths) > _LONGER * min(lengths):
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2.0, 0.5)))
    figure.legend(*valid.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=7)
    caption = "Training and validation, epoch by epoch; a line for each seed."
    return {CURVES_FIGURE: (caption, figure)}


_FAR = 1.25  # a ratio of neighbours: beyond it the axis is cut


def table(rows: Rows) -> Mapping[str, tuple[str, Any]]:
    """Draw test values beside the paper's, with its best row at the top; nothing if the paper has none."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, MaxNLocator

    there = sorted((row for row in rows.there if row.paper), key=lambda row: row.paper or (), reverse=True)
    if not there:
        return {}
    measured = [list(rows.values(row.name, "test").values()) for row in there]
    points = [*chain.from_iterable(measured), *(row.quoted[1] for row in there if row.quoted is not None)]
    spans = _spans(points)
    figure = Figure(figsize=(6.0, 0.9 + 0.32 * len(there)), layout="constrained")
    far = sum(point >= spans[-1][0] for point in points) / len(points) if len(spans) > 1 else 0.0
    widths = [1.0, min(max(far, 1 / 7), 1 / 2)][: len(spans)]
    across = figure.subplots(1, len(spans), sharey=True, width_ratios=widths, squeeze=False)[0]
    for axes, (low, high) in zip(across, spans, strict=True):
        for place, (row, values) in enumerate(zip(there, measured, strict=True)):
            if row.quoted is not None:
                axes.plot(row.quoted[1], place, "x", color="black", ms=7)
            axes.plot(values, [place] * len(values), "o", color=_colour(row) or "#555555", ms=6, alpha=0.8)
        room = 0.04 * (high - low) if high > low and axes is across[0] else max(0.02 * high, 0.15 * (high - low))
        axes.set(xlim=(low - room, high + room), ylim=(-0.6, len(there) - 0.4))
        ends = sorted({float(f"{end:.3g}") for end in (low, high)})
        axes.xaxis.set_major_locator(MaxNLocator(8) if axes is across[0] else FixedLocator(ends))
        axes.xaxis.set_major_formatter("{x:.4g}")
        axes.grid(axis="x", lw=0.3)
        if axes is not across[-1]:
            axes.spines.right.set_visible(False)
        if axes is not across[0]:
            axes.spines.left.set_linestyle(":")
            axes.tick_params(left=False)
    across[0].set_yticks(range(len(there)), [fill(row.title, 30) for row in there])
    across[0].set_xlabel(f"test {rows.unit.name}")
    across[0].plot([], [], "x", color="black", ms=7, label="the paper")
    across[0].plot([], [], "o", color="#555555", label="here, a point for each seed")
    figure.legend(loc="outside upper center", ncols=2, fontsize=7)
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
