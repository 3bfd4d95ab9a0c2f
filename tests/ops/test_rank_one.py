"""W̄ + r sᵀ of each example, without forming it."""

import pytest
import torch
from torch import Tensor

from flipout.ops.linear import Linear
from flipout.ops.rank_one import dot_products, rank_one_product
from flipout.ops.turned import Turned


def truth(x: Tensor, mean: Tensor, r: Tensor, s: Tensor, bias: Tensor | None) -> Tensor:
    weights = mean + r.unsqueeze(-1) * s.unsqueeze(1)
    rows = x.unflatten(0, (len(s), -1))
    y = torch.einsum("ek...i,eoi->ek...o", rows, weights)
    if bias is not None:
        y = y + (bias if bias.dim() == 1 else bias.view(len(s), *[1] * (y.dim() - 2), -1))
    return y.flatten(0, 1)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("shape", [(3, 5), (6, 5), (3, 4, 5), (6, 2, 3, 5), (3, 2000, 5)], ids=str)
@pytest.mark.parametrize("bias", [(), (4,), (3, 4)], ids=str)
def test_the_product(shape: tuple[int, ...], bias: tuple[int, ...], grad: bool) -> None:
    x, mean, r, s = (torch.randn(size).double() for size in (shape, (4, 5), (3, 4), (3, 5)))
    added = torch.randn(bias).double() if bias else None
    with torch.set_grad_enabled(grad):
        found = rank_one_product(Linear(5, 4), x, mean, r, s, added)
        turned = rank_one_product(Turned(5, 4), x, mean.T.contiguous(), r, s, added)
    torch.testing.assert_close(found, truth(x, mean, r, s, added))
    torch.testing.assert_close(turned, found)


@pytest.mark.parametrize("grad", [True, False])
def test_an_input_that_is_not_contiguous(grad: bool) -> None:
    x, s = torch.randn(4, 3, 5).double().transpose(0, 1), torch.randn(3, 5).double()
    with torch.set_grad_enabled(grad):
        torch.testing.assert_close(dot_products(x, s), torch.einsum("eki,ei->ek", x, s).unsqueeze(-1))


@pytest.mark.parametrize(("fan_in", "fan_out"), [(0, 4), (5, 0)])
@pytest.mark.parametrize("grad", [True, False])
def test_without_features(fan_in: int, fan_out: int, grad: bool) -> None:
    x, mean, r, s = (torch.randn(size) for size in ((6, 2, fan_in), (fan_out, fan_in), (3, fan_out), (3, fan_in)))
    with torch.set_grad_enabled(grad):
        y = rank_one_product(Linear(fan_in, fan_out), x, mean, r, s, torch.ones(fan_out))
    assert torch.equal(y, torch.ones(6, 2, fan_out))


def test_the_input_is_left_alone() -> None:
    x, mean, r, s = (torch.randn(size) for size in ((3, 5), (4, 5), (3, 4), (3, 5)))
    before = [t.clone() for t in (x, mean, r, s)]
    with torch.no_grad():
        rank_one_product(Linear(5, 4), x, mean, r, s, None)
    assert all(torch.equal(a, b) for a, b in zip((x, mean, r, s), before, strict=True))
