"""One perturbation for the whole batch."""

import pytest
import torch

import flipout
from flipout.schemes import scheme_of
from tests import draws
from tests.statistics import assert_covariance

X = torch.tensor([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]], dtype=torch.float64)


def layer() -> flipout.nn.Linear:
    return flipout.nn.Linear(3, 2, distribution=flipout.Gaussian(0.5), scheme="shared", dtype=torch.float64)


def test_every_example_sees_the_same_weights() -> None:
    seen = draws.weights(layer(), X, draws.seeds(20))
    assert torch.equal(seen[:, 0], seen[:, 1])
    assert not torch.equal(seen[0], seen[1])


def test_outputs_of_different_examples_are_correlated_as_theory_says() -> None:
    """Cov(y_mi, y_nj) = std² x_m·x_n where i = j, else 0."""
    made = draws.outputs(layer(), X, draws.seeds(20_000)).flatten(1)
    assert_covariance(made, 0.25 * torch.kron(X @ X.T, torch.eye(2, dtype=torch.float64)))


def test_antithetic_draws_average_to_the_mean() -> None:
    made = layer()
    both = []
    for antithetic in (False, True):
        with flipout.hold(made, seed=1, antithetic=antithetic):
            both.append(made(X))
    torch.testing.assert_close(both[0] + both[1], 2 * made.eval()(X))


@pytest.mark.parametrize("name", ["", "Flipout", "local-reparam"])
def test_a_scheme_of_no_known_name_is_refused(name: str) -> None:
    with pytest.raises(flipout.errors.InvalidArgument, match="expected one of"):
        scheme_of(name)  # pyright: ignore[reportArgumentType]
