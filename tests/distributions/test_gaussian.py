"""ΔW ~ N(0, std²) and ΔW ~ N(0, std² W̄²), for every example and every scheme that samples weights."""

import math

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import flipout
from flipout.errors import InvalidArgument
from flipout.schemes import SchemeName
from tests import many_draws
from tests.statistics import assert_distributed, assert_mean, assert_uncorrelated, assert_variance

SCHEMES = ("shared", "flipout", flipout.Flipout(group=2), "independent")
DRAWS = 10_000
X = torch.ones(3, 5, dtype=torch.float64)


def perturbed_linear(distribution: flipout.Distribution, scheme: SchemeName | flipout.Scheme) -> flipout.nn.Linear:
    return flipout.nn.Linear(5, 4, distribution=distribution, scheme=scheme, dtype=torch.float64)


def assert_gaussian(seen: Tensor, mean: Tensor, std: Tensor) -> None:
    """Each example's weights are N(mean, std²), entry by entry, and the entries are independent."""
    noise = ((seen - mean) / std).flatten(2)
    for example in noise.unbind(1):
        assert_distributed(example, stats.norm())
        assert_mean(example, 0.0, std=1.0)
        assert_variance(example, 1.0, kurtosis=3)
        assert_variance(example.flatten(), 1.0, kurtosis=3)
        assert_uncorrelated(example)
        assert_uncorrelated(example.abs())


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_each_examples_weights_are_gaussian(scheme: SchemeName | flipout.Scheme) -> None:
    layer = perturbed_linear(flipout.Gaussian(0.3), scheme)
    assert_gaussian(many_draws.weights(layer, X, many_draws.seeds(DRAWS)), layer.weight.detach(), torch.tensor(0.3))


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_each_examples_weights_are_gaussian_relative_to_the_mean(scheme: SchemeName | flipout.Scheme) -> None:
    layer = perturbed_linear(flipout.MultiplicativeGaussian(0.7), scheme)
    assert_gaussian(
        many_draws.weights(layer, X, many_draws.seeds(DRAWS)), layer.weight.detach(), 0.7 * layer.weight.detach()
    )


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_the_weights_of_one_draw_are_gaussian(scheme: SchemeName | flipout.Scheme) -> None:
    big = flipout.nn.Conv2d(8, 16, 5, distribution=flipout.Gaussian(0.1), scheme=scheme, dtype=torch.float64)
    with flipout.hold(big, seed=2):
        big(torch.zeros(3, 8, 5, 5, dtype=torch.float64))
        seen = flipout.example_weights(big)["weight"] - big.weight
    for example in seen:
        assert_distributed(example / 0.1, stats.norm())


def test_a_zero_weight_has_no_multiplicative_noise_and_the_gradient_flows_through_the_spread() -> None:
    layer = perturbed_linear(flipout.MultiplicativeGaussian(0.7), "shared")
    with torch.no_grad():
        layer.weight[1] = 0
    with flipout.hold(layer, seed=1):
        layer(X)
        seen = flipout.example_weights(layer)["weight"][0]
    assert torch.all(seen[1] == 0)
    (gradient,) = torch.autograd.grad(seen.sum(), layer.weight)
    kept = [0, 2, 3]
    torch.testing.assert_close(gradient[kept], (seen / layer.weight)[kept].detach())  # W = W̄ (1 + std ε)


@pytest.mark.parametrize("kind", [flipout.Gaussian, flipout.MultiplicativeGaussian, flipout.Rademacher])
def test_std_by_parameter_name(kind: type[flipout.Gaussian]) -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    model = flipout.perturb(nn.Sequential(first, second), kind({"0.*": 0.25, "*": 0.0}))
    x = torch.ones(2, 3)
    with flipout.hold(model, seed=1):
        model(x)
        seen = flipout.example_weights(first)["weight"]
        assert torch.equal(flipout.example_weights(second)["weight"], second.weight.expand(2, 3, 3))
    assert not torch.equal(seen[0], first.weight)
    flipout.freeze(model)
    flipout.perturb(model, kind(0.25), where="0.weight")
    with flipout.hold(model, seed=1):
        model(x)
        assert torch.equal(flipout.example_weights(first)["weight"], seen)


