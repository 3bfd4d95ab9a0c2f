"""predict(): samples follow the posterior, and standard errors are honest."""

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flipout
from flipout.bayes import predict
from flipout.bayes._moments import Moments
from flipout.errors import AsymmetricDistribution, InvalidArgument
from tests import many_draws
from tests.bayes.test_predict import NOISE, Squares, X, bayesian, same
from tests.statistics import (
    assert_covariance,
    assert_mean,
    assert_probability,
    assert_same_distribution,
    assert_same_mean,
    squared_deviations,
)


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
    samples = predict(model, X, 4000, likelihood="categorical", group=1, keep=True, seed=0).samples
    assert samples is not None
    assert_same_distribution(samples, brute_force(model, X, 4000))


def covered(model: nn.Module, x: Tensor, truth: Tensor, trials: int, samples: int, **how: Any) -> tuple[Tensor, Tensor]:
    """(entries,): how often the 90 % interval has the truth, and how often one of independent samples would."""

    def covered(seed: Tensor) -> tuple[Tensor, Tensor]:
        prediction = predict(model, x, samples, seed=seed, keep=True, **how)
        low, high = prediction.mean_interval(0.9)
        assert prediction.samples is not None
        naive = prediction.samples.std(0) / math.sqrt(samples) * 1.65
        return (low <= truth) & (truth <= high), (prediction.mean - truth).abs() <= naive

    clustered, naive = torch.func.vmap(covered)(many_draws.seeds(trials))
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


SCHEMES = ["shared", "flipout", flipout.Flipout(group=3), flipout.Flipout(reuse_signs=True), "independent"]
GAUSSIAN = ["local_reparam", flipout.LocalReparam(per_position=True)]
DISTRIBUTIONS = {
    flipout.Gaussian(0.5): [*SCHEMES, *GAUSSIAN, "low_rank", "rank_one"],
    flipout.MultiplicativeGaussian(0.5): [*SCHEMES, *GAUSSIAN],
    flipout.MeanField(std=0.5): [*SCHEMES, *GAUSSIAN],
    flipout.Rademacher(0.5): SCHEMES,
    flipout.DropConnect(0.5): SCHEMES,
    flipout.DropConnect(0.3): ["shared", "independent"],
}


def variance_of(noise: Any, mean: Tensor) -> Tensor:
    if isinstance(noise, flipout.DropConnect):
        assert isinstance(noise.p, float)
        return mean.square() * noise.p / (1 - noise.p)
    return (noise.std * (mean if isinstance(noise, flipout.MultiplicativeGaussian) else torch.ones_like(mean))) ** 2


@pytest.mark.parametrize("joint", [False, True], ids=["apart", "joint"])
@pytest.mark.parametrize("noise", DISTRIBUTIONS, ids=str)
def test_the_scheme_of_training_changes_no_prediction(noise: Any, joint: bool) -> None:
    torch.manual_seed(0)
    net = Squares().double()
    settings: dict[str, Any] = {"seed": 3, "joint": joint, "keep": True, "quantiles": (0.5,)}
    models = [flipout.perturb(copy.deepcopy(net), noise, scheme=scheme) for scheme in DISTRIBUTIONS[noise]]
    first, *others = (predict(model, X, 20, **settings) for model in models)
    for prediction in others:
        same(prediction, first)


