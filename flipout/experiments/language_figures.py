"""Training curves of language models, epoch by epoch: bands over the seeds of a row."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flipout.variance.figures import COLOURS

from .language_claims import CURVES, Rows

_OTHERS = ("#2e8b57", "#7a7a7a", "#b8860b", "#8a4fbf", "#17a2b8", "#d4689a", "#5b3a29")


def curves(rows: Rows) -> Mapping[str, tuple[str, Any]]:
    """One figure: the loss of training under each row's noise, and that of the validation text at the mean weights."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter

    made = Figure(figsize=(9.0, 3.9), layout="constrained")
    training, valid = made.subplots(1, 2)
    others = iter(_OTHERS * 2)
    for row in rows.there:
        own = COLOURS["flipout"] if row.scheme == "flipout" else COLOURS["shared"] if row.noisy else next(others)
        for axes, column in ((training, "train"), (valid, "valid")):
            for number, one in enumerate(rows.of(row.name)):
                values = [rows.unit.of(epoch[column]) for epoch in one.history if epoch[column] is not None]
                axes.plot(
                    range(1, len(values) + 1),
                    values,
                    "--" if row.tied and any(not other.tied for other in rows.table) else "-",
                    color=own,
                    lw=1.2,
                    label=row.title if number == 0 else None,
                )
    training.set(title="training, under the noise", xlabel="epoch", ylabel=rows.unit.name, yscale="log")
    valid.set(title="validation, mean weights", xlabel="epoch", yscale="log")
    for axes in (training, valid):
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2.0, 0.5)))
    valid.legend(fontsize=7)
    caption = "Training and validation, epoch by epoch; a line for each seed."
    return {CURVES: (caption, made)}


def of(make: Callable[[Sequence[Any]], Rows]) -> Callable[[Sequence[Any]], Mapping[str, tuple[str, Any]]]:
    return lambda trained: curves(make(trained))
