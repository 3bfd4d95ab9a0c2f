"""`Conv` with one kernel and with several, its transpose, its gradients and its factors."""

import pytest
import torch
from torch.nn import functional

from flipout.ops.conv import Conv
from tests.ops.arithmetic import check_factored, check_gradients, check_stacked, tensor

PLAIN = Conv(4, 6, (2, 1), (1, 0), (1, 2), 2)
TRANSPOSED = Conv(4, 6, (2, 1), (1, 0), (1, 2), 2, transposed=True, output_padding=(1, 0))
SHAPES = {"plain": (PLAIN, (6, 2, 3, 2)), "transposed": (TRANSPOSED, (4, 3, 3, 2))}


def test_they_are_those_of_torch() -> None:
    x, bias = tensor(6, 4, 7, 6), tensor(6)
    weight = tensor(*SHAPES["plain"][1])
    expected = functional.conv2d(x, weight, bias, (2, 1), (1, 0), (1, 2), 2)
    torch.testing.assert_close(PLAIN.apply(x, weight, bias), expected)
    assert PLAIN.positions(x, expected) == expected[0, 0].numel()
    weight = tensor(*SHAPES["transposed"][1])
    expected = functional.conv_transpose2d(x, weight, bias, (2, 1), (1, 0), (1, 0), 2, (1, 2))
    torch.testing.assert_close(TRANSPOSED.apply(x, weight, bias), expected)
    assert TRANSPOSED.positions(x, expected) == x[0, 0].numel()


@pytest.mark.parametrize("name", SHAPES)
def test_one_kernel_and_several(name: str) -> None:
    op, shape = SHAPES[name]
    x = tensor(6, 4, 7, 6)
    check_gradients(op, x, tensor(*shape))
    check_stacked(op, x, tensor(3, *shape))
    check_stacked(op, x, tensor(6, *shape))


@pytest.mark.parametrize("name", SHAPES)
def test_factors(name: str) -> None:
    op, (rows, *others) = SHAPES[name]
    left, right = tensor(6, rows, 2), tensor(6, 2, *others)
    check_factored(op, tensor(6, 4, 7, 6), left, right, torch.einsum("ndr,rnchw->ndchw", left, right.transpose(0, 1)))
