"""Which figure shows a prediction: bands of numbers, a reliability diagram, or probabilities in order."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import InvalidInput
from ._figures import FilePath, draw_band, draw_probabilities
from ._needs import checked_targets
from ._target_interval import target_interval

if TYPE_CHECKING:
    from ._prediction import Prediction


def plotted(
    prediction: "Prediction", x: Tensor | None, target: Tensor | None, level: float, path: FilePath | None
) -> Any:
    """Return the figure that `Prediction.plot` describes."""
    if prediction.likelihood is not None and prediction.likelihood.entropic:
        return _classes(prediction, target, path)
    count = len(prediction.mean)
    if prediction.mean.numel() != count:
        raise InvalidInput(
            f"plot: a mean of shape {tuple(prediction.mean.shape)} has several numbers for an input; a band shows one. "
            "Predict one of them: predict(…, output=lambda y: y[:, :1])."
        )
    if x is not None and (not isinstance(x, Tensor) or x.numel() != count or len(x) != count):
        shape = tuple(x.shape) if isinstance(x, Tensor) else type(x)
        raise InvalidInput(f"plot: inputs of {shape}; expected ({count},) or ({count}, 1): one dimension to draw over.")
    places = prediction.mean.flatten() if x is None else x.detach().flatten()
    order = places.argsort()
    bands, share = {}, f"{100 * level:g} %"
    if prediction.likelihood is not None:
        bands[f"{share} of the targets (interval)"] = target_interval(prediction, level)
    if prediction.count > 1:
        bands[f"{share} of the functions (function_interval)"] = prediction.function_interval(level)
    at = torch.arange(count) if x is None else places[order]
    return draw_band(
        _array(at),
        _array(prediction.mean.flatten()[order]),
        {name: tuple(_array(end.flatten()[order]) for end in ends) for name, ends in bands.items()},
        None if target is None else _array(checked_targets("plot", prediction, target).flatten()[order]),
        (
            "input, in the order of the means" if x is None else "x",
            "output" if prediction.likelihood is None else "target",
        ),
        path,
    )


def _classes(prediction: "Prediction", target: Tensor | None, path: FilePath | None) -> Any:
    if target is not None:
        from ._reliability import reliability  # it imports Prediction

        return reliability(prediction, target).plot(path)
    assert prediction.likelihood is not None
    probability = prediction.likelihood.probabilities(prediction.mean).amax(-1).flatten()
    return draw_probabilities(_array(probability.sort(descending=True).values), path)


def _array(values: Tensor) -> Any:
    return values.detach().double().cpu().numpy()
