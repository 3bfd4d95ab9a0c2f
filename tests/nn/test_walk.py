"""The short walk finds what torch's finds, in its order."""

import pytest
import torch
from torch import nn

from flipout.nn.walk import named_modules, named_parameters


class Tied(nn.Module):
    """A module and a Parameter under two names each, a child that is None, and the model inside itself by no name."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(2)])
        self.again = self.blocks[1]
        self.missing = None
        self.register_module("nothing", None)
        self.decoder = nn.Linear(4, 5, bias=False)
        self.decoder.weight = self.embedding.weight
        self.scale = nn.Parameter(torch.ones(1))
        self.register_parameter("no", None)


@pytest.mark.parametrize("make", [Tied, lambda: nn.Linear(2, 3), lambda: nn.TransformerEncoderLayer(4, 2)])
def test_the_walk_is_that_of_torch(make) -> None:
    model = make()
    assert list(named_modules(model).items()) == list(model.named_modules())
    expected = list(model.named_parameters())
    found = list(named_parameters(model))
    assert [name for name, _ in found] == [name for name, _ in expected]
    assert all(ours is theirs for (_, ours), (_, theirs) in zip(found, expected, strict=True))