def test_a_name_without_a_std_is_refused_before_anything_changes() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    with pytest.raises(InvalidArgument, match=r"1\.weight"):
        flipout.perturb(model, flipout.Gaussian({"0.*": 0.25}))
    assert [type(part) for part in model] == [nn.Linear, nn.Linear]


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_a_tensor_of_stds(scheme: SchemeName | flipout.Scheme) -> None:
    std = torch.linspace(0.1, 2.0, 20).view(4, 5)
    layer = perturbed_linear(flipout.Gaussian(std), scheme)
    assert_gaussian(many_draws.weights(layer, X, many_draws.seeds(DRAWS)), layer.weight.detach(), std.double())
    by_row = perturbed_linear(flipout.Gaussian(std[:, :1]), scheme)
    assert_gaussian(many_draws.weights(by_row, X, many_draws.seeds(DRAWS)), by_row.weight.detach(), std[:, :1].double())


@pytest.mark.parametrize("scheme", [*SCHEMES, "local_reparam"], ids=str)
@pytest.mark.parametrize("shape", [(3, 4, 5), (3, 1, 1), (4,), (5, 4)], ids=str)
def test_a_tensor_of_stds_that_does_not_broadcast_to_the_parameter_is_refused(
    scheme: SchemeName | flipout.Scheme, shape: tuple[int, ...]
) -> None:
    with pytest.raises(InvalidArgument, match=r"\(4, 5\)"):
        perturbed_linear(flipout.Gaussian(torch.ones(shape)), scheme)(X)


@pytest.mark.parametrize("kind", [flipout.Gaussian, flipout.MultiplicativeGaussian, flipout.Rademacher])
@pytest.mark.parametrize(
    "std",
    [
        math.nan,
        math.inf,
        -0.1,
        torch.tensor([0.1, -0.1]),
        torch.tensor([0.1, math.nan]),
        {"*": math.nan},
        {"0.*": 0.1, "*": -1.0},
        "0.1",
        None,
        1j,
        [0.1, 0.2],
    ],
    ids=repr,
)
def test_a_bad_std_is_refused(kind: type[flipout.Gaussian], std) -> None:
    with pytest.raises(InvalidArgument, match="std"):
        kind(std)


def test_without_noise_the_weights_are_the_mean() -> None:
    for distribution in (flipout.Gaussian(0), flipout.MultiplicativeGaussian(0.0), flipout.Rademacher(0.0)):
        layer = perturbed_linear(distribution, "flipout")
        assert torch.equal(layer(X), layer.eval()(X))
        assert torch.equal(many_draws.weights(layer, X, many_draws.seeds(1))[0], layer.weight.expand(3, 4, 5))


@pytest.mark.parametrize(
    ("distribution", "text"),
    [
        (flipout.MultiplicativeGaussian(), "MultiplicativeGaussian(std=1.0)"),
        (flipout.Gaussian(1 / 3), "Gaussian(std=0.3333)"),
        (flipout.Gaussian(torch.ones(4, 5)), "Gaussian(std=<4×5 tensor>)"),
        (flipout.Gaussian(torch.tensor(0.25)), "Gaussian(std=0.25)"),
        (flipout.Gaussian({"0.*": 0.1, "*": 0.2}), "Gaussian(std={'0.*': 0.1, '*': 0.2})"),
        (flipout.Rademacher(0.25), "Rademacher(std=0.25)"),
        (flipout.DropConnect(), "DropConnect(p=0.5)"),
    ],
    ids=str,
)
def test_the_repr_is_short_and_shows_every_value(distribution: flipout.Distribution, text: str) -> None:
    assert repr(distribution) == text
