"""No correlation: between the noise of two examples, and between the noise of two layers of equal shape."""

from itertools import combinations

import torch
from torch import Tensor

from ._claim import tensor_of
from ._report import Check
from ._statistics import worst_mean
from ._trial import Trial, spaced

EXAMPLES, LAYERS = "independent examples", "independent layers"
COUNT = 4  # examples with the same input


def independent_examples(trial: Trial) -> Check:
    """Correlate the weights of different examples, or the outputs of examples that have the same input."""
    if trial.claim.weights is not None:
        if len(trial.x) < 2:
            return Check(EXAMPLES, "not applicable", "x has one example.")
        noise = torch.cat(list(trial.weight_noise.values()), -1)
        return _uncorrelated(EXAMPLES, trial, *_pairs(noise), "weights of two examples")
    x = trial.x[:1].expand(COUNT, *trial.x.shape[1:]).contiguous()
    y = trial.outputs(x)
    if trial.is_linear:
        return _uncorrelated(EXAMPLES, trial, *_pairs(y - y.mean(0)), "outputs of two examples with the same input")
    noise = float((y - y.mean(0)).abs().max())
    seen = float((y - y[:, :1]).abs().max()) / noise if noise else 0.0
    if seen <= 1e-3:
        found = f"{COUNT} examples with the same input always had the same output: all share one weight."
        return Check(EXAMPLES, "failed", found, 1.0, 0.0, 0.0)
    found = (
        f"{COUNT} examples with the same input had different outputs. The layer is not linear in its weights, so "
        "uncorrelated weights may give correlated outputs; a Claim with weights would tell."
    )
    return Check(EXAMPLES, "not applicable", found)


def independent_layers(trial: Trial) -> Check:
    """Correlate the weights of Parameters of equal shape, or the outputs of two layers."""
    if trial.claim.pair is not None:
        with torch.no_grad():
            calls = [trial.claim.pair(trial.x) for _ in range(trial.draws)]
        first, second = (
            torch.stack([spaced(tensor_of(outputs[i]).double().flatten(1)) for outputs in calls]) for i in (0, 1)
        )
        first, second = ((y - y.mean(0)).flatten(1) for y in (first, second))
        return _uncorrelated(LAYERS, trial, first, second, "outputs of two layers of equal shape")
    alike = _equal_shapes(trial)
    if not alike:
        missing = "Give a Claim with pair, or with weights and two noisy Parameters of equal shape."
        return Check(LAYERS, "not applicable", missing)
    noise = trial.weight_noise
    first, second = (torch.cat([noise[names[i]].flatten(1) for names in alike], 1) for i in (0, 1))
    return _uncorrelated(LAYERS, trial, first, second, f"weights of {alike[0][0]} and {alike[0][1]}")


def _equal_shapes(trial: Trial) -> list[tuple[str, str]]:
    if trial.claim.weights is None or trial.claim.plain is None:
        return []
    shapes = {name: p.shape for name, p in trial.claim.plain.named_parameters() if name in trial.claim.spread}
    return [(a, b) for a, b in combinations(shapes, 2) if shapes[a] == shapes[b]]


def _pairs(noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return the noise of both examples of every pair, (draws, pairs · quantities)."""
    first, second = zip(*combinations(range(min(noise.shape[1], COUNT)), 2), strict=True)
    return noise[:, list(first)].flatten(1), noise[:, list(second)].flatten(1)


def _uncorrelated(name: str, trial: Trial, first: Tensor, second: Tensor, what: str) -> Check:
    scales = first.std(0), second.std(0)
    is_noisy = torch.minimum(*scales) > 0.01 * torch.maximum(*scales).max()
    if not bool(is_noisy.any()):
        return Check(name, "not applicable", "The layer showed no noise.")
    products = (first * second / (scales[0] * scales[1]))[:, is_noisy]
    overall = worst_mean(products.mean(1, keepdim=True), 0.0, 1.0, trial.error_rate / 2)
    worst = worst_mean(products, 0.0, 1.0, trial.error_rate / 2)
    seen = float(products.mean())
    found = (
        f"The mean correlation of {products.shape[1]} pairs of {what} is {seen:.3f} ({overall}); the farthest from 0 "
        f"is {float(products.mean(0)[worst.place]):.2f} ({worst})."
    )
    is_far = overall.is_far or worst.is_far
    return Check(name, "failed" if is_far else "passed", found, seen, 0.0, trial.error_rate)
