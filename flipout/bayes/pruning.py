"""Weights whose posterior says little: |W̄| / σ, the signal-to-noise ratio of Blundell et al. (2015)."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .._shards import GATHER, refuse_shards
from ..distributions import MeanField
from ..errors import InvalidArgument, Unsupported
from ..nn.companions import learned_companions
from . import figures
from .posterior import Posterior, posteriors

_GONE = -30.0  # ρ of a pruned weight: a spread of 1e-13, and a KL that is still finite


@dataclass(frozen=True)
class Pruned:
    """What `prune` took away."""

    fraction: float  # that was asked for
    weights: int  # that are gone
    of: int  # weights that could be
    threshold: float  # the largest ratio among them
    score: float | None = None  # of a curve: what `evaluate` said


@dataclass(frozen=True)
class PruningCurve:
    """What is left of a score as more weights are taken away."""

    points: tuple[Pruned, ...]  # one for each fraction

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """A matplotlib figure; written where a path is given."""
        return figures.pruning(
            [point.weights / point.of for point in self.points], [point.score or 0.0 for point in self.points], path
        )


@torch.no_grad()
def signal_to_noise(model: nn.Module) -> dict[str, Tensor]:
    """Parameter → |W̄| / σ of each weight, of its shape; infinite for a padding row, which has no posterior."""
    found = posteriors(model)
    refuse_shards(model, "signal_to_noise", GATHER)
    return {posterior.name: _ratio(posterior) for posterior in found}


@torch.no_grad()
def prune(model: nn.Module, fraction: float) -> Pruned:
    """Set the given share of the weights to 0, mean and spread, in place: those of lowest ratio over the whole model.

    The network is meant to be used or frozen then: a KL would make the spreads grow again.
    """
    if not (isinstance(fraction, (int, float)) and not isinstance(fraction, bool) and 0 <= fraction <= 1):
        raise InvalidArgument(f"prune(fraction={fraction!r}): expected a share of the weights, between 0 and 1.")
    found = posteriors(model)
    refuse_shards(model, "prune", GATHER)
    for posterior in found:
        if not isinstance(posterior.distribution, MeanField):
            raise Unsupported(
                f"{posterior.name}: {posterior.distribution} has no spread that could be set; use MeanField."
            )
    ratios = [_ratio(posterior).flatten().to(found[0].parameter.device) for posterior in found]
    every = torch.cat(ratios)
    count = min(round(fraction * len(every)), int(every.isfinite().sum()))
    gone = torch.zeros_like(every, dtype=torch.bool)
    lowest = every.argsort(stable=True)[:count]
    gone[lowest] = True
    for posterior, some in zip(found, gone.split([len(ratio) for ratio in ratios]), strict=True):
        mask = some.view(posterior.parameter.shape).to(posterior.parameter.device)
        posterior.parameter[mask] = 0
        learned_companions(posterior.layer, posterior.local)["rho"][mask] = _GONE
    threshold = float(every[lowest[-1]]) if count else 0.0
    return Pruned(float(fraction), count, len(every), threshold)


@torch.no_grad()
def pruning_curve(
    model: nn.Module,
    evaluate: Callable[[nn.Module], float],
    fractions: Sequence[float] = (0.0, 0.5, 0.75, 0.9, 0.95, 0.98),
) -> PruningCurve:
    """`evaluate(model)` with each share of the weights pruned; the model is put back as it was."""
    kept = [tensor for posterior in posteriors(model) for tensor in _tensors(posterior)]
    values = [tensor.clone() for tensor in kept]
    points = []
    for fraction in fractions:
        try:
            made = prune(model, fraction)
            score = float(evaluate(model))
        finally:
            for tensor, value in zip(kept, values, strict=True):
                tensor.copy_(value)
        points.append(Pruned(made.fraction, made.weights, made.of, made.threshold, score))
    return PruningCurve(tuple(points))


def _ratio(posterior: Posterior) -> Tensor:
    ratio, quiet = posterior.mean.abs() / posterior.std, posterior.quiet
    return ratio if quiet is None else torch.where(quiet, torch.inf, ratio)


def _tensors(posterior: Posterior) -> list[Tensor]:
    return [posterior.parameter, *learned_companions(posterior.layer, posterior.local).values()]
