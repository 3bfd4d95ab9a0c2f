"""A user-defined distribution, as the documentation shows it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import flipout
from flipout.draws.noise import Stream
from flipout.schemes import SchemeName
from tests import many_draws
from tests.statistics import assert_distributed, assert_uncorrelated, assert_variance


@dataclass(frozen=True, eq=False)
class Laplace(flipout.Distribution):
    """ΔW ~ Laplace(0, scale)."""

    scale: float
    symmetric = True

    def spread(self, mean: Tensor, **learned: Tensor) -> Tensor:
        return mean.new_full((), self.scale)

    def noise(self, stream: Stream) -> Tensor:
        unit = (stream.uniform().to(stream.dtype) + 0.5) * 2.0**-32
        return stream.sign() * -unit.log()


@dataclass(frozen=True, eq=False)
class LearnedLaplace(flipout.LearnedDistribution):
    """Laplace noise with a learned scale, exp(log_scale), and a second array of noise for the sign."""

    symmetric = True

    def initial(self, mean: Tensor) -> dict[str, Tensor]:
        return {"log_scale": torch.full_like(mean, -1.0)}

    def spread(self, mean: Tensor, **learned: Tensor) -> Tensor:
        return learned["log_scale"].exp()

    def noise(self, stream: Stream) -> Tensor:
        magnitude, sign = ((stream.uniform(part).to(stream.dtype) + 0.5) * 2.0**-32 for part in (0, 1))
        return torch.where(sign < 0.5, magnitude.log(), -magnitude.log())


@pytest.mark.parametrize("scheme", ["shared", "flipout", "independent"])
def test_a_user_defined_distribution(scheme: SchemeName) -> None:
    model = flipout.perturb(nn.Linear(5, 4).double(), Laplace(0.3), scheme=scheme)
    x = torch.ones(3, 5, dtype=torch.float64)
    noise = many_draws.weights(model, x, many_draws.seeds(10_000)) - model.weight.detach()
    for example in noise.unbind(1):
        assert_distributed(example, stats.laplace(scale=0.3))
        assert_variance(example, 2 * 0.3**2, kurtosis=6)
        assert_uncorrelated(example.flatten(1))
    assert torch.equal(model.eval()(x), nn.functional.linear(x, model.weight, model.bias))


def test_a_user_defined_distribution_that_learns() -> None:
    linear = nn.Linear(5, 4)
    model = flipout.perturb(nn.Sequential(nn.Embedding(6, 5), linear).double(), LearnedLaplace(), where="*.weight")
    model(torch.tensor([0, 1, 1])).sum().backward()
    for name in ("0.weight_log_scale", "1.weight_log_scale"):
        gradient = model.get_parameter(name).grad
        assert gradient is not None
        assert torch.any(gradient != 0)
    alone = flipout.perturb(flipout.freeze(model)[1], LearnedLaplace(), scheme="shared")
    noise = (
        many_draws.weights(alone, torch.ones(1, 5, dtype=torch.float64), many_draws.seeds(10_000))
        - linear.weight.detach()
    )
    assert_distributed(noise, stats.laplace(scale=np.exp(-1.0)))


def test_fields_by_parameter_name() -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    by_name: Any = {"0.*": 0.1, "*": 0.0}
    model = flipout.perturb(nn.Sequential(first, second), Laplace(by_name))
    with flipout.hold(model, seed=2):
        model(torch.ones(1, 3))
        assert not torch.equal(flipout.example_weights(first)["weight"][0], first.weight)
        assert torch.equal(flipout.example_weights(second)["weight"][0], second.weight)


def test_schemes_refuse_a_distribution_without_the_flag() -> None:
    @dataclass(frozen=True, eq=False)
    class Exponential(Laplace):
        symmetric = False

    with pytest.raises(flipout.errors.AsymmetricDistribution, match="Exponential"):
        flipout.perturb(nn.Linear(3, 3), Exponential(0.1))
    with pytest.raises(flipout.errors.NotGaussian, match="Laplace"):
        flipout.perturb(nn.Linear(3, 3), Laplace(0.1), scheme="local_reparam")


def test_a_standard_deviation_that_is_a_number_is_filled_once() -> None:
    mean = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    noise = flipout.Gaussian(0.123)
    assert noise.spread(mean) is noise.spread(mean)
    assert noise.spread(mean).dtype == torch.bfloat16
    assert torch.func.vmap(lambda x: x * noise.spread(x))(torch.ones(2, 3)).shape == (2, 3)
