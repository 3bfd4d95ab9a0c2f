"""A layer class declares Parameters that exist."""

import pytest
import torch
from torch import nn

import flipout
from flipout import errors


def test_a_registered_layer_that_perturbs_nothing():
    class Plain(nn.Linear):
        pass

    class Forgetful(flipout.nn.Perturbed, Plain, default=("weight",)):
        pass

    with pytest.raises(errors.InvalidArgument, match="no forward of its own"):
        flipout.register(Plain, Forgetful)


def test_a_registered_layer_that_names_no_parameter():
    class Plain(nn.Linear):
        pass

    class Nameless(flipout.nn.Perturbed, Plain):
        default = ("weight",)  # an attribute is not a class argument

        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return input

    with pytest.raises(errors.InvalidArgument, match=r'names no Parameter.*default=\("weight",\)'):
        flipout.register(Plain, Nameless)
