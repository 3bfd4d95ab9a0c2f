"""Likelihoods against torch.distributions: log-probability, mean, and entropy or variance."""

import math
from typing import Any

import pytest
import torch
import torch.distributions as td
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from flipout import errors
from flipout.bayes.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    Poisson,
)

shapes = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
NAMES = ("bernoulli", "gaussian", "poisson")


def case(name: str, shape: tuple[int, ...]) -> tuple[Likelihood, Tensor, td.Distribution]:
    output = torch.randn(shape, dtype=torch.float64)
    gaussian = Gaussian(0.3)
    truth: dict[str, tuple[Likelihood, td.Distribution]] = {
        "bernoulli": (Bernoulli(), td.Bernoulli(logits=output)),
        "gaussian": (gaussian, td.Normal(output, math.exp(gaussian.log_std.item()))),
        "poisson": (Poisson(), td.Poisson(output.exp())),
    }
    return truth[name][0], output, truth[name][1]


@given(shapes, st.sampled_from(NAMES))
def test_one_number_for_each_target(shape: tuple[int, ...], name: str) -> None:
    likelihood, output, truth = case(name, shape)
    target = truth.sample()
    close(likelihood(output, target), truth.log_prob(target))
    close(likelihood.mean(output), truth.mean)
    uncertainty = truth.entropy() if likelihood.entropic else truth.variance
    close(likelihood.noise(likelihood.mean(output)), uncertainty)


@given(shapes, st.integers(2, 5), st.sampled_from([-1, 1]))
def test_categorical(shape: tuple[int, ...], classes: int, dim: int) -> None:
    output = torch.randn(*shape, classes, dtype=torch.float64)
    truth = td.Categorical(logits=output)
    target, likelihood, logits = truth.sample(), Categorical(dim), output.movedim(-1, dim)
    close(likelihood(logits, target), truth.log_prob(target))
    close(likelihood.mean(logits).movedim(dim, -1), truth.probs)
    close(likelihood.noise(likelihood.mean(logits)), truth.entropy())


def close(actual: Tensor, expected: Tensor) -> None:
    assert actual.shape == expected.shape
    torch.testing.assert_close(actual, expected, rtol=1e-9 if actual.dtype == torch.float64 else 1e-6, atol=1e-12)


@given(shapes, st.integers(1, 3))
def test_noise_that_the_network_predicts(shape: tuple[int, ...], features: int) -> None:
    output = torch.randn(*shape, 2 * features, dtype=torch.float64)
    truth = td.Normal(output[..., :features], output[..., features:].exp())
    likelihood, target = HeteroscedasticGaussian(), truth.sample()
    close(likelihood(output, target), truth.log_prob(target))
    close(likelihood.mean(output), truth.mean)
    close(likelihood.output_noise(output), truth.variance)
    torch.testing.assert_close(likelihood.cdf(output, target), truth.cdf(target), rtol=1e-9, atol=1e-12)
    with pytest.raises(errors.InvalidInput, match="expected means and as many log standard deviations"):
        likelihood.mean(output[..., 1:])
    with pytest.raises(errors.Unsupported, match="the mean does not determine the noise"):
        likelihood.noise(truth.mean)
    with pytest.raises(errors.InvalidInput, match="a mean and a log std for each target"):
        likelihood(output, output)


def test_what_a_likelihood_need_not_define() -> None:
    assert [Gaussian().defines(name) for name in ("cdf", "sample", "rescaled", "logits")] == [True, True, True, False]
    for name in ("cdf", "sample", "probabilities", "logits", "rescaled"):
        likelihood = Poisson() if name not in ("cdf", "sample") else Lonely()
        arguments = {"cdf": 2, "rescaled": 3}.get(name, 1)
        with pytest.raises(errors.Unsupported, match=rf"has no {name}\(.*Define it in your subclass"):
            getattr(likelihood, name)(*[torch.zeros(1)] * arguments)


class Lonely(Likelihood):
    """What is needed, and no more."""

    entropic = False

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        return -(output - target).abs()

    def mean(self, output: Tensor) -> Tensor:
        return output

    def noise(self, mean: Tensor) -> Tensor:
        return torch.ones_like(mean)


def test_padded_targets_count_nothing() -> None:
    output, target = torch.randn(2, 3, 5), torch.tensor([[1, 2, 0], [4, 0, 0]])
    values = Categorical(ignore=0)(output, target)
    assert torch.equal(values == 0, target == 0)
    kept = target != 0
    close(values[kept], Categorical()(output, target)[kept])


def test_half_precision_is_computed_in_single() -> None:
    output, target = torch.randn(50, 9).bfloat16(), torch.randint(9, (50,))
    values = Categorical()(output, target)
    assert values.dtype == torch.float32
    close(values, Categorical()(output.float(), target))
    assert Gaussian()(output, output).dtype == torch.float32
    assert Bernoulli().mean(output).dtype == torch.float32


