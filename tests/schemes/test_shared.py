"""One perturbation for the whole batch."""

import pytest
import torch

import flipout
from flipout.schemes import scheme_of
from tests import many_draws
from tests.statistics import assert_covariance

X = torch.tensor([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]], dtype=torch.float64)


def perturbed_linear() -> flipout.nn.Linear:
    return flipout.nn.Linear(3, 2, distribution=flipout.Gaussian(0.5), scheme="shared", dtype=torch.float64)


def test_every_example_sees_the_same_weights() -> None:
    seen = many_draws.weights(perturbed_linear(), X, many_draws.seeds(20))
    assert torch.equal(seen[:, 0], seen[:, 1])
    assert not torch.equal(seen[0], seen[1])


def test_outputs_of_different_examples_have_the_theoretical_covariance() -> None:
    """Cov(y_mi, y_nj) is std² x_m·x_n if i = j, else 0."""
    outputs = many_draws.outputs(perturbed_linear(), X, many_draws.seeds(20_000)).flatten(1)
    assert_covariance(outputs, 0.25 * torch.kron(X @ X.T, torch.eye(2, dtype=torch.float64)))


def test_antithetic_draws_average_to_the_mean() -> None:
    layer = perturbed_linear()
    both = []
    for antithetic in (False, True):
        with flipout.hold(layer, seed=1, antithetic=antithetic):
            both.append(layer(X))
    torch.testing.assert_close(both[0] + both[1], 2 * layer.eval()(X))


@pytest.mark.parametrize("name", ["", "Flipout", "local-reparam"])
def test_an_unknown_scheme_name_is_refused(name: str) -> None:
    with pytest.raises(flipout.errors.InvalidArgument, match="expected one of"):
        scheme_of(name)  # pyright: ignore[reportArgumentType]
