"""Prediction: which interval holds what, targets drawn from it, other units, and what it refuses."""

import math
from itertools import product
from typing import Any

import pytest
import torch
from scipy import stats
from torch import nn

import flipout
from flipout.bayes import Normal, NumberScores, Prediction, evaluate, likelihoods, predict
from flipout.errors import InvalidArgument, InvalidInput, Unsupported
from tests.bayes.test_mixture import Laplace, Silent
from tests.bayes.test_predict import X, bayesian, same
from tests.statistics import assert_probability, assert_variance

NOISE = flipout.MeanField(std=0.5, prior=Normal())


def linear(**how: Any) -> Prediction:
    torch.manual_seed(0)
    model = flipout.perturb(nn.Linear(4, 1).double(), NOISE)
    return predict(model, X, 4096, likelihood=likelihoods.Gaussian(0.7), seed=1, **how)


def test_three_intervals_of_a_linear_map() -> None:
    """y = W x + noise: the function has the variance 0.25 |x|², the target 0.49 more, and the mean's error vanishes."""
    prediction = linear()
    function = 0.5 * X.norm(dim=1, keepdim=True)
    target = (function.square() + 0.49).sqrt()
    for interval, std in ((prediction.interval, target), (prediction.function_interval, function)):
        low, high = interval(0.9)
        torch.testing.assert_close(high - low, 2 * 1.6448536 * std, rtol=0.06, atol=0)
        torch.testing.assert_close((high + low) / 2, prediction.mean, rtol=0, atol=0.15)
    low, high = prediction.mean_interval(0.9)
    assert (high - low < 0.08 * function).all()


def test_the_target_is_inside_as_often_as_the_interval_says() -> None:
    """Weights and noise drawn again, from torch's own generator: 90 % of the targets are inside."""
    prediction = linear()
    generator = torch.Generator().manual_seed(8)
    torch.manual_seed(0)
    mean = nn.Linear(4, 1).double()
    weights = mean.weight + 0.5 * torch.randn(20_000, 4, generator=generator, dtype=torch.float64)
    noise = 0.7 * torch.randn(20_000, 5, generator=generator, dtype=torch.float64)
    targets = (weights @ X.T + mean.bias + noise).unsqueeze(-1)
    low, high = prediction.interval(0.9)
    inside = ((low <= targets) & (targets <= high)).double().mean(0)
    assert (inside - 0.9).abs().max() < 0.015  # 4096 samples make the quantiles' own error 0.005
    drawn = prediction.sample(20_000, generator)
    for found in ((low <= drawn) & (drawn <= high)).sum(0).flatten():
        assert_probability(int(found), 20_000, 0.9)


def test_intervals_of_classes_are_sets() -> None:
    prediction = predict(bayesian(), X, 20, likelihood="categorical", seed=1)
    inside = prediction.interval(0.8)
    assert isinstance(inside, torch.Tensor)
    assert inside.dtype == torch.bool
    assert inside.shape == prediction.mean.shape
    probability = (prediction.mean * inside).sum(1)
    assert (probability >= 0.8).all()
    smallest = prediction.mean.masked_fill(~inside, math.inf).amin(1)
    assert (probability - smallest < 0.8).all()
    coins = predict(bayesian(), X, 20, likelihood="bernoulli", seed=1)
    sets = coins.interval(0.8)
    assert isinstance(sets, torch.Tensor)
    assert sets.shape == (5, 3, 2)
    assert torch.equal(sets[..., 1], coins.mean > 0.2)


def test_intervals_of_counts_hold_at_least_the_level() -> None:
    prediction = predict(bayesian(), X, 64, likelihood="poisson", seed=1)
    low, high = prediction.interval(0.9)
    assert torch.equal(low, low.round())
    inside = prediction.cdf(high) - prediction.cdf(low - 1)
    assert (inside >= 0.9).all()
    assert ((low == 0) | (prediction.cdf(low - 1) < 0.05)).all()


