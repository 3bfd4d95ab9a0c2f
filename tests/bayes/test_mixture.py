"""Targets of a mixture over weight samples, against torch.distributions and against samples."""

import math

import pytest
import torch
import torch.distributions as td
from scipy import stats
from torch import Tensor

from flipout import errors
from flipout.bayes import likelihoods
from flipout.bayes._mixture import Mixture, likeliest_classes
from tests.statistics import assert_distributed, assert_frequencies

OUTPUTS = torch.randn(7, 5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
Y = torch.randn(5, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


class Laplace(likelihoods.Likelihood):
    """A likelihood of a user, with samples and without a cdf."""

    entropic = False

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        return td.Laplace(output, 0.5).log_prob(target)

    def mean(self, output: Tensor) -> Tensor:
        return output

    def noise(self, mean: Tensor) -> Tensor:
        return torch.full_like(mean, 0.5)

    def sample(self, output: Tensor, generator: torch.Generator | None = None) -> Tensor:
        uniform = torch.rand(output.shape, dtype=output.dtype, generator=generator) - 0.5
        return output - 0.5 * uniform.sign() * torch.log1p(-2 * uniform.abs())


class Silent(Laplace):
    """One that says nothing of how to draw a target."""

    sample = likelihoods.Likelihood.sample


def heteroscedastic() -> tuple[Mixture, td.Distribution]:
    mean, log_std = OUTPUTS.movedim(0, 1).unsqueeze(1).unbind(-1)
    truth = td.MixtureSameFamily(td.Categorical(torch.ones(5, 1, 7).double()), td.Normal(mean, log_std.exp()))
    return Mixture(likelihoods.HeteroscedasticGaussian(), OUTPUTS), truth


def test_gaussian_noise_that_differs_by_sample() -> None:
    mixture, truth = heteroscedastic()
    torch.testing.assert_close(mixture.log_prob(Y), truth.log_prob(Y))
    torch.testing.assert_close(mixture.cdf(Y), truth.cdf(Y))
    for probability in (1e-6, 0.05, 0.5, 0.95, 1 - 1e-6):
        quantile = mixture.quantile(probability)
        torch.testing.assert_close(truth.cdf(quantile), torch.full_like(quantile, probability), rtol=1e-8, atol=1e-13)


def test_gaussian_noise_for_each_feature() -> None:
    std = torch.tensor([0.1, 3.0], dtype=torch.float64)
    mixture = Mixture(likelihoods.Gaussian(std), OUTPUTS)
    components = td.Normal(OUTPUTS.movedim(0, -1), std[:, None])
    truth = td.MixtureSameFamily(td.Categorical(torch.ones(5, 2, 7)), components)
    target = OUTPUTS.mean(0) + 0.5
    torch.testing.assert_close(mixture.log_prob(target), truth.log_prob(target))
    torch.testing.assert_close(truth.cdf(mixture.quantile(0.9)), torch.full((5, 2), 0.9, dtype=torch.float64))


def test_well_separated_components_have_a_quantile_between_them() -> None:
    """Two Gaussians 2,000 standard deviations apart: the median lies in the gap, where the cdf is flat at 1/2."""
    mixture = Mixture(likelihoods.Gaussian(0.001), torch.tensor([[[-1.0]], [[1.0]]]))
    assert -1 < mixture.quantile(0.5).item() < 1
    assert mixture.quantile(0.25).item() == pytest.approx(-1, abs=1e-4)


def test_noise_that_is_lost_in_the_rounding_of_the_mean() -> None:
    mixture = Mixture(likelihoods.Gaussian(1e-12), torch.full((2, 1), 1e6, dtype=torch.float64))
    assert mixture.quantile(0.05).item() == pytest.approx(1e6, rel=1e-14)


def test_a_cdf_that_contradicts_the_noise_is_refused() -> None:
    class Wide(Laplace):
        def cdf(self, output: Tensor, target: Tensor) -> Tensor:
            return td.Laplace(output, 100.0).cdf(target)

    with pytest.raises(errors.Unsupported, match="cdf of Wide does not agree with its mean and its noise"):
        Mixture(Wide(), torch.zeros(2, 3, dtype=torch.float64)).quantile(0.05)


def test_counts_have_whole_quantiles() -> None:
    log_rates = torch.linspace(-2, 4, 12).view(3, 4).double()
    mixture = Mixture(likelihoods.Poisson(), log_rates)
    counts = torch.arange(400.0, dtype=torch.float64)
    every = td.Poisson(log_rates.exp()).log_prob(counts[:, None, None]).exp().mean(1)  # (counts, N)
    below = every.cumsum(0)
    for k in (0, 1, 7, 60):
        torch.testing.assert_close(mixture.cdf(torch.full((4,), float(k))), below[k])
        torch.testing.assert_close(mixture.log_prob(torch.full((4,), float(k))), every[k].log())
    assert not mixture.cdf(torch.full((4,), -1.0)).any()
    for probability in (0.001, 0.05, 0.5, 0.95, 0.999):
        expected = (below < probability).sum(0).double()
        assert torch.equal(mixture.quantile(probability), expected)


def test_quantiles_come_from_samples_without_a_cdf() -> None:
    outputs = torch.zeros(1, 3, dtype=torch.float64)
    mixture = Mixture(Laplace(), outputs)
    for probability in (0.1, 0.5, 0.9):
        truth = td.Laplace(0.0, 0.5).icdf(torch.tensor(probability)).item()
        density = math.exp(td.Laplace(0.0, 0.5).log_prob(torch.tensor(truth)).item())
        error = math.sqrt(probability * (1 - probability) / 4096) / density
        assert (mixture.quantile(probability) - truth).abs().max() < 5 * error
        assert torch.equal(mixture.quantile(probability), mixture.quantile(probability))
    with pytest.raises(errors.Unsupported, match=r"Laplace has no cdf\(output, target\)\. Define it"):
        mixture.cdf(outputs[0])
    with pytest.raises(errors.Unsupported, match=r"Silent has no sample"):
        Mixture(Silent(), outputs).quantile(0.5)


def test_samples_follow_the_mixture() -> None:
    mixture, _ = heteroscedastic()
    drawn = mixture.sample(20_000, torch.Generator().manual_seed(0))
    assert drawn.shape == (20_000, 5, 1)
    # A target put into its own cdf is uniform. `test_gaussian_noise_that_differs_by_sample` compares the cdf.
    of_first = Mixture(mixture.likelihood, OUTPUTS[:, :1].expand(-1, 20_000, -1))
    assert_distributed(of_first.cdf(drawn[:, 0]), stats.uniform)
    classes = Mixture(likelihoods.Categorical(), OUTPUTS)
    drawn = classes.sample(20_000, torch.Generator().manual_seed(1))
    assert_frequencies(drawn[:, 0].bincount(minlength=2), OUTPUTS[:, 0].softmax(-1).mean(0))
    coins = Mixture(likelihoods.Bernoulli(), OUTPUTS).sample(20_000, torch.Generator().manual_seed(1))
    p = OUTPUTS[:, 0, 0].sigmoid().mean()
    assert_frequencies(coins[:, 0, 0].long().bincount(minlength=2), torch.stack((1 - p, p)))
    counts = Mixture(likelihoods.Poisson(), OUTPUTS).sample(20_000, torch.Generator().manual_seed(1))
    assert abs(counts[:, 0, 0].mean() - OUTPUTS[:, 0, 0].exp().mean()) < 0.1


def test_a_draw_has_one_function_for_all_inputs() -> None:
    mixture = Mixture(likelihoods.Gaussian(1e-6), torch.tensor([[[0.0], [0.0]], [[1.0], [1.0]]]))
    drawn = mixture.sample(100).round()
    assert torch.equal(drawn[:, 0], drawn[:, 1])
    assert 20 < drawn[:, 0].sum() < 80


def test_sets_of_the_likeliest_classes() -> None:
    p = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.0, 1.0, 0.0]], dtype=torch.float64)
    expected = {
        0.5: [[1, 0, 0], [0, 1, 0], [1, 0, 1], [0, 1, 0]],
        0.75: [[1, 1, 0], [0, 1, 0], [1, 1, 1], [0, 1, 0]],
        0.95: [[1, 1, 1], [1, 1, 1], [1, 1, 1], [0, 1, 0]],
    }
    for level, sets in expected.items():
        assert likeliest_classes(p, level).int().tolist() == sets


def test_outputs_that_are_not_finite_stay_so() -> None:
    outputs = OUTPUTS.clone()
    outputs[2, 0] = math.nan
    quantile = Mixture(likelihoods.Gaussian(), outputs).quantile(0.9)
    assert quantile[0].isnan().all()
    assert quantile[1:].isfinite().all()
