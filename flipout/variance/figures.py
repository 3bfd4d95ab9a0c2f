"""The figure of the paper: variance against batch size, log-log."""

import os
from pathlib import Path
from typing import Any

from .records import Measurements

_STYLES = {"shared": ":", "flipout": "-", "local_reparam": "--", "independent": "-."}


def figure(measurements: Measurements, path: str | os.PathLike[str] | None, predictions: Any) -> Any:
    """Points with 90 % intervals, their fits a + b/N, predicted variances as crosses; written where a path is given."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(7, 5), layout="constrained")
    axes = made.add_subplot()
    colours = {name: f"C{i}" for i, name in enumerate(dict.fromkeys(r.parameter for r in measurements))}
    fits = {(fit.parameter, fit.scheme): fit for fit in measurements.fit()} if _can_fit(measurements) else {}
    known = {decomposition.parameter: decomposition for decomposition in predictions or ()}
    for (parameter, scheme), curve in measurements.curves().items():
        sizes = [r.batch_size for r in curve]
        values = [r.variance for r in curve]
        errors = [[r.variance - r.low for r in curve], [r.high - r.variance for r in curve]]
        colour, style = colours[parameter], _STYLES.get(scheme, "-")
        axes.errorbar(sizes, values, errors, fmt="o", ms=3, color=colour, capsize=2)
        fit = fits.get((parameter, scheme))
        line = values if fit is None else [fit.a + fit.b / size for size in sizes]
        axes.plot(sizes, line, style, color=colour, label=f"{parameter}, {scheme}")
        if parameter in known and scheme in ("independent", "shared", "flipout"):
            predicted = [known[parameter].predict(scheme, size).value for size in sizes]
            axes.plot(sizes, predicted, "x", color=colour, ms=6)
    axes.set(xscale="log", yscale="log", xlabel="batch size", ylabel="gradient variance")
    axes.legend(fontsize=8)
    if path is not None:
        made.savefig(Path(path))
    return made


def _can_fit(measurements: Measurements) -> bool:
    return all(len(curve) > 1 and all(r.repeats > 1 for r in curve) for curve in measurements.curves().values())
