"""A separate perturbation for every example."""

import pytest
import torch

import flipout
from flipout.schemes import SchemeName
from tests import many_draws
from tests.statistics import assert_covariance, assert_uncorrelated

X = torch.tensor([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]], dtype=torch.float64)


def perturbed_linear(scheme: SchemeName | flipout.Scheme = "independent") -> flipout.nn.Linear:
    return flipout.nn.Linear(3, 2, distribution=flipout.Gaussian(0.5), scheme=scheme, dtype=torch.float64)


@pytest.mark.parametrize("scheme", ["independent", flipout.Flipout(group=1)], ids=str)
def test_examples_see_independent_weights(scheme: SchemeName | flipout.Scheme) -> None:
    seen = many_draws.weights(perturbed_linear(scheme), X, many_draws.seeds(5000)).flatten(2)
    first, second = seen.unbind(1)
    assert_uncorrelated(first, second)
    assert_uncorrelated(first.abs(), second.abs())


@pytest.mark.parametrize("scheme", ["independent", "flipout", flipout.Flipout(group=1)], ids=str)
def test_outputs_of_different_examples_are_uncorrelated(scheme: SchemeName | flipout.Scheme) -> None:
    """Cov(y_mi, y_nj) is std² |x_n|² if m = n and i = j, else 0. This holds for flipout too."""
    outputs = many_draws.outputs(perturbed_linear(scheme), X, many_draws.seeds(20_000)).flatten(1)
    assert_covariance(outputs, torch.diag(0.25 * X.square().sum(1).repeat_interleave(2)))


def test_antithetic_draws_average_to_the_mean() -> None:
    layer = perturbed_linear()
    both = []
    for antithetic in (False, True):
        with flipout.hold(layer, seed=1, antithetic=antithetic):
            both.append(layer(X))
    torch.testing.assert_close(both[0] + both[1], 2 * layer.eval()(X))
