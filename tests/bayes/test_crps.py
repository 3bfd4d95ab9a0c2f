"""The CRPS in closed form, against the integral of (cdf(t) − 1[y ≤ t])² and against sums over counts."""

import pytest
import torch
import torch.distributions as td

from flipout import errors
from flipout.bayes import likelihoods
from flipout.bayes._crps import crps, gaussian_crps
from flipout.bayes._mixture import Mixture
from tests.bayes.test_mixture import OUTPUTS, Laplace


def integrated(likelihood: likelihoods.Likelihood, outputs: torch.Tensor, target: float) -> torch.Tensor:
    """(features,): the score of one input, on a fine grid that is split at the target, where the integrand jumps."""
    scores = []
    for start, stop, step in ((-60.0, target, 0.0), (target, 60.0, 1.0)):
        grid = torch.linspace(start, stop, 60_001, dtype=torch.float64)
        mixture = Mixture(likelihood, outputs.expand(-1, len(grid), -1))
        features = mixture.moments()[0].shape[-1]
        scores.append(torch.trapezoid((mixture.cdf(grid[:, None].expand(-1, features)) - step).square(), grid, dim=0))
    return scores[0] + scores[1]


@pytest.mark.parametrize("likelihood", [likelihoods.HeteroscedasticGaussian(), likelihoods.Gaussian(0.3)], ids=repr)
def test_gaussian_mixtures(likelihood: likelihoods.Likelihood) -> None:
    mixture = Mixture(likelihood, OUTPUTS[:, :1])
    target = torch.full_like(mixture.moments()[0][0], 0.4)
    expected = integrated(likelihood, OUTPUTS[:, :1], 0.4)
    torch.testing.assert_close(crps(mixture, target)[0], expected, rtol=1e-6, atol=1e-8)


def test_one_gaussian_by_hand() -> None:
    """Gneiting and Raftery (2007): σ (z (2Φ(z) − 1) + 2φ(z) − 1/√π)."""
    mean, std, y = torch.tensor([1.0, -2.0]).double(), torch.tensor([0.5, 3.0]).double(), torch.tensor([1.7, 4.0])
    z, normal = (y - mean) / std, td.Normal(0.0, 1.0)
    expected = std * (z * (2 * normal.cdf(z) - 1) + 2 * normal.log_prob(z).exp() - torch.pi**-0.5)
    torch.testing.assert_close(gaussian_crps(mean[None], std.square()[None], y.double()), expected)


def test_equal_samples_score_like_one() -> None:
    score = crps(Mixture(likelihoods.Gaussian(0.3), OUTPUTS[:1].expand(4, -1, -1)), OUTPUTS[1])
    torch.testing.assert_close(score, crps(Mixture(likelihoods.Gaussian(0.3), OUTPUTS[:1]), OUTPUTS[1]))


def test_counts() -> None:
    log_rates = torch.linspace(-2, 3, 12).view(3, 4).double()
    target = torch.tensor([0, 3, 40, 1])
    below = td.Poisson(log_rates.exp()).log_prob(torch.arange(300.0).double()[:, None, None]).exp().mean(1).cumsum(0)
    step = (target <= torch.arange(300)[:, None]).double()
    torch.testing.assert_close(crps(Mixture(likelihoods.Poisson(), log_rates), target), (below - step).square().sum(0))
    with pytest.raises(errors.InvalidArgument, match="too many to sum over"):
        crps(Mixture(likelihoods.Poisson(), torch.full((1, 1), 20.0)), torch.zeros(1))


def test_samples_where_there_is_no_form() -> None:
    """E|Y| − ½ E|Y − Y'| = ½ − ¾ · ½ for Laplace(0, ½), at y = 0."""
    found = crps(Mixture(Laplace(), torch.zeros(1, 50).double()), torch.zeros(50))
    assert found.mean().item() == pytest.approx(0.5 - 0.375, abs=0.01)