@pytest.mark.parametrize("joint", [False, True], ids=["apart", "joint"])
@pytest.mark.parametrize("noise", DISTRIBUTIONS, ids=str)
def test_every_noise_has_its_mean_and_an_honest_error(noise: Any, joint: bool) -> None:
    """E Σ (W x)² = Σ (W̄ x)² + Σ Var(W) x², by repeated runs: the mean is that, the mean of the squared standard error
    is the variance of the mean over runs, and the t interval has the truth as often as it says."""
    torch.manual_seed(0)
    model: Any = flipout.perturb(Squares().double(), noise, scheme="shared")
    weight = model.layer.weight.detach()
    truth = (X @ weight.T).square().sum(1) + (variance_of(noise, weight) @ X.square().T).sum(0)

    def trial(seed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        prediction = predict(model, X, 96, seed=seed, joint=joint)
        low, high = prediction.mean_interval(0.9)
        return prediction.mean, prediction.standard_error.square(), (low <= truth) & (truth <= high)

    mean, squares, inside = torch.func.vmap(trial)(many_draws.seeds(1500))
    assert_mean(mean, truth)
    assert_same_mean(squares, squared_deviations(mean))
    for found in inside.sum(0):
        assert 0.86 < int(found) / 1500 < 0.93  # ten to twelve bases are not quite normal


@pytest.mark.parametrize("noise", [flipout.Gaussian(0.5), flipout.DropConnect(0.5), flipout.DropConnect(0.3)], ids=str)
def test_inputs_share_weights_only_where_they_are_joint(noise: Any) -> None:
    """Of a linear map: the covariance of two inputs is Σ Var(W) x_i x_j, or none."""
    torch.manual_seed(0)
    model: Any = flipout.perturb(nn.Linear(4, 1).double(), noise, scheme="shared")
    apart, joint = (predict(model, X, 4000, joint=joint, keep=True, seed=1).samples for joint in (False, True))
    assert apart is not None
    assert joint is not None
    covariance = (X * variance_of(noise, model.weight.detach())) @ X.T
    assert_covariance(joint.squeeze(-1), covariance)
    assert_covariance(apart.squeeze(-1), covariance.diag().diag())


def test_standard_errors_are_honest_against_brute_force() -> None:
    model = bayesian()
    truth = brute_force(model, X, 400_000).mean(0)
    clustered, _ = covered(model, X, truth, 1000, 192, likelihood="categorical")
    for found in clustered:
        assert_probability(int(found), 1000, 0.9)


def test_the_clustered_error_by_hand() -> None:
    prediction = predict(bayesian(), X, 20, keep=True, group=8, seed=1)
    assert prediction.samples is not None
    parts = prediction.samples.split(8)
    deviations = [(part - prediction.mean).sum(0) for part in parts]
    assert prediction.bases == len(parts) == 3
    others = [d / (1 - len(part) / 20) for part, d in zip(parts, deviations, strict=True)]
    expected = (2 / 3 * torch.stack(others).square().sum(0)).sqrt() / 20
    torch.testing.assert_close(prediction.standard_error, expected)
    torch.testing.assert_close(prediction.mean, prediction.samples.mean(0))
    low, high = prediction.mean_interval(0.95)
    torch.testing.assert_close((high - low) / 2, 4.302652729911275 * expected)  # Student's t, 2 degrees of freedom


def test_one_base_says_nothing_of_the_error() -> None:
    prediction = predict(bayesian(), X, 8)
    assert prediction.standard_error.isnan().all()
    with pytest.warns(RuntimeWarning, match="share one base"):
        assert prediction.mean_interval()[0].isnan().all()
    assert "bases=1" in repr(prediction)
    assert prediction.mean.isfinite().all()
    for likelihood in (None, "categorical"):
        assert predict(bayesian(), X, 1, likelihood=likelihood).epistemic.isnan().all()


@pytest.mark.parametrize("samples", [9, 10, 17])
def test_standard_errors_are_honest_where_the_last_base_is_not_full(samples: int) -> None:
    """Samples that a base has in common, and samples that are all apart: the mean of the squared error is no larger
    than that of the standard error, which the jackknife promises."""
    generator = torch.Generator().manual_seed(samples)
    for common in (0.0, 1.0):
        trials = 4000
        of_members = torch.randn(samples, trials, dtype=torch.float64, generator=generator)
        bases = torch.randn(3, trials, dtype=torch.float64, generator=generator)[torch.arange(samples) // 8]
        found = Moments(None, 8, 0)
        found.add(common * bases + (1 - common) * of_members)
        results = found.results()
        error, claimed = results["mean"].square(), results["standard_error"].square()
        assert (error - claimed).mean() <= 4 * (error - claimed).std() / trials**0.5


def mirrored_linear(noise: Any = NOISE) -> Any:
    torch.manual_seed(0)
    return flipout.perturb(nn.Linear(4, 2).double(), noise).eval()


@pytest.mark.parametrize("joint", [False, True], ids=["apart", "joint"])
@pytest.mark.parametrize("noise", [NOISE, flipout.LowRankNormal(rank=2), flipout.DropConnect(0.5)], ids=str)
def test_a_sample_is_followed_by_its_mirror_image(noise: Any, joint: bool) -> None:
    """Of a linear map the two deviate from the mean by the same amount; pairs, and samples of pairs, differ."""
    model = mirrored_linear(noise)
    prediction = predict(model, X, 20, antithetic=True, joint=joint, seed=1)
    assert prediction.antithetic
    assert prediction.samples is not None
    deviations = (prediction.samples - model(X)).unflatten(0, (10, 2))
    torch.testing.assert_close(deviations[:, 0], -deviations[:, 1])
    assert (deviations[1:, 0] - deviations[:1, 0]).abs().amin(0).max() > 1e-3
    for chunk in (4, 7, 30):
        chunked = predict(model, X, 20, antithetic=True, joint=joint, seed=1, chunk=chunk)
        torch.testing.assert_close(chunked.samples, prediction.samples)
    half = predict(model, X, 10, group=4, joint=joint, seed=1)
    assert half.samples is not None
    torch.testing.assert_close(half.samples, prediction.samples[::2])


def test_the_mean_of_a_linear_map_is_exact_and_its_variance_unbiased() -> None:
    """16 mirrored samples have 8 squares. The usual estimate takes them for 16 with a mean of their own: 16/15."""
    model = mirrored_linear()
    theory = 0.25 * X.square().sum(1, keepdim=True).expand(5, 2)
    for samples in (16, 8, 12):  # two bases, a single one, and one that is not full

        def moments(seed: Tensor, samples: int = samples) -> tuple[Tensor, Tensor]:
            prediction = predict(model, X, samples, antithetic=True, seed=seed)
            assert prediction.samples is not None
            return prediction.epistemic, prediction.samples.var(0)

        variance, usual = torch.func.vmap(moments)(many_draws.seeds(4000))
        assert_mean(variance, theory)
        assert_mean(usual, theory * samples / (samples - 1))
    prediction = predict(model, X, 16, antithetic=True, seed=1)
    torch.testing.assert_close(prediction.mean, model(X))
    torch.testing.assert_close(prediction.standard_error, torch.zeros(5, 2).double(), atol=1e-7, rtol=0)
    assert predict(model, X, 2, antithetic=True).epistemic.isnan().all()


@pytest.mark.parametrize("samples", [32, 20])
def test_the_variance_over_pairs_is_unbiased(samples: int) -> None:
    """Var Σ (w x)² = Σ 2 s⁴ + 4 (w̄ x)² s², s² = σ² |x|², of which pairs share the first part."""
    model: Any = flipout.perturb(Squares().double(), NOISE).eval()
    spread = 0.25 * X.square().sum(1, keepdim=True)
    theory = (2 * spread**2 + 4 * model.layer(X).square() * spread).sum(1)
    seeds = many_draws.seeds(8000)
    found = torch.func.vmap(lambda seed: predict(model, X, samples, antithetic=True, seed=seed).epistemic)(seeds)
    assert_mean(found, theory)


def test_standard_errors_of_pairs_are_honest() -> None:
    model: Any = flipout.perturb(Squares().double(), NOISE)
    truth = (model.eval()(X) + 8 * 0.25 * X.square().sum(1)).detach()
    clustered, _ = covered(model, X, truth, 2000, 192, antithetic=True)
    for found in clustered:
        assert_probability(int(found), 2000, 0.9)


def test_bad_pairs() -> None:
    with pytest.raises(InvalidArgument, match=r"predict\(samples=5, antithetic=True\): samples come in pairs\. Use 6"):
        predict(bayesian(), X, 5, antithetic=True)
    with pytest.raises(InvalidArgument, match=r"predict\(group=3, antithetic=True\).*Use group=4"):
        predict(bayesian(), X, 8, antithetic=True, group=3)
    with pytest.raises(AsymmetricDistribution, match="the mirror image of a draw has another distribution"):
        predict(bayesian(flipout.DropConnect(0.3), scheme="shared"), X, 8, antithetic=True)
    with pytest.warns(RuntimeWarning, match="after most=34 samples"):
        assert predict(bayesian(), X, "auto", antithetic=True, tolerance=1e-9, most=35).count == 34
