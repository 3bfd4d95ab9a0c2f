"""A layer of another library is told by the name of its class, and has its noise for each example."""

from typing import Any

import torch
from torch import Tensor, nn

import flipout
from flipout.nn.foreign import MIXINS, Conv1D
from flipout.nn.kinds import class_path
from tests.networks import GAUSSIAN


class StandIn(nn.Module):
    """As transformers writes it: the weight is (in, out), and tokens are folded into rows."""

    def __init__(self, outputs: int, inputs: int) -> None:
        super().__init__()
        self.nf = outputs
        self.weight = nn.Parameter(torch.randn(inputs, outputs, dtype=torch.float64))
        self.bias = nn.Parameter(torch.randn(outputs, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        return y.view(*x.shape[:-1], self.nf)


StandIn.__module__, StandIn.__qualname__, StandIn.__name__ = "transformers.pytorch_utils", "Conv1D", "Conv1D"


def test_each_example_has_its_own_weight() -> None:
    assert MIXINS[class_path(StandIn)] is Conv1D
    model: Any = flipout.perturb(nn.Sequential(StandIn(3, 4)), GAUSSIAN)
    assert isinstance(model[0], Conv1D)
    x = torch.randn(5, 6, 4, dtype=torch.float64)
    with flipout.hold(model, seed=1):
        y = model(x)
        weights = flipout.example_weights(model[0])["weight"]
    torch.testing.assert_close(y, x @ weights + model[0].bias)
    assert not torch.allclose(weights[0], weights[1])
    assert torch.equal(model.eval()(x), StandIn.forward(model[0], x))  # pyright: ignore[reportArgumentType]
