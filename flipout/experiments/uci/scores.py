"""Scores of a prediction that is a mixture of normal distributions: one component for each sample of the weights."""

import math

import torch
from torch import Tensor
from torch.distributions import Normal

SCORES = ("rmse", "log_likelihood", "crps", "coverage")
LEVEL = 0.9  # of the intervals whose coverage is counted
_LARGEST = 2**22  # numbers in one tensor of pairs of components


def mixture_scores(means: Tensor, stds: Tensor, y: Tensor) -> dict[str, float]:
    """Score a mixture of normal distributions with equal weights.

    Args:
        means: The means (components, examples).
        stds: The standard deviations, which broadcast to the means.
        y: The targets (examples,).

    Returns:
        The RMSE of the mean, and averages over examples: log-likelihood, CRPS, and how often a target is inside of its
        central 90 % interval. That is where the mixture's distribution function is between 5 % and 95 %.
    """
    means, y = means.double(), y.double()
    stds = stds.double().expand_as(means)
    below = torch.special.ndtr((y - means) / stds).mean(0)
    tail = (1 - LEVEL) / 2
    return {
        "rmse": float((y - means.mean(0)).square().mean().sqrt()),
        "log_likelihood": mixture_log_likelihood(means, stds, y),
        "crps": float(mixture_crps(means, stds, y).mean()),
        "coverage": float(((below >= tail) & (below <= 1 - tail)).double().mean()),
    }


def mixture_log_likelihood(means: Tensor, stds: Tensor, y: Tensor) -> float:
    """Return the mean log-likelihood of the targets. The arguments are those of `mixture_scores`."""
    log_probs = Normal(means.double(), stds.double().expand_as(means)).log_prob(y.double())
    return float((log_probs.logsumexp(0) - math.log(len(means))).mean())


def mixture_crps(means: Tensor, stds: Tensor, y: Tensor) -> Tensor:
    """Return E|Y − y| − E|Y − Y'| / 2 of each example, exactly (Grimit et al. 2006)."""
    found = []
    rows = max(_LARGEST // len(means) ** 2, 1)
    for m, s, target in zip(*(values.split(rows, -1) for values in (means, stds, y)), strict=True):
        variance = s.square()
        pairs = _absolute(m[:, None] - m, (variance[:, None] + variance).sqrt())
        found.append(_absolute(target - m, s).mean(0) - pairs.mean((0, 1)) / 2)
    return torch.cat(found)


def _absolute(mean: Tensor, std: Tensor) -> Tensor:
    """E|X| of X ~ N(mean, std²)."""
    z = mean / std
    return mean * torch.erf(z / math.sqrt(2)) + std * math.sqrt(2 / math.pi) * (-z.square() / 2).exp()
