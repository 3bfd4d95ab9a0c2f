"""A roster lists what the layers of a model draw, with the dimensions of their signs."""

from typing import Any

import torch
from torch import nn

import flipout
from flipout.nn.plan import parameter_key
from flipout.nn.roster import layers_under, roster_of
from tests.networks import GAUSSIAN


def test_items() -> None:
    model: Any = flipout.perturb(nn.Sequential(nn.Linear(4, 3), nn.Conv2d(4, 6, 3, groups=2)), GAUSSIAN, where="*")
    (root,) = {root for root, _ in model[0].flipout.roots}
    layers = layers_under(root, model)
    assert [layer for layer, _ in layers] == list(model)
    roster = roster_of(model, layers)
    items = {item.key: item for item in roster.items}
    assert items[parameter_key("0.weight")].over == ((0, 3), (1, 4))
    assert items[parameter_key("1.weight")].over == ((0, 6), (1, 4))  # two groups of two channels
    assert items[parameter_key("0.bias")].over == ((0, 3),)
    assert all(item.is_normal for item in items.values())
    assert roster.lists([layer.flipout for layer, _ in layers])
    assert not roster.lists([model[0].flipout])


def test_other_noise_is_drawn_elsewhere_and_the_device_is_the_models() -> None:
    model: Any = flipout.perturb(nn.Linear(4, 3, device="meta"), flipout.DropConnect(0.5))
    (root,) = {root for root, _ in model.flipout.roots}
    roster = roster_of(model, layers_under(root, model))
    assert [item.is_normal for item in roster.items] == [False]
    assert roster.device == torch.device("meta")
    del model, root
    assert roster.device == torch.device("cpu")  # the roster keeps no model alive