def test_log_prob_of_classes_needs_no_samples() -> None:
    y = torch.tensor([0, 1, 2, 0, 1])
    kept, forgotten = (
        predict(bayesian(), X, 20, likelihood="categorical", seed=1, keep=keep) for keep in (True, False)
    )
    torch.testing.assert_close(kept.log_prob(y), kept.mean[torch.arange(5), y].log())
    torch.testing.assert_close(forgotten.log_prob(y), kept.log_prob(y))
    for found, expected in zip(forgotten.interval(), kept.interval(), strict=True):
        assert torch.equal(found, expected)
    assert forgotten.sample(7).shape == (7, 5)
    coins = predict(bayesian(), X, 20, likelihood="bernoulli", keep=False)
    torch.testing.assert_close(coins.log_prob(torch.ones(5, 3)), coins.mean.log())


def test_heteroscedastic_noise_is_part_of_the_uncertainty() -> None:
    torch.manual_seed(0)
    model = flipout.perturb(nn.Linear(4, 2).double(), NOISE)
    prediction = predict(model, X, 64, likelihood="heteroscedastic", seed=1)
    assert prediction.outputs is not None
    mean, log_std = prediction.outputs.chunk(2, -1)
    assert prediction.mean.shape == prediction.total.shape == (5, 1)
    torch.testing.assert_close(prediction.mean, mean.mean(0))
    torch.testing.assert_close(prediction.aleatoric, (2 * log_std).exp().mean(0))
    torch.testing.assert_close(prediction.samples, mean)
    torch.testing.assert_close(
        prediction.cdf(prediction.interval(0.9)[1]), torch.full((5, 1), 0.95, dtype=torch.float64)
    )


def test_further_training_does_not_change_a_prediction() -> None:
    likelihood = likelihoods.Gaussian(0.3)
    prediction = predict(bayesian(), X, 20, likelihood=likelihood, seed=1)
    before = prediction.interval(0.9)
    with torch.no_grad():
        likelihood.log_std.fill_(3.0)
    assert torch.equal(prediction.interval(0.9)[0], before[0])


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic", None])
def test_other_units(likelihood: Any) -> None:
    torch.manual_seed(0)
    model = flipout.perturb(nn.Linear(4, 2).double(), NOISE)
    noise = likelihoods.Gaussian(torch.tensor([0.3, 2.0])) if likelihood == "gaussian" else likelihood
    prediction = predict(model, X, 40, likelihood=noise, seed=1, quantiles=(0.1,))
    scaled = prediction.rescale(10.0, 3.0)
    torch.testing.assert_close(scaled.mean, 10 * prediction.mean + 3)
    torch.testing.assert_close(scaled.total, 100 * prediction.total)
    for name in ("mean_interval", "function_interval", *(["interval"] if likelihood else [])):
        for found, old in zip(getattr(scaled, name)(), getattr(prediction, name)(), strict=True):
            torch.testing.assert_close(found, 10 * old + 3)
    assert scaled.quantiles is not None
    if likelihood:
        y = prediction.mean + 0.2
        torch.testing.assert_close(scaled.log_prob(10 * y + 3), prediction.log_prob(y) - math.log(10))
        torch.testing.assert_close(scaled.cdf(10 * y + 3), prediction.cdf(y))
    for_each = prediction.rescale(torch.tensor([1.0, 2.0])) if likelihood != "heteroscedastic" else prediction
    torch.testing.assert_close(for_each.mean[:, 0], prediction.mean[:, 0])
    same(scaled.rescale(0.1, -0.3), prediction)


