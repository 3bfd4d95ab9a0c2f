"""`Turned` is `Linear` with the weight stored as its transpose."""

import pytest
import torch

from flipout.ops.linear import Linear
from flipout.ops.turned import Turned
from tests.ops.arithmetic import check_factored, check_gradients, check_stacked, tensor


@pytest.mark.parametrize("shape", [(6, 4), (6, 5, 4)], ids=["rows", "tokens"])
def test_a_product_with_the_transpose(shape: tuple[int, ...]) -> None:
    x, weight, bias = tensor(*shape), tensor(4, 3), tensor(3)
    torch.testing.assert_close(Turned(4, 3).apply(x, weight, bias), Linear(4, 3).apply(x, weight.T, bias))
    check_gradients(Turned(4, 3), x, weight)
    check_stacked(Turned(4, 3), x, tensor(3, 4, 3))


def test_factors() -> None:
    left, right = tensor(6, 4, 2), tensor(6, 2, 3)
    check_factored(Turned(4, 3), tensor(6, 4), left, right, left @ right)


def test_a_product_is_added_in_place() -> None:
    y, x, weight = tensor(4, 3), tensor(4, 5), tensor(5, 3)
    before, op = y.detach().clone(), Turned(5, 3)
    with torch.no_grad():
        op.add_to(y, x, weight)
        torch.testing.assert_close(y, before + op.apply(x, weight))
