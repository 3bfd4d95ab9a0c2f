"""A learned spread: the marginal distribution, the initial value, and no overflow."""

import math

import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import nn

import flipout
from flipout.distributions.mean_field import inverse_softplus
from flipout.errors import InvalidArgument
from flipout.schemes import SchemeName
from tests import many_draws
from tests.statistics import assert_distributed, assert_uncorrelated, assert_variance

X = torch.ones(3, 5, dtype=torch.float64)


def perturbed_linear(
    scheme: SchemeName = "flipout", dtype: torch.dtype = torch.float64, **options
) -> flipout.nn.Linear:
    return flipout.nn.Linear(5, 4, distribution=flipout.MeanField(**options), scheme=scheme, dtype=dtype)


def rho(layer: nn.Module) -> nn.Parameter:
    return layer.get_parameter("weight_rho")


def spread(layer: nn.Module) -> torch.Tensor:
    return F.softplus(rho(layer)).detach()


@pytest.mark.parametrize("scheme", ["shared", "flipout", "independent"])
def test_each_examples_weights_are_gaussian_with_the_learned_spread(scheme: SchemeName) -> None:
    layer = perturbed_linear(scheme)
    with torch.no_grad():
        rho(layer).copy_(torch.linspace(-4, 3, 20).view(4, 5))
    noise = (many_draws.weights(layer, X, many_draws.seeds(10_000)) - layer.weight.detach()) / spread(layer)
    for example in noise.unbind(1):
        assert_distributed(example, stats.norm())
        assert_variance(example, 1.0, kurtosis=3)
        assert_variance(example.flatten(), 1.0, kurtosis=3)
        assert_uncorrelated(example.flatten(1))


@pytest.mark.parametrize("scheme", ["shared", "flipout", "independent"])
def test_the_spread_learns(scheme: SchemeName) -> None:
    """dW/dρ = ε · sigmoid(ρ), with ε from the weights that the example saw."""
    layer = perturbed_linear(scheme)
    with flipout.hold(layer, seed=4):
        y = layer(X[:1])
        seen = flipout.example_weights(layer)["weight"][0]
    (gradient,) = torch.autograd.grad(y.sum(), rho(layer))
    epsilon = (seen - layer.weight) / spread(layer)
    torch.testing.assert_close(gradient, (epsilon * torch.sigmoid(rho(layer))).detach())


@pytest.mark.parametrize("std", [1e-30, 1e-8, 1e-3, 0.5, 1.0, 10.0, 100.0, 1e6])
def test_the_inverse_of_softplus_is_accurate(std: float) -> None:
    """torch's own softplus drops log1p(exp(−x)) above 20: at most e⁻²⁰ / 20 = 1e-10 of the value."""
    back = F.softplus(inverse_softplus(torch.tensor(std, dtype=torch.float64)))
    assert float(back) == pytest.approx(std, rel=2e-14 if std < 20 else 1e-10, abs=0)


@pytest.mark.parametrize("std", [1e-6, 0.02, 3.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_an_absolute_initial_std(std: float, dtype: torch.dtype) -> None:
    initial = spread(perturbed_linear(std=std, dtype=dtype))
    assert initial.dtype == dtype
    torch.testing.assert_close(initial, torch.full_like(initial, std), rtol=32 * torch.finfo(dtype).eps, atol=0)


def test_an_initial_std_relative_to_the_weight() -> None:
    plain = nn.Linear(5, 4, dtype=torch.float64)
    with torch.no_grad():
        plain.weight[0, 0] = 0.0
        plain.weight[0, 1] = -7.0
    layer = flipout.perturb(plain, flipout.MeanField(relative=0.1, least=1e-4))
    torch.testing.assert_close(spread(layer), (0.1 * plain.weight.detach().abs()).clamp_min(1e-4))


def test_the_default_initial_std() -> None:
    assert float(rho(perturbed_linear()).detach().unique()) == pytest.approx(-3.0)


@pytest.mark.parametrize("value", [-1e4, 1e4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scheme", ["shared", "flipout", "independent", "local_reparam"])
def test_the_spread_cannot_overflow(value: float, dtype: torch.dtype, scheme: SchemeName) -> None:
    layer = perturbed_linear(scheme, dtype)
    with torch.no_grad():
        rho(layer).fill_(value)
    x = torch.full((3, 5), 0.01 if dtype == torch.float16 else 1.0, dtype=dtype)
    y = layer(x)
    y.sum().backward()
    gradient = rho(layer).grad
    assert gradient is not None
    assert bool(y.isfinite().all())
    assert bool(gradient.isfinite().all())
    if value < 0:
        torch.testing.assert_close(y, layer.eval()(x))
        assert torch.all(gradient == 0)
    else:
        assert torch.any(gradient != 0)


def test_initial_stds_by_parameter_name() -> None:
    model = flipout.perturb(
        nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), flipout.MeanField(std={"0.*": 0.1, "*": 0.2})
    )
    for part, std in zip(model, (0.1, 0.2), strict=True):
        torch.testing.assert_close(spread(part), torch.full((3, 3), std))


@pytest.mark.parametrize("name", ["std", "relative", "least"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -0.1, 0.0, "0.1", {"*": -1.0}], ids=repr)
def test_a_bad_initial_std_is_refused(name: str, value) -> None:
    with pytest.raises(InvalidArgument, match=name):
        flipout.MeanField(**{name: value})


def test_two_initial_stds_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="only one of them"):
        flipout.MeanField(std=0.1, relative=0.1)


@pytest.mark.parametrize(
    ("distribution", "text"),
    [
        (flipout.MeanField(), "MeanField(std=0.04859)"),
        (flipout.MeanField(std=1 / 3), "MeanField(std=0.3333)"),
        (flipout.MeanField(relative=0.1), "MeanField(relative=0.1, least=1e-06)"),
        (flipout.MeanField(std={"0.*": 0.1, "*": 0.2}), "MeanField(std={'0.*': 0.1, '*': 0.2})"),
        (flipout.MeanField(prior=flipout.bayes.Normal()), "MeanField(std=0.04859, prior=Normal(mean=0.0, std=1.0))"),
    ],
    ids=str,
)
def test_the_repr_names_the_initial_std(distribution: flipout.MeanField, text: str) -> None:
    assert repr(distribution) == text
