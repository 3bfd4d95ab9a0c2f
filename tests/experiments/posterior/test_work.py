"""Regressions have the right posterior, and the checks refuse a wrong one."""

import math
from pathlib import Path

import pytest
import torch

from flipout import bayes
from flipout.errors import InvalidArgument
from flipout.experiments.posterior import claims
from flipout.experiments.posterior.regressions import RegressionConfig, Regressions, quantile
from flipout.experiments.posterior.work import PosteriorConfig
from flipout.experiments.registry import EXPERIMENTS


@pytest.fixture(scope="module")
def regressions() -> Regressions:
    return RegressionConfig(tasks=40, held_out=4000).drawn(torch.Generator().manual_seed(3))


def exactly(regressions: Regressions, mean: float = 1.0, std: float = 1.0) -> dict[str, torch.Tensor]:
    return {"mean": mean * regressions.mean, "std": std * regressions.best}


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


@pytest.mark.parametrize(("mean", "std", "holds"), [(1.0, 1.0, (1, 1)), (0.95, 1.0, (0, 1)), (1.0, 1.05, (1, 0))])
def test_wrong_means_and_spreads_are_refused(regressions, mean, std, holds):
    found = {"shared": exactly(regressions), "flipout": exactly(regressions, mean, std)}
    assert tuple(check.holds for check in claims.recovered(regressions, found)) == holds


def test_wrong_intervals_are_refused(regressions):
    mean, variance = regressions.predictive(regressions.best[0].square().diag())
    for factor, holds in ((1.0, True), (0.9, False)):
        (check,) = claims.covered(regressions, {"flipout": {"mean": mean, "variance": factor * variance}})
        assert check.holds == holds


def test_a_kl_of_the_wrong_scale_is_found_out(tmp_path: Path, monkeypatch):
    class Wrong(bayes.ELBO):
        def __init__(self, *arguments, **named) -> None:
            super().__init__(*arguments, **named, kl_weight=0.3)

    monkeypatch.setattr(bayes, "ELBO", Wrong)
    experiment = EXPERIMENTS["posterior-check"]
    result = experiment.run(experiment.config("smoke"), tmp_path, preset="smoke")
    assert any(check.id == "spreads" for check in result.broken)


@pytest.mark.parametrize(
    "changes",
    [{"tasks": 2}, {"inputs": 0}, {"correlation": 1.0}, {"correlation": -0.1}, {"noise": 0.0}, {"prior": -1.0}],
)
def test_bad_settings_are_refused(changes):
    with pytest.raises(InvalidArgument, match="expected"):
        RegressionConfig(**changes)
    with pytest.raises(InvalidArgument, match="schemes: expected at least one"):
        PosteriorConfig(schemes=())
    with pytest.raises(InvalidArgument, match="steps=1: expected at least 100"):
        PosteriorConfig(steps=1)
