"""A module becomes the perturbed class of its type, unless it needs the name `flipout` itself."""

from typing import Any

import pytest
from torch import nn

import flipout
from flipout import errors
from tests.known import Custom
from tests.networks import GAUSSIAN, same_state, state


def test_an_attribute_that_a_perturbed_layer_needs_is_refused():
    model: Any = nn.Sequential(nn.Linear(4, 4), Custom())
    model[1].flipout = True
    before = state(model)
    with pytest.raises(errors.Unsupported, match=r"1: a tests\.known\.Custom has an attribute 'flipout'"):
        flipout.perturb(model, GAUSSIAN, where="1.gain")
    assert same_state(before, state(model))
