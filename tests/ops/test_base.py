"""What all ops share."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout.ops.conv import Conv
from flipout.ops.linear import Linear
from tests.oracles import tensor

LAYERS: dict[str, tuple[Any, type, tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(4, 3), Linear, (4,)),
    "tokens": (lambda: nn.Linear(4, 3), Linear, (5, 4)),
    "convolution": (lambda: nn.Conv2d(2, 3, 3), Conv, (2, 5, 5)),
}


@pytest.mark.parametrize("scheme", ["flipout", flipout.Flipout(group=3), flipout.LowRank(2)], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_one_input_for_all_rows_is_multiplied_once(name: str, scheme: Any, monkeypatch) -> None:
    """An expanded input gives what its copies give, gradients too, and W̄ meets it once (where no group is cut)."""
    make, op, shape = LAYERS[name]
    layer = flipout.perturb(make().double(), flipout.Gaussian(0.3), scheme=scheme)
    x, met, apply = tensor(1, *shape), [], op.apply

    def counted(self: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if bias is not None:
            met.append(len(x))
        return apply(self, x, weight, bias)

    monkeypatch.setattr(op, "apply", counted)
    made = []
    for rows in (x.expand(6, *shape), x.repeat(6, *[1] * len(shape))):
        with flipout.hold(layer, seed=1):
            y = layer(rows)
        made.append((y, *torch.autograd.grad(y.square().sum(), (x, *layer.parameters()))))
    torch.testing.assert_close(made[0], made[1])
    assert met == [1, 6]


def test_an_input_with_a_negative_bit() -> None:
    """The imaginary part of a conjugate: torch negates it when it is read."""
    layer = flipout.perturb(nn.Linear(4, 3), flipout.Gaussian(0.3))
    x = torch.randn(5, 4, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    with flipout.hold(layer, 7):
        torch.testing.assert_close(layer(x), layer(x.resolve_neg()))
