"""A `forward` on a layer itself: that of its class follows the layer, another one is refused."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

import flipout
from flipout import errors
from tests.networks import GAUSSIAN

X = torch.randn(3, 4)


def test_a_bound_forward_follows_the_class() -> None:
    """accelerate leaves one on every layer from which it has removed a hook."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 4))
    expected = flipout.perturb(copy.deepcopy(plain), GAUSSIAN)
    left: Any = copy.deepcopy(plain)
    left[0].forward = left[0].forward
    flipout.perturb(left, GAUSSIAN)
    with flipout.hold(left, seed=1), flipout.hold(expected, seed=1):
        assert torch.equal(left(X), expected(X))
    assert torch.equal(flipout.freeze(left)(X), plain(X))


def test_another_forward_is_refused() -> None:
    model: Any = nn.Sequential(nn.Linear(4, 4))
    model[0].forward = lambda x: x
    with pytest.raises(errors.Unsupported, match=r"0: its forward was replaced on the layer itself.*Perturb first"):
        flipout.perturb(model, GAUSSIAN)
    assert type(model[0]) is nn.Linear


def test_a_module_that_only_reads_know_may_have_its_own() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.ones(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.gain

    scale: Any = Scale()
    scale.forward = lambda x, forward=scale.forward: 2 * forward(x)
    model: Any = flipout.perturb(nn.Sequential(scale), GAUSSIAN, where="*gain")
    with flipout.hold(model, seed=1):
        y, weights = model(X), flipout.example_weights(model[0])["gain"]
    torch.testing.assert_close(y, 2 * torch.einsum("ni,nio->no", X, weights))