@pytest.mark.parametrize("likelihood", [None, likelihoods.Gaussian(0.3), "heteroscedastic"], ids=str)
def test_a_rescaled_prediction_keeps_its_shape(likelihood: Any) -> None:
    """Nothing is broadcast the wrong way: (N,) would turn a mean of shape (N, 1) into (N, N)."""
    prediction = Prediction.from_outputs(torch.randn(4, 5, 2 if likelihood == "heteroscedastic" else 1), likelihood)
    for arguments in ((2.0, torch.randn(5)), (torch.ones(3),), (1.0, torch.ones(4, 5, 1))):
        with pytest.raises(InvalidInput, match=r"rescale: a (scale|shift) of shape .* mean of shape \(5, 1\)"):
            prediction.rescale(*arguments)
    shift = torch.randn(5, 1)
    torch.testing.assert_close(prediction.rescale(2.0, shift).mean, 2 * prediction.mean + shift)


@pytest.mark.parametrize("shape", [(5,), (5, 1), (5, 2), (7, 3)], ids=str)
def test_one_scale_for_each_input(shape: tuple[int, ...]) -> None:
    """As for a target in the unit of its own input. The mixture is compared with scipy, input by input."""
    torch.manual_seed(0)
    outputs = torch.randn(4, *shape, dtype=torch.float64)
    scale = torch.rand(shape[0], dtype=torch.float64).view(-1, *[1] * (len(shape) - 1)) + 0.5
    prediction = Prediction.from_outputs(outputs, likelihoods.Gaussian(0.3)).rescale(scale, 1.0)
    means, stds = outputs * scale + 1, (0.3 * scale).expand(shape)
    y = prediction.mean + 0.2
    low, high = prediction.interval(0.8)
    log_prob, cdf, drawn = prediction.log_prob(y), prediction.cdf(y), prediction.sample(3)
    for place in product(*map(range, shape)):
        component: Any = stats.norm(means[:, *place].numpy(), float(stds[place]))
        assert float(log_prob[place]) == pytest.approx(
            math.log(component.pdf(float(y[place])).mean()), rel=1e-5, abs=1e-6
        )
        assert float(cdf[place]) == pytest.approx(component.cdf(float(y[place])).mean(), rel=1e-5)
        assert component.cdf(float(low[place])).mean() == pytest.approx(0.1, rel=1e-5)
        assert component.cdf(float(high[place])).mean() == pytest.approx(0.9, rel=1e-5)
    assert drawn.shape == (3, *shape)
    torch.testing.assert_close(prediction.rescale(1 / scale).total, prediction.total / scale.square())
    scores = evaluate(prediction, y)
    assert isinstance(scores, NumberScores)
    assert scores.nll == pytest.approx(-float(log_prob.mean()))
    crps = 0.0
    for i, number in enumerate(scale.flatten().tolist()):
        alone = Prediction.from_outputs(outputs[:, i : i + 1], likelihoods.Gaussian(0.3)).rescale(number, 1.0)
        of_input = evaluate(alone, y[i : i + 1])
        assert isinstance(of_input, NumberScores)
        crps += of_input.crps / shape[0]
    assert scores.crps == pytest.approx(crps)
    assert "unknown" not in str(prediction)
    ends = [line.partition("…")[0].split()[-1] for line in str(prediction).splitlines()[2:7]]
    assert [float(end) for end in ends] == pytest.approx(prediction.interval(0.9)[0].flatten()[:5].tolist(), rel=1e-3)


