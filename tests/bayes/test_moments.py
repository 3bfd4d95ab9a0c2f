"""The sums of a prediction equal what their formulas say, written out sample by sample."""

from itertools import combinations

import pytest
import torch
from torch import Tensor

from flipout.bayes._moments import Moments, quantiles_of
from flipout.bayes.likelihoods import Bernoulli, Gaussian

SAMPLES = torch.randn(11, 3, 2, generator=torch.Generator().manual_seed(0))
PARTS = [(11,), (1, 4, 2, 4), (6, 5)]


def summed(samples: Tensor, group: int, parts: tuple[int, ...], antithetic: bool = False) -> Moments:
    moments = Moments(None, group, most=float("inf"), antithetic=antithetic)
    for part in samples.split(list(parts)):
        moments.add(part)
    return moments


def by_definition(samples: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Return the jackknife's standard error, and half the mean squared difference of samples of different bases."""
    exact, count = samples.double(), len(samples)
    bases = exact.split(group)
    left_out = torch.stack([(exact.sum(0) - base.sum(0)) / (count - len(base)) for base in bases])
    error = ((left_out - exact.mean(0)).square().sum(0) * (len(bases) - 1) / len(bases)).sqrt()
    pairs = [(i, j) for i, j in combinations(range(count), 2) if i // group != j // group]
    return error, torch.stack([(exact[i] - exact[j]).square() / 2 for i, j in pairs]).mean(0)


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("group", [1, 3, 4, 10])  # of 11 samples, so that the last base is smaller
def test_moments_of_bases(group: int, parts: tuple[int, ...]) -> None:
    moments = summed(SAMPLES, group, parts)
    error, variance = by_definition(SAMPLES, group)
    torch.testing.assert_close(moments.results()["mean"], SAMPLES.mean(0))
    torch.testing.assert_close(moments.standard_error(), error)
    torch.testing.assert_close(moments.variance(), variance)


def test_full_bases_take_the_short_formula() -> None:
    error, variance = by_definition(SAMPLES[:8], 4)
    moments = summed(SAMPLES[:8], 4, (3, 5))
    torch.testing.assert_close(moments.standard_error(), error)
    torch.testing.assert_close(moments.variance(), variance)


def test_one_base_has_a_variance_and_no_standard_error() -> None:
    moments = summed(SAMPLES, 16, (11,))
    assert moments.standard_error().isnan().all()
    torch.testing.assert_close(moments.variance(), SAMPLES.double().var(0))
    assert summed(SAMPLES[:1], 16, (1,)).variance().isnan().all()


def test_mirrored_samples_of_one_base_are_compared_between_pairs() -> None:
    moments = summed(SAMPLES[:10], 10, (4, 6), antithetic=True)
    torch.testing.assert_close(moments.variance(), by_definition(SAMPLES[:10], 2)[1])


def test_a_large_mean_cancels_nothing() -> None:
    moments = summed(SAMPLES.double() + 1e6, 3, (11,))
    torch.testing.assert_close(moments.variance(), by_definition(SAMPLES, 3)[1], rtol=1e-6, atol=0)


def test_noise_of_a_likelihood_is_added() -> None:
    moments = Moments(Gaussian(0.5, learn=False), 1, most=0)
    moments.add(SAMPLES)
    found = moments.results()
    torch.testing.assert_close(found["aleatoric"], torch.full((3, 2), 0.25))
    torch.testing.assert_close(found["total"], found["aleatoric"] + SAMPLES.var(0))


def test_entropies_split_into_noise_and_mutual_information() -> None:
    moments = Moments(Bernoulli(), 1, most=0)
    moments.add(SAMPLES)
    p, found = SAMPLES.double().sigmoid(), moments.results()

    def entropy(p: Tensor) -> Tensor:
        return torch.distributions.Bernoulli(p).entropy()

    torch.testing.assert_close(found["total"].double(), entropy(p.mean(0)), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found["aleatoric"].double(), entropy(p).mean(0), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found["epistemic"], found["total"] - found["aleatoric"], rtol=1e-4, atol=1e-6)


def test_outputs_are_kept_up_to_a_number() -> None:
    kept, dropped = (Moments(None, 1, most=most) for most in (66, 65))
    for moments in (kept, dropped):
        for part in SAMPLES.split(4):
            moments.add(part)
    found = kept.outputs()
    assert found is not None
    assert torch.equal(found, SAMPLES)
    assert dropped.outputs() is None


def test_quantiles_are_linear_between_samples() -> None:
    levels = [0.0, 0.05, 0.5, 0.77, 1.0]
    torch.testing.assert_close(quantiles_of(SAMPLES, levels), SAMPLES.quantile(torch.tensor(levels), 0))
    torch.testing.assert_close(summed(SAMPLES, 3, (11,)).quantiles([0.5])[0], SAMPLES.median(0).values)


def test_a_quantile_of_nan_is_nan() -> None:
    samples = SAMPLES.clone()
    samples[4, 1, 0] = torch.nan
    found = quantiles_of(samples, [0.1])[0]
    assert found[1, 0].isnan()
    assert found.isnan().sum() == 1
