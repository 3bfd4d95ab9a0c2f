"""What mirrored samples do to the errors of a prediction, at several spreads of the weights.

Each variant predicts with 32 samples, many times. Its squared errors are relative: to the variance over the weights for
the mean and the quantiles, else to the squared quantity. `ratio` compares with independent samples. The truth comes
from many independent samples. Networks are 13-50-50-1 for numbers and 13-50-50-5 for classes, with the weights that
torch starts from.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

import flipout
from flipout.bayes import Prediction, predict

from .record import Row, rows

SPREADS = (0.1, 0.3, 0.6)  # of the standard deviation of a layer's weights
SAMPLES, SEEDS, AT_ONCE, TRUTH = 32, 2000, 100, 2**16
VARIANTS: dict[str, dict[str, Any]] = {"independent": {"group": 1}, "flipout": {}, "antithetic": {"antithetic": True}}


def run() -> Iterator[Row]:
    torch.manual_seed(0)
    x = torch.randn(10, 13, dtype=torch.float64)
    for spread in SPREADS:
        kinds: tuple[tuple[int, Any], ...] = ((1, None), (5, "categorical"))
        for outputs, likelihood in kinds:
            model = _network(outputs, spread)
            truth = _found(predict(model, x, TRUTH, likelihood=likelihood, group=1, seed=2**40, keep=True))
            scale = _scale(truth)
            errors = {name: _errors(model, x, likelihood, truth, scale, how) for name, how in VARIANTS.items()}
            against = {name: "independent" for name in VARIANTS if name != "independent"}
            for quantity in truth:
                case = f"prediction, spread {spread:g}, {quantity}"
                measured = {name: errors[name][quantity] for name in VARIANTS}
                yield from rows(case, measured, against, what="mse", dtype="float64")


def _network(outputs: int, spread: float) -> nn.Module:
    torch.manual_seed(1)
    layers = (nn.Linear(13, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, outputs))
    model = flipout.perturb(nn.Sequential(*layers).double(), flipout.MeanField())
    with torch.no_grad():
        for i in (0, 2, 4):
            layer = model.get_submodule(str(i))
            layer.get_parameter("weight_rho").fill_((spread * layer.get_parameter("weight").std()).expm1().log())
    return model


def _found(prediction: Prediction) -> dict[str, Tensor]:
    """Return the quantities that are compared, each of shape (N, …)."""
    if prediction.likelihood is not None:
        return {"mutual information": prediction.epistemic, "class probabilities": prediction.mean}
    low, high = prediction.function_interval(0.9)
    return {"mean": prediction.mean, "epistemic variance": prediction.epistemic, "5 % and 95 %": torch.cat((low, high))}


def _errors(
    model: nn.Module,
    x: Tensor,
    likelihood: Any,
    truth: dict[str, Tensor],
    scale: dict[str, float],
    how: dict[str, Any],
) -> dict[str, list[float]]:
    """Return relative mean squared errors over the inputs, one for each chunk of seeds."""

    def squares(seed: Tensor) -> list[Tensor]:
        found = _found(predict(model, x, SAMPLES, likelihood=likelihood, seed=seed, keep=True, **how))
        return [(found[name] - truth[name]).square().mean() for name in truth]

    chunks = [torch.func.vmap(squares)(seeds) for seeds in torch.arange(SEEDS).split(AT_ONCE)]
    return {name: [float(chunk[i].mean()) / scale[name] for chunk in chunks] for i, name in enumerate(truth)}


def _scale(truth: dict[str, Tensor]) -> dict[str, float]:
    """Return what the squared errors are divided by: the variance over weights, or the squared quantity itself."""
    squares = {name: float(values.square().mean()) for name, values in truth.items()}
    if "epistemic variance" in truth:
        squares |= dict.fromkeys(("mean", "5 % and 95 %"), float(truth["epistemic variance"].mean()))
    return squares
