"""`Linear` with one weight and with several, its gradients and its factors."""

import pytest
import torch
from torch.nn import functional

from flipout.ops.linear import Linear
from tests.ops.arithmetic import check_factored, check_gradients, check_stacked, tensor


@pytest.mark.parametrize("shape", [(6, 4), (6, 5, 4)], ids=["rows", "tokens"])
def test_a_product_over_the_last_dimension(shape: tuple[int, ...]) -> None:
    op, x, weight, bias = Linear(4, 3), tensor(*shape), tensor(3, 4), tensor(3)
    assert torch.equal(op.apply(x, weight, bias), functional.linear(x, weight, bias))
    check_gradients(op, x, weight)
    check_stacked(op, x, tensor(3, 3, 4))
    check_stacked(op, x, tensor(6, 3, 4))


def test_factors() -> None:
    left, right = tensor(6, 3, 2), tensor(6, 2, 4)
    check_factored(Linear(4, 3), tensor(6, 4), left, right, left @ right)


def test_the_positions_of_an_example_are_its_tokens() -> None:
    x = tensor(6, 5, 2, 4)
    assert Linear(4, 3).positions(x, x) == 10


def test_a_product_is_added_in_place() -> None:
    y, x, weight = tensor(4, 3), tensor(4, 5), tensor(3, 5)
    before, op = y.detach().clone(), Linear(5, 3)
    with torch.no_grad():
        op.add_to(y, x, weight)
        torch.testing.assert_close(y, before + op.apply(x, weight))
