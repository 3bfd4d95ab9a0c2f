"""predict(): samples follow the posterior, and standard errors are honest."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flipout
from flipout.bayes import predict
from flipout.bayes.moments import Moments
from tests import draws
from tests.bayes.test_predictive import NOISE, Squares, X, bayesian
from tests.statistics import assert_probability, assert_same_distribution


def brute_force(model: Any, x: Tensor, count: int) -> Tensor:
    """(count, N, classes): probabilities under weights from torch's own generator."""
    parameters = dict(model.named_parameters())
    generator, h = torch.Generator().manual_seed(11), x.expand(count, *x.shape)
    for i in (0, 2):
        mean, std = parameters[f"{i}.weight"], F.softplus(parameters[f"{i}.weight_rho"])
        noise = torch.randn(count, *mean.shape, generator=generator, dtype=mean.dtype)
        h = h @ (mean + std * noise).mT + parameters[f"{i}.bias"]
        h = h.tanh() if i == 0 else h.softmax(-1)
    return h.detach()


def test_samples_follow_the_posterior() -> None:
    model = bayesian()
    made = predict(model, X, 4000, likelihood="categorical", group=1, keep=True, seed=0).samples
    assert made is not None
    assert_same_distribution(made, brute_force(model, X, 4000))


def covered(model: nn.Module, x: Tensor, truth: Tensor, trials: int, samples: int, **how: Any) -> tuple[Tensor, Tensor]:
    """(entries,): how often the 90 % interval has the truth, and how often one of independent samples would."""

    def one(seed: Tensor) -> tuple[Tensor, Tensor]:
        made = predict(model, x, samples, seed=seed, keep=True, **how)
        low, high = made.interval(0.9)
        assert made.samples is not None
        naive = made.samples.std(0) / math.sqrt(samples) * 1.65
        return (low <= truth) & (truth <= high), (made.mean - truth).abs() <= naive

    clustered, naive = torch.func.vmap(one)(draws.seeds(trials))
    return clustered.sum(0).flatten(), naive.sum(0).flatten()


def test_standard_errors_are_honest_where_the_mean_is_known() -> None:
    """E Σ (W x)² = Σ (W̄ x)² + 8 Σ σ² x². The t interval over 24 bases, which are nearly normal, has it in 90 % of runs;
    samples of one base are correlated, so that one that takes them for independent has it less often."""
    model: Any = flipout.perturb(Squares().double(), NOISE)
    truth = model.eval()(X) + 8 * 0.25 * X.square().sum(1)
    clustered, _ = covered(model, X, truth.detach(), 2000, 192)
    for found in clustered:
        assert_probability(int(found), 2000, 0.9)
    _, naive = covered(model, X, truth.detach(), 1000, 192, group=192)
    assert naive.max() < 0.7 * 1000


def test_standard_errors_are_honest_against_brute_force() -> None:
    model = bayesian()
    truth = brute_force(model, X, 400_000).mean(0)
    clustered, _ = covered(model, X, truth, 1000, 192, likelihood="categorical")
    for found in clustered:
        assert_probability(int(found), 1000, 0.9)


def test_the_clustered_error_by_hand() -> None:
    made = predict(bayesian(), X, 20, keep=True, group=8, seed=1)
    assert made.samples is not None
    parts = made.samples.split(8)
    deviations = [(part - made.mean).sum(0) for part in parts]
    assert made.bases == len(parts) == 3
    others = [d / (1 - len(part) / 20) for part, d in zip(parts, deviations, strict=True)]
    expected = (2 / 3 * torch.stack(others).square().sum(0)).sqrt() / 20
    torch.testing.assert_close(made.standard_error, expected)
    torch.testing.assert_close(made.mean, made.samples.mean(0))
    low, high = made.interval(0.95)
    torch.testing.assert_close((high - low) / 2, 4.302652729911275 * expected)  # Student's t, 2 degrees of freedom


def test_one_base_says_nothing_of_the_error() -> None:
    made = predict(bayesian(), X, 8)
    assert made.standard_error.isnan().all()
    with pytest.warns(RuntimeWarning, match="share one base"):
        assert made.interval()[0].isnan().all()
    assert "bases=1" in repr(made)
    assert made.mean.isfinite().all()
    assert predict(bayesian(), X, 1).epistemic.isnan().all()


@pytest.mark.parametrize("samples", [9, 10, 17])
def test_standard_errors_are_honest_where_the_last_base_is_not_full(samples: int) -> None:
    """Samples that a base has in common, and samples that are all apart: the mean of the squared error is no larger
    than that of the standard error, which the jackknife promises."""
    generator = torch.Generator().manual_seed(samples)
    for common in (0.0, 1.0):
        trials = 4000
        own = torch.randn(samples, trials, dtype=torch.float64, generator=generator)
        bases = torch.randn(3, trials, dtype=torch.float64, generator=generator)[torch.arange(samples) // 8]
        found = Moments(None, 8, False)
        found.add(common * bases + (1 - common) * own)
        made = found.results()
        error, claimed = made["mean"].square(), made["standard_error"].square()
        assert (error - claimed).mean() <= 4 * (error - claimed).std() / trials**0.5
