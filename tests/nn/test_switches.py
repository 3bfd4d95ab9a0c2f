"""A module that switches a perturbed layer off takes it out of the KL and of the warnings."""

import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout import bayes, errors
from flipout.nn.switches import Switch, idle_parameters


class Either(nn.Module, Switch):
    """Calls one of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.is_left = nn.Linear(3, 2), nn.Linear(3, 2), True

    def forward(self, x: Tensor) -> Tensor:
        return (self.left if self.is_left else self.right)(x)

    def idle(self) -> Iterator[tuple[flipout.nn.Perturbed, str]]:
        layer = self.right if self.is_left else self.left
        if isinstance(layer, flipout.nn.Perturbed):
            yield layer, "weight"


def perturbed() -> nn.Sequential:
    model = nn.Sequential(Either(), nn.Linear(2, 2))
    return flipout.perturb(model, flipout.MeanField(prior=bayes.Normal(0.0, 1.0)))


def test_the_layer_that_is_off_has_no_kl() -> None:
    model = perturbed()
    assert bayes.kl_terms(model).keys() == {"0.left.weight", "1.weight"}
    model[0].is_left = False  # pyright: ignore[reportArgumentType]
    assert bayes.kl_terms(model).keys() == {"0.right.weight", "1.weight"}
    assert {name for _, name in idle_parameters(model)} == {"weight"}


def test_the_layer_that_is_off_is_not_said_to_be_unread() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", errors.NeverRead)
        perturbed()(torch.randn(4, 3))


def test_without_a_switch_both_count() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.left(x)

    model = flipout.perturb(Plain(), flipout.MeanField(prior=bayes.Normal(0.0, 1.0)))
    assert len(bayes.kl_terms(model)) == 2
    with pytest.warns(errors.NeverRead, match=r"right\.weight"):
        model(torch.randn(4, 3))
