"""The continuous ranked probability score: E|Y − y| − ½ E|Y − Y'| for targets Y, Y' of the prediction."""

import math

import torch
from torch import Tensor

from ..errors import InvalidArgument
from ._mixture import Mixture
from .likelihoods import Gaussian, HeteroscedasticGaussian

_DRAWS = 1024  # targets for each input, where there is no closed form
_TAIL = 1e-12  # the probability of the counts that the sum leaves out


def crps(mixture: Mixture, target: Tensor) -> Tensor:
    """Return the score (N, …) of each target: in closed form for Gaussian noise and counts, else from samples."""
    likelihood = mixture.likelihood
    if isinstance(likelihood, (Gaussian, HeteroscedasticGaussian)):
        return gaussian_crps(*mixture.moments(), target.double())
    if likelihood.counts and likelihood.defines("cdf"):
        return _count_crps(mixture, target.double())
    return _sampled_crps(mixture, target.double())


def gaussian_crps(means: Tensor, variances: Tensor, target: Tensor) -> Tensor:
    """Return the score of an equal mixture of Gaussians (samples, N, …), by Grimit et al. (2006).

    (1/S) Σ_i A(y − μ_i, σ_i²) − (1/2S²) Σ_ij A(μ_i − μ_j, σ_i² + σ_j²), A(m, v) = E|N(m, v)|.
    """
    count = len(means)
    error = _mean_absolute(target - means, variances).mean(0)
    pairs = _mean_absolute(torch.zeros_like(means), 2 * variances).sum(0)
    for i in range(count - 1):  # one row of pairs at a time bounds the memory
        pairs = pairs + 2 * _mean_absolute(means[i] - means[i + 1 :], variances[i] + variances[i + 1 :]).sum(0)
    return error - pairs / (2 * count**2)


def _mean_absolute(mean: Tensor, variance: Tensor) -> Tensor:
    """Return E|X| of X ~ N(mean, variance)."""
    std = variance.sqrt()
    z = mean / std
    return std * math.sqrt(2 / math.pi) * (-z.square() / 2).exp() + mean * torch.erf(z / math.sqrt(2))


def _count_crps(mixture: Mixture, target: Tensor) -> Tensor:
    """Return Σ_k (cdf(k) − 1[y ≤ k])² over the counts that are not in the last tail."""
    last = torch.maximum(mixture.quantile(1 - _TAIL), target).max()
    if not bool(last < 2**20):
        raise InvalidArgument(f"evaluate: counts up to {float(last):.3g} are too many to sum over. Use Gaussian noise.")
    score = torch.zeros_like(target)
    for k in range(int(last) + 1):
        score += (mixture.cdf(torch.full_like(target, k)) - (target <= k).double()).square()
    return score


def _sampled_crps(mixture: Mixture, target: Tensor) -> Tensor:
    """Return E|Y − y| − ½ E|Y − Y'| of samples in order: E|Y − Y'| is 2 Σ_i (2i − n − 1) Y_i / (n (n − 1))."""
    generator = torch.Generator(target.device).manual_seed(0)
    drawn = mixture.sample(_DRAWS, generator).double().sort(0).values
    weights = torch.arange(1 - _DRAWS, _DRAWS, 2, dtype=torch.float64, device=target.device)
    spread = torch.tensordot(weights, drawn, 1) * (2 / (_DRAWS * (_DRAWS - 1)))
    return (drawn - target).abs().mean(0) - spread / 2