def test_targets_drawn_at_a_scale_for_each_input_have_it() -> None:
    scale = torch.tensor([[1.0], [4.0]])
    prediction = Prediction.from_outputs(torch.zeros(2, 2, 1), likelihoods.Gaussian(0.5)).rescale(scale)
    drawn = prediction.sample(20_000, torch.Generator().manual_seed(0))
    for i, std in enumerate((0.5, 2.0)):
        assert_variance(drawn[:, i, 0], std**2, kurtosis=3.0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_samples_in_half_precision_are_not_rounded_again(dtype: torch.dtype) -> None:
    """bf16 has a spacing of 4 at 1000, so intervals and other units are computed in single precision."""
    outputs = torch.randn(33, 4).to(dtype)
    half, single = Prediction.from_outputs(outputs), Prediction.from_outputs(outputs.float())
    for found, expected in ((half, single), (half.rescale(2.0, 1000.0), single.rescale(2.0, 1000.0))):
        for end, truth in zip(found.function_interval(0.83), expected.function_interval(0.83), strict=True):
            torch.testing.assert_close(end, truth, rtol=1e-7, atol=1e-6)


def test_a_noise_in_half_precision_is_rescaled_in_single() -> None:
    likelihood = likelihoods.Gaussian(torch.tensor([0.3, 0.7])).bfloat16()
    prediction = Prediction.from_outputs(torch.randn(3, 4, 2), likelihood)
    y = prediction.mean + 0.2
    torch.testing.assert_close(prediction.rescale(10.0).cdf(10 * y), prediction.cdf(y))


def test_probabilities_that_round_to_one() -> None:
    """Kept or not, a sure coin has the log-probability 0 of the side that it shows."""
    model = flipout.perturb(nn.Linear(1, 1, bias=False), flipout.Gaussian(0.01))
    with torch.no_grad():
        model.weight.fill_(120.0)
    x, y = torch.tensor([[1.0], [-1.0], [0.0]]), torch.tensor([[1.0], [0.0], [1.0]])
    for keep in (True, False):
        prediction = predict(model, x, likelihood="bernoulli", keep=keep, seed=1)
        torch.testing.assert_close(prediction.log_prob(y), torch.tensor([[0.0], [0.0], [-math.log(2)]]))
        assert (prediction.log_prob(1 - y)[:2] < -80).all()


def test_an_ensemble_and_a_plain_network() -> None:
    outputs = torch.randn(5, 8, 2, dtype=torch.float64)
    ensemble = Prediction.from_outputs(outputs, likelihoods.Gaussian(0.3))
    assert (ensemble.count, ensemble.bases) == (5, 5)
    assert not ensemble.total.requires_grad  # the noise of a likelihood is a Parameter
    torch.testing.assert_close(ensemble.mean, outputs.mean(0))
    torch.testing.assert_close(ensemble.epistemic, outputs.var(0))
    torch.testing.assert_close(ensemble.standard_error, outputs.std(0) / math.sqrt(5))
    plain = Prediction.from_outputs(outputs[:1], likelihoods.Gaussian(0.3))
    assert not plain.epistemic.any()
    torch.testing.assert_close(plain.total, torch.full_like(plain.mean, 0.09), rtol=1e-6, atol=0)
    low, high = plain.interval(0.9)
    torch.testing.assert_close(high - low, torch.full_like(low, 2 * 1.6448536 * 0.3), rtol=1e-6, atol=0)
    for bad in (torch.zeros(3), torch.zeros(0, 3), [1.0]):
        with pytest.raises(InvalidInput, match=r"expected a tensor of outputs \(networks, N, …\)"):
            Prediction.from_outputs(bad)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidArgument, match="how large is the noise"):
        Prediction.from_outputs(outputs, "gaussian")


def test_likelihoods_without_a_cdf_a_sample_or_a_scale() -> None:
    prediction = predict(bayesian(), X, 20, likelihood=Laplace(), seed=1)
    low, high = prediction.interval(0.9)
    assert ((low < prediction.mean) & (prediction.mean < high)).all()
    with pytest.raises(Unsupported, match=r"Laplace has no cdf\(output, target\)"):
        prediction.cdf(prediction.mean)
    with pytest.raises(Unsupported, match=r"Laplace has no rescaled"):
        prediction.rescale(2.0)
    with pytest.raises(Unsupported, match=r"Silent has no sample"):
        predict(bayesian(), X, 20, likelihood=Silent()).interval()
    classes = predict(bayesian(), X, 20, likelihood="categorical")
    with pytest.raises(Unsupported, match="Categorical targets are classes, which have no order"):
        classes.cdf(torch.zeros(5, dtype=torch.int64))
    for scale in (0.0, -1.0, math.nan):
        with pytest.raises(InvalidArgument, match="expected a scale > 0"):
            linear().rescale(scale)
    with pytest.raises(InvalidArgument, match=r"sample\(count=0\)"):
        linear().sample(0)
