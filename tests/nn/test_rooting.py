"""A layer takes its draws from the model around it, and from itself if it is copied out."""

import copy
from typing import Any

import torch
from torch import nn

import flipout
from tests.networks import GAUSSIAN
from tests.nn.structures import X, stack


def test_a_copied_layer_alone_is_its_own_root():
    model = stack()
    layer = copy.deepcopy(model.fc1)
    assert not torch.equal(layer(X), layer(X))
    with flipout.hold(model, seed=1), flipout.hold(layer, seed=1):
        model(X)
        assert torch.equal(layer(X), model.fc1(X))
    for _ in range(20):
        model.fc2 = copy.deepcopy(model.fc2)
        model(X)
    assert len(model.fc2.flipout.roots) == 1


def test_a_copied_root_inside_a_root():
    """The copy of an outer root is recognised before it ever runs."""
    inner = flipout.perturb(nn.Sequential(nn.Linear(4, 4)), GAUSSIAN)
    outer: Any = flipout.perturb(nn.Sequential(inner, nn.Linear(4, 4)), GAUSSIAN)
    other = copy.deepcopy(outer)
    for each in (outer, other):
        flipout.perturb(each[0], GAUSSIAN, where="*.bias")
        assert len(each[0][0].flipout.roots) == 2
        assert not torch.equal(each(X), each(X))
