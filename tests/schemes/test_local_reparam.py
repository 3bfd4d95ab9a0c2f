"""Local reparameterisation: the moments of its outputs, since it has no per-example weights, and its refusals."""

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import flipout
from flipout.errors import NoExampleWeights, NotGaussian, SampledPerPosition, WeightReused
from tests import many_draws
from tests.statistics import assert_covariance, assert_distributed, assert_mean, assert_variance

LRT = "local_reparam"
X = torch.tensor([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
STD = torch.tensor([[0.5, 1.0, 0.25], [0.1, 0.0, 2.0]], dtype=torch.float64)


def perturbed_linear(distribution: flipout.Distribution, where: str = "weight") -> flipout.nn.Linear:
    return flipout.nn.Linear(3, 2, distribution=distribution, scheme=LRT, where=where, dtype=torch.float64)


def assert_moments(layer: nn.Module, x: Tensor, covariance: Tensor) -> Tensor:
    """The mean is the plain output, and the covariance is diagonal over examples and outputs."""
    y = many_draws.outputs(layer, x, many_draws.seeds(20_000))
    assert_mean(y, layer.eval()(x))
    assert_covariance(y.flatten(1), torch.diag(covariance.flatten().detach()))
    return y


def test_mean_and_covariance_are_exact() -> None:
    y = assert_moments(perturbed_linear(flipout.Gaussian(STD)), X, X.square() @ STD.square().T)
    assert_distributed((y[:, 0, 1] - y[:, 0, 1].mean()) / y[:, 0, 1].std(), stats.norm())


def test_mean_and_covariance_of_multiplicative_and_learned_noise() -> None:
    layer = perturbed_linear(flipout.MultiplicativeGaussian(0.7))
    assert_moments(layer, X, X.square() @ (0.7 * layer.weight).square().T)
    layer = perturbed_linear(flipout.MeanField(std=0.3))
    assert_moments(layer, X, X.square() @ torch.full((3, 2), 0.09, dtype=torch.float64))


def test_a_perturbed_bias_adds_its_own_variance() -> None:
    assert_moments(
        perturbed_linear(flipout.Gaussian(0.5), "*"), X, 0.25 * (X.square().sum(1, keepdim=True) + 1).expand(3, 2)
    )


def test_positions_are_sampled_separately_if_allowed() -> None:
    layer = flipout.nn.Conv1d(
        2, 2, 2, distribution=flipout.Gaussian(0.5), scheme=flipout.LocalReparam(per_position=True), dtype=torch.float64
    )
    x = torch.randn(2, 2, 3, dtype=torch.float64)
    energy = nn.functional.conv1d(x.square(), torch.ones(2, 2, 2, dtype=torch.float64))
    assert_moments(layer, x, 0.25 * energy)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("std", [1e-4, 1e-2, 300.0])
def test_the_variance_is_neither_lost_nor_infinite_in_low_precision(dtype: torch.dtype, std: float) -> None:
    """In float16, std² underflows for std < 2.4e-4 and overflows for std > 256, while std is in range."""
    layer = flipout.nn.Linear(4, 4000, bias=False, distribution=flipout.Gaussian(std), scheme=LRT, dtype=dtype)
    nn.init.zeros_(layer.weight)
    with flipout.hold(layer, seed=0):
        y = layer(torch.ones(1, 4, dtype=dtype))
    assert_variance(y.flatten().double() / (2 * std), 1.0, kurtosis=3)


@pytest.mark.parametrize("distribution", [flipout.Gaussian(STD), flipout.Gaussian(0.0), flipout.MeanField()], ids=repr)
def test_the_gradient_is_finite_where_the_variance_is_zero(distribution: flipout.Distribution) -> None:
    layer = perturbed_linear(distribution)
    x = X.clone().requires_grad_()
    y = layer(x)
    y.square().sum().backward()
    for tensor in (x, *layer.parameters()):
        assert tensor.grad is not None
        assert bool(tensor.grad.isfinite().all())
    assert torch.equal(y[2], layer.eval()(x)[2])


@pytest.mark.parametrize("distribution", [flipout.DropConnect(0.5), flipout.Rademacher(0.1)], ids=repr)
def test_noise_that_is_not_gaussian_is_refused(distribution: flipout.Distribution) -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    with pytest.raises(NotGaussian, match="never"):
        flipout.perturb(model, distribution, scheme=LRT)
    assert type(model[0]) is nn.Linear
    flipout.perturb(model, distribution)
    with pytest.raises(NotGaussian), flipout.using(model, scheme=LRT):
        pass


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(3, 3), nn.Linear(3, 3)
        self.decode.weight = self.encode.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(self.encode(x))


def test_a_weight_that_two_layers_use_is_refused() -> None:
    model = Tied()
    with pytest.raises(WeightReused, match=r"encode\.weight and decode\.weight"):
        flipout.perturb(model, flipout.Gaussian(0.1), scheme=LRT)
    assert type(model.encode) is nn.Linear
    flipout.perturb(model, flipout.Gaussian(0.1))
    with pytest.raises(WeightReused), flipout.using(model, scheme=LRT):
        pass
    assert model.encode.flipout.scheme.name == "flipout"  # pyright: ignore


def test_several_uses_of_a_weight_by_one_example_are_refused() -> None:
    noise = flipout.Gaussian(0.1)
    linear = flipout.nn.Linear(3, 2, distribution=noise, scheme=LRT)
    linear(torch.ones(4, 1, 3))
    with pytest.raises(SampledPerPosition, match="5 times"):
        linear(torch.ones(4, 5, 3))
    with pytest.raises(SampledPerPosition, match="2 times"), flipout.hold(linear, seed=0, rows=2):
        linear(torch.ones(4, 3))
    conv = flipout.nn.Conv2d(3, 2, 3, distribution=noise, scheme=LRT)
    conv(torch.ones(4, 3, 3, 3))
    with pytest.raises(SampledPerPosition, match="6 times"):
        conv(torch.ones(4, 3, 4, 5))
    transposed = flipout.nn.ConvTranspose1d(3, 2, 3, distribution=noise, scheme=LRT)
    with pytest.raises(SampledPerPosition, match="2 times"):
        transposed(torch.ones(4, 3, 2))
    embedding = flipout.nn.Embedding(3, 2, distribution=noise, scheme=LRT, where="weight")
    with pytest.raises(SampledPerPosition, match="2 times"):
        embedding(torch.tensor([[0, 1]]))


def test_example_weights_are_refused() -> None:
    layer = perturbed_linear(flipout.Gaussian(0.1))
    with flipout.hold(layer, seed=0):
        layer(X)
        with pytest.raises(NoExampleWeights, match="using"):
            flipout.example_weights(layer)


def test_antithetic_draws_average_to_the_mean() -> None:
    layer = perturbed_linear(flipout.Gaussian(0.5), "*")
    both = []
    for antithetic in (False, True):
        with flipout.hold(layer, seed=1, antithetic=antithetic):
            both.append(layer(X))
    torch.testing.assert_close(both[0] + both[1], 2 * layer.eval()(X))


def test_a_layer_called_twice_in_one_forward_pass_is_refused() -> None:
    class Siamese(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tower = nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.tower(x) - self.tower(-x)

    model = flipout.perturb(Siamese(), flipout.Gaussian(0.1), scheme="local_reparam")
    with pytest.raises(flipout.errors.WeightReused, match=r"tower .*called twice.*scheme='flipout'"):
        model(torch.randn(4, 3))
    single = flipout.perturb(nn.Sequential(nn.Linear(3, 2)), flipout.Gaussian(0.1), scheme="local_reparam")
    assert not torch.equal(single(torch.ones(4, 3)), single(torch.ones(4, 3)))
    with flipout.hold(single):
        assert torch.equal(single(torch.ones(4, 3)), single(torch.ones(4, 3)))