def test_learned_noise() -> None:
    """d/d log σ of Σ log N(y; m, σ²) = Σ (y − m)² / σ² − 1, which is 0 at the root mean square error."""
    likelihood = Gaussian(2.0)
    error = torch.randn(40)
    (gradient,) = torch.autograd.grad(likelihood(torch.zeros(40), error).sum(), likelihood.log_std)
    torch.testing.assert_close(gradient, (error**2 / 4 - 1).sum())
    assert [name for name, _ in likelihood.named_parameters()] == ["log_std"]
    fixed = Gaussian(torch.tensor([1.0, 2.0]), learn=False)
    assert not list(fixed.parameters())
    assert list(fixed.state_dict()) == ["log_std"]
    close(
        fixed(torch.zeros(3, 2), torch.zeros(3, 2))[0],
        td.Normal(0.0, torch.tensor([1.0, 2.0])).log_prob(torch.tensor(0.0)),
    )


BAD_SHAPES = [
    (
        Categorical(),
        (5, 3),
        torch.zeros(5, 1, dtype=torch.long),
        r"output of shape \(5, 3\) and target of shape \(5, 1\)",
    ),
    (Categorical(), (5, 3), torch.zeros(4, dtype=torch.long), r"needs targets of shape \(5,\)"),
    (Categorical(1), (5, 3, 7), torch.zeros(5, 3, dtype=torch.long), r"needs targets of shape \(5, 7\)"),
    (Categorical(), (5, 3), torch.zeros(5), r"targets of dtype torch.float32; expected classes: target.long\(\)"),
    (Categorical(3), (5, 3), torch.zeros(5, dtype=torch.long), r"dim=3\): output of shape \(5, 3\) has no such"),
    (Gaussian(), (5, 1), torch.zeros(5), r"needs targets of shape \(5, 1\). Reshape .* nothing is broadcast"),
    (Bernoulli(), (5,), torch.zeros(5, 1), r"needs targets of shape \(5,\)"),
    (Poisson(), (5, 2), torch.zeros(2), r"needs targets of shape \(5, 2\)"),
    (
        Bernoulli(),
        (3,),
        torch.tensor([0.0, 1.0, 2.0]),
        r"Bernoulli: targets from 0.0 to 2.0; expected them from 0 to 1",
    ),
    (Poisson(), (2,), torch.tensor([-1, 3]), "Poisson: targets from -1 to 3; expected counts ≥ 0"),
    (Poisson(), (2,), torch.tensor([1.0, 2.5]), r"Poisson: a target of 2\.5; expected counts, which are whole numbers"),
]


@pytest.mark.parametrize(("likelihood", "shape", "target", "message"), BAD_SHAPES)
def test_targets_that_do_not_fit_are_refused(likelihood: Any, shape: Any, target: Tensor, message: str) -> None:
    with pytest.raises(errors.InvalidInput, match=message):
        likelihood(torch.zeros(shape), target)


def test_several_outputs_are_refused() -> None:
    with pytest.raises(errors.InvalidInput, match="Gaussian: output of <class 'tuple'>; expected a tensor"):
        Gaussian()((torch.zeros(2), torch.zeros(2)), torch.zeros(2))


@pytest.mark.parametrize("std", [0.0, -1.0, math.nan, math.inf, "1", True, torch.tensor([1.0, -1.0])], ids=str)
def test_noise_that_is_none_is_refused(std: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="standard deviation, finite and > 0"):
        Gaussian(std)


def test_a_spread_is_not_what_the_output_is_broadcast_to() -> None:
    with pytest.raises(errors.InvalidInput, match=r"std of shape \(3,\) and output of shape \(8, 1\)"):
        Gaussian(torch.ones(3))(torch.zeros(8, 1), torch.zeros(8, 1))


def test_classes_need_examples() -> None:
    with pytest.raises(errors.InvalidInput, match=r"expected \(N, classes\)"):
        Categorical()(torch.zeros(3), torch.tensor(1))


def test_classes_that_there_are_not() -> None:
    target = torch.tensor([0, 3, -100])
    with pytest.raises(errors.InvalidInput, match="targets from 0 to 3; expected them from 0 to 2"):
        Categorical()(torch.zeros(3, 3), target)
    with pytest.raises(errors.InvalidInput, match=r"target\.argmax\(-1\) of one-hot"):
        Categorical()(torch.zeros(3, 3), torch.eye(3))
    with pytest.raises(
        errors.InvalidInput, match=r"shape \(3,\)\. Take the classes of one-hot targets: target\.argmax\(-1\)"
    ):
        Categorical()(torch.zeros(3, 3), torch.eye(3).long())
    assert Categorical()(torch.zeros(3, 4), target)[2] == 0
