"""Noise with two values: exact values, exact probabilities."""

import math

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout.errors import InvalidArgument
from flipout.schemes import SchemeName
from tests import many_draws
from tests.statistics import assert_mean, assert_probability, assert_uncorrelated

X = torch.ones(3, 5, dtype=torch.float64)
CASES = [(0.5, "flipout"), *((p, scheme) for p in (0.1, 0.5, 0.9) for scheme in ("shared", "independent"))]


def perturbed_linear(distribution: flipout.Distribution, scheme: SchemeName) -> flipout.nn.Linear:
    return flipout.nn.Linear(5, 4, distribution=distribution, scheme=scheme, dtype=torch.float64)


@pytest.mark.parametrize(("p", "scheme"), CASES)
def test_each_examples_weights_are_dropped_or_scaled(p: float, scheme: SchemeName) -> None:
    layer = perturbed_linear(flipout.DropConnect(p), scheme)
    mean = layer.weight.detach()
    seen = many_draws.weights(layer, X, many_draws.seeds(10_000))
    dropped = seen == 0
    torch.testing.assert_close(seen, torch.where(dropped, 0.0, mean / (1 - p)), rtol=1e-14, atol=0)
    for example in range(3):
        count = dropped[:, example]
        assert_probability(int(count.sum()), count.numel(), p)
        assert_mean(count, p, std=math.sqrt(p * (1 - p)))
        assert_uncorrelated(count.flatten(1))


@pytest.mark.parametrize(("p", "scheme"), CASES)
def test_the_parameter_is_the_mean_so_eval_needs_no_rescaling(p: float, scheme: SchemeName) -> None:
    layer = perturbed_linear(flipout.DropConnect(p), scheme)
    plain = nn.Linear(5, 4, dtype=torch.float64)
    plain.load_state_dict(layer.state_dict())
    assert torch.equal(layer.eval()(X), plain(X))
    variance = p / (1 - p) * layer.weight.detach().square() @ X[0].square()
    assert_mean(many_draws.outputs(layer, X, many_draws.seeds(10_000)), plain(X), std=variance.sqrt())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("p", [0.3, 0.5])
def test_a_dropped_weight_is_exactly_zero_in_every_dtype(dtype: torch.dtype, p: float) -> None:
    layer = flipout.nn.Linear(64, 64, distribution=flipout.DropConnect(p), scheme="shared", dtype=dtype)
    with flipout.hold(layer, seed=0):
        assert layer(torch.ones(1, 64, dtype=dtype)).dtype == dtype
        seen = flipout.example_weights(layer)["weight"][0]
    assert seen.dtype == dtype
    assert_probability(int((seen == 0).sum()), seen.numel(), p)


def test_dropping_nothing_is_the_plain_network() -> None:
    for scheme in ("shared", "flipout", "independent"):
        layer = perturbed_linear(flipout.DropConnect(0.0), scheme)
        assert torch.equal(many_draws.weights(layer, X, many_draws.seeds(1))[0], layer.weight.expand(3, 4, 5))
        torch.testing.assert_close(layer(X), layer.eval()(X))


def test_probabilities_by_parameter_name() -> None:
    model = nn.Sequential(nn.Linear(40, 40), nn.Linear(40, 40)).double()
    flipout.perturb(model, flipout.DropConnect({"0.*": 0.2, "1.*": 0.7}), scheme="shared")
    with flipout.hold(model, seed=0):
        model(torch.ones(1, 40, dtype=torch.float64))
        for part, p in zip(model, (0.2, 0.7), strict=True):
            dropped = flipout.example_weights(part)["weight"] == 0
            assert_probability(int(dropped.sum()), dropped.numel(), p)
    flipout.perturb(
        nn.Linear(3, 3), flipout.DropConnect({"weight": 0.5}), scheme="flipout"
    )  # symmetric once it is looked up


@pytest.mark.parametrize(
    "p", [-0.1, 1.0, 1.5, math.nan, math.inf, "0.5", None, torch.tensor(0.5), {"*": 1.0}], ids=repr
)
def test_a_probability_outside_zero_to_one_is_refused(p) -> None:
    with pytest.raises(InvalidArgument, match="p="):
        flipout.DropConnect(p)


@pytest.mark.parametrize("scheme", ["shared", "flipout", "independent"])
def test_rademacher_noise_is_one_bit_per_weight(scheme: SchemeName) -> None:
    layer = perturbed_linear(flipout.Rademacher(0.25), scheme)
    with torch.no_grad():
        layer.weight.zero_()
    seen: Tensor = many_draws.weights(layer, X, many_draws.seeds(10_000))
    assert torch.all(seen.abs() == 0.25)
    for example in range(3):
        positive = seen[:, example] > 0
        assert_probability(int(positive.sum()), positive.numel(), 0.5)
        assert_mean(positive, 0.5, std=0.5)
        assert_uncorrelated(positive.flatten(1))
