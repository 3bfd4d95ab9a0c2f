"""A small converted network."""

import pytest
from torch import nn

import flipout
from tests.networks import GAUSSIAN, mlp


@pytest.fixture
def model() -> nn.Sequential:
    return flipout.perturb(mlp(), GAUSSIAN)
