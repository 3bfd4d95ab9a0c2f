"""Pruning by the signal-to-noise ratio |W̄| / σ of each weight, as in Blundell et al. (2015)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from .._shards import GATHER, refuse_shards
from ..distributions import MeanField
from ..errors import InvalidArgument, Unsupported
from ..nn.companions import learned_companions
from ._figures import FilePath, draw_pruning
from ._posterior import Posterior, posteriors
from ._shown import shown

_PRUNED_RHO = -30.0  # a spread of 1e-13, with a KL that is still finite


@dataclass(frozen=True, repr=False)
class Pruned:
    """What `prune` removed."""

    fraction: float  # the requested share
    weights: int  # the number of pruned weights
    of: int  # the number of weights with a posterior
    threshold: float  # the largest ratio among the pruned weights
    score: float | None = None  # in a curve: what `evaluate` returned

    def __repr__(self) -> str:
        score = {} if self.score is None else {"score": self.score}
        return shown(self, fraction=self.fraction, weights=self.weights, of=self.of, threshold=self.threshold, **score)


@dataclass(frozen=True, repr=False)
class PruningCurve:
    """The score of a model as more and more of its weights are pruned."""

    points: tuple[Pruned, ...]  # one for each fraction

    def plot(self, path: FilePath | None = None) -> Any:
        """Draw the score against the share of pruned weights.

        Args:
            path: The file to write, if any.

        Returns:
            A matplotlib figure.
        """
        shares = [point.weights / point.of for point in self.points]
        return draw_pruning(shares, [point.score or 0.0 for point in self.points], path)

    def __repr__(self) -> str:
        scores = {f"{point.fraction:.3g}": f"{point.score or 0.0:.5g}" for point in self.points}
        return f"PruningCurve({', '.join(f'{fraction}: {score}' for fraction, score in scores.items())})"


@torch.no_grad()
def signal_to_noise(model: nn.Module) -> dict[str, Tensor]:
    """Return |W̄| / σ of each weight.

    Args:
        model: A model converted with `MeanField`.

    Returns:
        The name of each Parameter with its ratios, of the Parameter's shape. They are infinite for a padding row,
        which has no posterior.

    Raises:
        NotPerturbed: The model has no learned spreads.

    Example:
        >>> bayes.signal_to_noise(model)["0.weight"].median()
    """
    found = posteriors(model)
    refuse_shards(model, "signal_to_noise", GATHER)
    return {posterior.name: _ratio(posterior) for posterior in found}


@torch.no_grad()
def prune(model: nn.Module, fraction: float) -> Pruned:
    """Set the weights with the lowest |W̄| / σ to 0, in place, both mean and spread.

    All Parameters are ranked together. Use or freeze the model afterwards: training with a KL would let the spreads
    grow again.

    Args:
        model: A model converted with `MeanField`.
        fraction: The share of the weights to prune, between 0 and 1.

    Returns:
        How many weights were pruned, and up to which ratio.

    Raises:
        InvalidArgument: `fraction` is not between 0 and 1.
        NotPerturbed: The model has no learned spreads.
        Unsupported: A learned spread is not of `MeanField`.

    Example:
        >>> bayes.prune(model, 0.9)
        >>> flipout.freeze(model)
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
    all_ratios = torch.cat(ratios)
    count = min(round(fraction * len(all_ratios)), int(all_ratios.isfinite().sum()))
    is_pruned = torch.zeros_like(all_ratios, dtype=torch.bool)
    lowest = all_ratios.argsort(stable=True)[:count]
    is_pruned[lowest] = True
    for posterior, pruned in zip(found, is_pruned.split([len(ratio) for ratio in ratios]), strict=True):
        mask = pruned.view(posterior.parameter.shape).to(posterior.parameter.device)
        posterior.parameter[mask] = 0
        learned_companions(posterior.layer, posterior.local)["rho"][mask] = _PRUNED_RHO
    threshold = float(all_ratios[lowest[-1]]) if count else 0.0
    return Pruned(float(fraction), count, len(all_ratios), threshold)


@torch.no_grad()
def pruning_curve(
    model: nn.Module,
    evaluate: Callable[[nn.Module], float],
    fractions: Sequence[float] = (0.0, 0.5, 0.75, 0.9, 0.95, 0.98),
) -> PruningCurve:
    """Score a model with several shares of its weights pruned. The model is restored.

    Args:
        model: A model converted with `MeanField`.
        evaluate: Returns the score of the pruned model.
        fractions: The shares of the weights to prune, between 0 and 1.

    Returns:
        The score for each share.

    Raises:
        InvalidArgument: A fraction is not between 0 and 1.
        NotPerturbed: The model has no learned spreads.

    Example:
        >>> bayes.pruning_curve(model, lambda m: accuracy(m, data)).plot("pruning.svg")
    """
    tensors = [tensor for posterior in posteriors(model) for tensor in _tensors(posterior)]
    values = [tensor.clone() for tensor in tensors]
    points = []
    for fraction in fractions:
        try:
            pruned = prune(model, fraction)
            score = float(evaluate(model))
        finally:
            for tensor, value in zip(tensors, values, strict=True):
                tensor.copy_(value)
        points.append(replace(pruned, score=score))
    return PruningCurve(tuple(points))


def _ratio(posterior: Posterior) -> Tensor:
    ratio, quiet = posterior.mean.abs() / posterior.marginal_std, posterior.quiet
    return ratio if quiet is None else torch.where(quiet, torch.inf, ratio)


def _tensors(posterior: Posterior) -> list[Tensor]:
    return [posterior.parameter, *learned_companions(posterior.layer, posterior.local).values()]
