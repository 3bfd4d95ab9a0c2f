"""Plot variance against batch size as the paper does: log-log, with a panel for each Parameter."""

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .._drawing import COLOURS, REFERENCE, WIDTH, legend_outside, panels, styled
from ..errors import InvalidArgument
from ._fits import Fit
from ._records import Measurements
from ._theorem import Decomposition

_STYLES = {"shared": (":", "s"), "flipout": ("-", "o"), "local_reparam": ("--", "^"), "independent": ("-.", "D")}
_PREDICTED = ("independent", "shared", "flipout")
_MAX_COLUMNS = 3


@styled
def figure(
    measurements: Measurements, path: str | os.PathLike[str] | None, predictions: Iterable[Decomposition] | None
) -> Any:
    """Draw points with 90 % intervals, the fits a + b/N, and predictions as crosses. Save it if there is a path."""
    names = list(dict.fromkeys(record.parameter for record in measurements))
    if not names:
        raise InvalidArgument("plot: there are no records; the selection leaves none.")
    rows = math.ceil(len(names) / _MAX_COLUMNS)
    columns = math.ceil(len(names) / rows)
    width = WIDTH if columns > 1 else 4.5
    drawing, grid = panels(rows, columns, height=2.3 * rows + 0.6, width=width, sharex=True)
    fits = {(fit.parameter, fit.scheme): fit for fit in measurements.fit()} if _can_fit(measurements) else {}
    known = {decomposition.parameter: decomposition for decomposition in predictions or ()}
    by_name = dict(zip(names, grid.flat, strict=False))
    for (parameter, scheme), curve in measurements.curves().items():
        _draw_curve(by_name[parameter], scheme, curve, fits.get((parameter, scheme)), known.get(parameter))
    for i, (name, axes) in enumerate(by_name.items()):
        axes.set(xscale="log", yscale="log", title=name)
        if i + columns >= len(names):
            axes.set_xlabel("batch size")
            axes.tick_params(labelbottom=True)
        if i % columns == 0:
            axes.set_ylabel("gradient variance")
    if known:
        grid.flat[0].plot([], [], "x", color=REFERENCE, ms=6, label="predicted from α, β and γ")
    for unused in list(grid.flat)[len(names) :]:
        unused.remove()
    legend_outside(drawing, columns=5 if columns > 1 else 3)
    if path is not None:
        drawing.savefig(Path(path))
    return drawing


def _draw_curve(axes: Any, scheme: str, curve: Measurements, fit: Fit | None, known: Decomposition | None) -> None:
    """Draw the records of one Parameter under one scheme."""
    sizes = [r.batch_size for r in curve]
    values = [r.variance for r in curve]
    errors = [[r.variance - r.low for r in curve], [r.high - r.variance for r in curve]]
    colour, (style, marker) = COLOURS.get(scheme, "black"), _STYLES.get(scheme, ("-", "o"))
    axes.errorbar(sizes, values, errors, fmt=marker, ms=3.5, color=colour, capsize=2)
    line = values if fit is None else [fit.a + fit.b / size for size in sizes]
    axes.plot(sizes, line, style, color=colour, marker=marker, markevery=[], ms=3.5, label=scheme)
    if known is not None and scheme in _PREDICTED:
        predicted = [known.predict(scheme, r.batch_size, r.bases).value for r in curve]
        axes.plot(sizes, predicted, "x", color=colour, ms=6, alpha=0.7)


def _can_fit(measurements: Measurements) -> bool:
    return all(len(curve) > 1 and all(r.repeats > 1 for r in curve) for curve in measurements.curves().values())
