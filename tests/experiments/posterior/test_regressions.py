"""Regressions have the right posterior and the right coverage."""

import math

import torch

from flipout.experiments.posterior.regressions import RegressionConfig, quantile


def test_the_posterior_is_stationary_and_its_factorised_gaussian_is_the_closest(regressions):
    weights = regressions.mean.clone().requires_grad_()
    prior = RegressionConfig().prior
    energy = (
        regressions.y - regressions.x @ weights.T
    ).square().sum() / 2 / regressions.noise**2 + weights.square().sum() / 2 / prior**2
    (gradient,) = torch.autograd.grad(energy, weights)
    assert gradient.abs().max() < 1e-9
    exact = torch.distributions.MultivariateNormal(regressions.mean[0], regressions.covariance)

    def kl(factor: float) -> float:
        approximation = torch.distributions.MultivariateNormal(
            regressions.mean[0], (factor * regressions.best[0]).square().diag()
        )
        return float(torch.distributions.kl_divergence(approximation, exact))

    assert kl(1.0) < min(kl(0.99), kl(1.01))
    assert (regressions.covariance.diagonal().sqrt() > regressions.best[0]).all()


def test_expected_coverage_is_that_of_many_targets(regressions):
    mean, variance = regressions.predictive(regressions.best[0].square().diag())
    generator = torch.Generator().manual_seed(4)
    fresh = regressions.x_test @ regressions.weights.T
    fresh = fresh + regressions.noise * torch.randn(fresh.shape, generator=generator, dtype=torch.float64)
    inside = ((fresh - mean).abs() <= quantile(0.9) * variance.sqrt()).double().mean()
    error = math.sqrt(0.9 * 0.1 / fresh.numel())
    assert abs(float(inside - regressions.expected(0.9).mean())) < 4 * error
