"""A prediction as a short table that says which uncertainty is which."""

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .._html import html_table
from ..draws.bits import is_transformed
from ..errors import FlipoutError
from ._mixture import std_of_inputs
from ._target_interval import target_interval
from .likelihoods import Gaussian

if TYPE_CHECKING:
    from ._prediction import Prediction

_ROWS = 5
_WORDS = {
    "numbers": (
        "interval(0.9) holds the target with probability 0.9. ± noise remains if the\n"
        "weights are known; ± weights shrinks with more data. ± error is the Monte\n"
        "Carlo error of the mean, and shrinks with more samples."
    ),
    "classes": (
        "interval(0.9) is the smallest set of classes of that probability. Entropies\n"
        "in nats: noise remains if the weights are known; weights, the mutual\n"
        "information, shrinks with more data."
    ),
    "function": (
        "Without a likelihood nothing is known about the noise of the target.\n"
        "± weights is the spread of the output over the weights (function_interval),\n"
        "± error the Monte Carlo error of the mean (mean_interval)."
    ),
}


def table(prediction: "Prediction") -> str:
    """Return what the first targets of a prediction are, and what its columns mean."""
    columns, notes = _shown(prediction)
    lines = _aligned(columns) if columns else []
    return "\n".join([_head(prediction), *lines, *notes])


def table_html(prediction: "Prediction") -> str:
    """Return the same table for a notebook."""
    return html_table(_head(prediction), *_shown(prediction))


def _head(prediction: "Prediction") -> str:
    return (
        f"Prediction(mean of shape {tuple(prediction.mean.shape)}, count={prediction.count}, bases={prediction.bases}"
        f"{_named(prediction)}{prediction.note and f', {prediction.note}'})"
    )


def _shown(prediction: "Prediction") -> tuple[dict[str, list[str]], list[str]]:
    """Return the columns of the first targets, and what stands below them. There are none inside a transform."""
    if is_transformed() or prediction.mean.is_meta:
        return {}, []
    few = _first(prediction)
    shape = few.total.shape
    places = list(product(*map(range, shape)))[:_ROWS]
    is_of_inputs = few.total.numel() == len(few.total)
    columns = {
        "input" if is_of_inputs else "index": [
            ", ".join(map(str, place[:1] if is_of_inputs else place)) for place in places
        ]
    }
    is_of_classes = prediction.likelihood is not None and prediction.likelihood.entropic
    columns |= _of_classes(few) if is_of_classes else _of_numbers(few)
    kind = "classes" if is_of_classes else "function" if prediction.likelihood is None else "numbers"
    more = prediction.total.numel() - len(places)
    return columns, [*([f"… and {more} more"] if more else []), _WORDS[kind]]


def _named(prediction: "Prediction") -> str:
    return "" if prediction.likelihood is None else f", likelihood={type(prediction.likelihood).__name__}"


def _first(prediction: "Prediction") -> "Prediction":
    """Return the prediction of the first inputs alone."""
    names = ("mean", "standard_error", "total", "aleatoric", "epistemic")
    outputs = None if prediction.outputs is None else prediction.outputs[:, :_ROWS]
    std = std_of_inputs(prediction.likelihood, prediction.mean.dim())
    likelihood = prediction.likelihood if std is None else Gaussian(std[:_ROWS], learn=False)
    tensors = {name: getattr(prediction, name)[:_ROWS] for name in names}
    return replace(prediction, outputs=outputs, quantiles=None, likelihood=likelihood, **tensors)


def _of_numbers(few: "Prediction") -> dict[str, list[str]]:
    columns = {"mean": _numbers(few.mean)}
    if few.likelihood is not None:
        try:
            low, high = target_interval(few, 0.9)
            pairs = zip(_numbers(low), _numbers(high), strict=True)
            columns["90 % interval"] = [f"{a} … {b}" for a, b in pairs]
        except FlipoutError:
            columns["90 % interval"] = ["not kept" if few.outputs is None else "unknown"] * len(columns["mean"])
        columns["± noise"] = _numbers(few.aleatoric.sqrt())
    return columns | {"± weights": _numbers(few.epistemic.sqrt()), "± error": _numbers(few.standard_error)}


def _of_classes(few: "Prediction") -> dict[str, list[str]]:
    assert few.likelihood is not None
    columns: dict[str, list[str]] = {}
    if few.likelihood.defines("probabilities"):
        probability, label = few.likelihood.probabilities(few.mean).max(-1)
        columns = {"class": [str(int(c)) for c in label.flatten()[:_ROWS]], "probability": _numbers(probability)}
        if few.count > 1 or few.is_whole:
            sets = target_interval(few, 0.9)
            assert isinstance(sets, Tensor)
            columns["90 % set"] = [_members(row) for row in sets.flatten(0, -2)[:_ROWS]]
    names = {"entropy": few.total, "noise": few.aleatoric, "weights": few.epistemic}
    return columns | {name: _numbers(values) for name, values in names.items()}


def _members(is_inside: Tensor) -> str:
    inside = is_inside.nonzero().flatten().tolist()
    shown = ", ".join(map(str, inside[:4]))
    return f"{{{shown}}}" if len(inside) <= 4 else f"{{{shown}, …}} ({len(inside)})"


def _numbers(values: Tensor) -> list[str]:
    return [f"{value:.4g}" for value in values.flatten()[:_ROWS].to(torch.float64).tolist()]


def _aligned(columns: dict[str, list[str]]) -> list[str]:
    widths = [max(map(len, (name, *cells))) for name, cells in columns.items()]
    rows = [list(columns), *zip(*columns.values(), strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
