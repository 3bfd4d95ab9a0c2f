"""A subclass of a known layer is perturbed as its base is."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import flipout
from tests.known import Custom, PerturbedCustom
from tests.networks import GAUSSIAN
from tests.nn.readings import N
from tests.zoo.oracle import weights_by_example


class Wrapped(nn.Linear):
    """A subclass that ends in super().forward."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(2 * input)


class Standardised(nn.Conv2d):
    """A subclass that computes its kernel, as NFNets do."""

    def forward(self, input: Tensor) -> Tensor:
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return self._conv_forward(input, weight / weight.std((1, 2, 3), keepdim=True), self.bias)


class Inherited(nn.Linear):
    """A subclass without a forward of its own."""


class ScaledNoise(nn.Embedding):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * 3.0


@pytest.mark.parametrize(
    ("layer", "x", "where"),
    [
        (Wrapped(4, 3), torch.randn(N, 4), None),
        (Inherited(4, 3), torch.randn(N, 4), None),
        (Standardised(2, 3, 2), torch.randn(N, 2, 5, 5), None),
        (ScaledNoise(7, 3), torch.randint(7, (N, 2)), "*"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_subclasses_of_known_layers(layer: nn.Module, x: Tensor, where: Any) -> None:
    plain = nn.Sequential(layer).double()
    x = x.double() if x.is_floating_point() else x
    model = flipout.perturb(copy.deepcopy(plain), GAUSSIAN, where=where)
    assert isinstance(model[0], type(layer))
    for each in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        with flipout.hold(each, seed=2):
            actual = each(x)
            weights = weights_by_example(each)
        truth = torch.cat(
            [functional_call(plain, row_weights, (x[n : n + 1],)) for n, row_weights in enumerate(weights)]
        )
        torch.testing.assert_close(actual, truth)
        torch.testing.assert_close(each.eval()(x), plain(x))
    assert type(flipout.freeze(model)[0]) is type(layer)


class Doubled(Custom):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_a_class_that_derives_from_a_registered_one(monkeypatch):
    from flipout import _where as where

    class Read(PerturbedCustom):
        def forward(self, x: Tensor) -> Tensor:
            assert type(self.gain) is nn.Parameter  # its own code adds the noise
            return super().forward(x)

    monkeypatch.setattr(where, "_LAYERS", {**where._LAYERS, Custom: Read})
    model = flipout.perturb(nn.Sequential(Doubled()), GAUSSIAN)
    x = torch.randn(5, 4)
    with flipout.hold(model):
        actual = model(x)
        weights = flipout.example_weights(model[0])["gain"]
    torch.testing.assert_close(actual, 2 * torch.einsum("noi,ni->no", weights, x))
