"""Scores of mixtures of normal distributions equal those of a direct computation."""

import math
from itertools import pairwise

import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from flipout import bayes
from flipout.bayes.likelihoods import Gaussian
from flipout.experiments.uci.scores import LEVEL, SCORES, mixture_crps, mixture_log_likelihood, mixture_scores


@pytest.fixture(scope="module")
def mixture() -> tuple[Tensor, Tensor, Tensor]:
    """Means and standard deviations (5, 40), and targets that lie inside and outside of the intervals."""
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(5, 40, generator=generator, dtype=torch.float64)
    stds = 0.2 + torch.rand(5, 40, generator=generator, dtype=torch.float64)
    return means, stds, 2 * torch.randn(40, generator=generator, dtype=torch.float64)


def test_scores_are_those_of_the_mixture(mixture):
    means, stds, y = mixture
    normals = torch.distributions.Normal(means.T, stds.T)
    weights = torch.distributions.Categorical(torch.ones(40, 5))
    joint = torch.distributions.MixtureSameFamily(weights, normals)
    scores = mixture_scores(means, stds, y)
    assert tuple(scores) == SCORES
    assert scores["rmse"] == pytest.approx(float((y - joint.mean).square().mean().sqrt()))
    assert scores["log_likelihood"] == pytest.approx(float(joint.log_prob(y).mean()), abs=1e-6)
    assert mixture_log_likelihood(means, stds, y) == scores["log_likelihood"]
    inside = ((joint.cdf(y) - 0.5).abs() <= LEVEL / 2).double().mean()
    assert 0 < scores["coverage"] < 1
    assert scores["coverage"] == float(inside)


def test_scores_are_those_of_the_library_where_it_has_them(mixture):
    """Networks of one prediction share their noise there; here the members of an ensemble have their own."""
    means, _, y = mixture
    prediction = bayes.Prediction.from_outputs(means, Gaussian(0.7, learn=False))
    expected = bayes.evaluate(prediction, y, levels=(LEVEL,))
    assert isinstance(expected, bayes.NumberScores)
    scores = mixture_scores(means, torch.tensor(0.7), y)
    assert scores["rmse"] == pytest.approx(expected.rmse)
    assert scores["log_likelihood"] == pytest.approx(-expected.nll)
    assert scores["crps"] == pytest.approx(expected.crps)
    assert [scores["coverage"]] == pytest.approx([*expected.coverage.values()])


def test_the_crps_is_its_integral(mixture):
    means, stds, y = (values[..., :6] for values in mixture)
    found = mixture_crps(means, stds, y)
    for n in range(6):

        def gap(t: float, n: int = n) -> float:
            below = stats.norm.cdf(t, means[:, n], stds[:, n]).mean()
            return (below - (t >= float(y[n]))) ** 2

        ends = (-20, float(y[n]), 20)
        expected = sum(integrate.quad(gap, a, b, limit=200)[0] for a, b in pairwise(ends))
        assert float(found[n]) == pytest.approx(expected, abs=1e-6)


def test_the_crps_does_not_depend_on_how_many_rows_are_computed_at_once(mixture, monkeypatch):
    whole = mixture_crps(*mixture)
    monkeypatch.setattr("flipout.experiments.uci.scores._LARGEST", 25 * 7)
    assert torch.allclose(mixture_crps(*mixture), whole)


def test_one_normal_distribution():
    y = torch.tensor([0.0, 1.7])
    scores = mixture_scores(torch.zeros(1, 2), torch.ones(()), y)
    assert scores["coverage"] == 0.5
    assert scores["log_likelihood"] == pytest.approx(-math.log(2 * math.pi) / 2 - 1.7**2 / 4)
    # Gneiting and Raftery (2007): at the mean of N(0, 1) the CRPS is (√2 − 1) / √π.
    assert float(mixture_crps(torch.zeros(1, 1), torch.ones(1, 1), torch.zeros(1))) == pytest.approx(
        (math.sqrt(2) - 1) / math.sqrt(math.pi)
    )
