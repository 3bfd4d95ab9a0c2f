"""Directions are added to any scheme: each example's product is that with its own weight."""

from typing import Any

import pytest
import torch
from torch import nn

import flipout
from flipout.errors import NoPopulation
from flipout.ops import Linear
from flipout.schemes import SchemeName
from flipout.schemes.factors import WithFactors
from tests.networks import GAUSSIAN


@pytest.mark.parametrize("scheme", ["flipout", "independent", "shared"])
def test_the_product_of_each_example(scheme: SchemeName) -> None:
    layer: Any = flipout.perturb(nn.Linear(4, 3).double(), flipout.LowRankNormal(2, factor_std=0.5), scheme=scheme)
    x = torch.randn(5, 4, dtype=torch.float64)
    with flipout.hold(layer, seed=3):
        y = layer(x)
        weights = flipout.example_weights(layer)["weight"].expand(5, 3, 4)
        noise = flipout.nn.perturbations(layer, x, x.dtype)
        assert isinstance(noise.scheme, WithFactors)
        assert noise.scheme.is_shared == (scheme == "shared")
        torch.testing.assert_close(noise.bound(Linear(4, 3), "weight", "bias")(x), y)
    torch.testing.assert_close(y, torch.einsum("noi,ni->no", weights, x) + layer.bias)
    with pytest.raises(NoPopulation, match="cannot serve a population"):
        noise.scheme.weighted(noise.matrix("weight"), None, torch.ones(5))


def test_noise_without_directions_keeps_its_scheme() -> None:
    layer: Any = flipout.perturb(nn.Linear(4, 3), GAUSSIAN)
    with flipout.hold(layer, seed=3):
        assert not isinstance(flipout.nn.perturbations(layer, torch.ones(2, 4), torch.float32).scheme, WithFactors)
