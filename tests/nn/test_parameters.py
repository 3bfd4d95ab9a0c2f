"""The Parameters of a call: products, vectors and formed weights are those that each example sees."""

from typing import Any

import pytest
import torch
from torch import nn

import flipout
from flipout.errors import WeightReused
from flipout.nn import perturbations
from flipout.ops import Linear
from tests.networks import GAUSSIAN

X = torch.randn(5, 4, dtype=torch.float64)


@pytest.mark.parametrize("where", ["*", "weight", "bias"])
def test_affine_bound_and_vector(where: str) -> None:
    layer: Any = flipout.perturb(nn.Linear(4, 3).double(), GAUSSIAN, where=where)
    with flipout.hold(layer, seed=2):
        noise = perturbations(layer, X, X.dtype)
        assert ("weight" in noise, "bias" in noise) == (where != "bias", where != "weight")
        seen = {name: value.detach().unsqueeze(0) for name, value in layer.named_parameters()}
        seen |= flipout.example_weights(layer)
        expected = torch.einsum("noi,ni->no", seen["weight"].expand(5, 3, 4), X) + seen["bias"]
        torch.testing.assert_close(noise.affine(Linear(4, 3), X), expected)
        torch.testing.assert_close(noise.bound(Linear(4, 3), "weight", "bias")(X), expected)
        torch.testing.assert_close(noise.vector("bias").expand(5, 3), seen["bias"].expand(5, 3))


def test_a_weight_is_sampled_once_under_local_reparameterisation() -> None:
    layer = nn.Linear(4, 4).double()
    model = flipout.perturb(nn.Sequential(layer, nn.Sequential(nn.ReLU(), layer)), GAUSSIAN, scheme="local_reparam")
    with pytest.raises(WeightReused, match=r"called twice in one forward pass.*scheme='flipout'"):
        model(X)


def test_the_quiet_row_has_no_noise() -> None:
    table: Any = flipout.perturb(nn.Embedding(6, 2, padding_idx=1), GAUSSIAN, where="weight")
    with flipout.hold(table, seed=2):
        noise = perturbations(table, torch.tensor([[0], [1]]), torch.float32)
        delta = noise["weight"].delta()
    assert (delta.abs().sum(1) == 0).tolist() == [False, True, False, False, False, False]
