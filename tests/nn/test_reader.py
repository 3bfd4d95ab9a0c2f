"""A read inside an autograd Function is refused, with the line that reads."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import flipout
from flipout import errors
from tests.networks import GAUSSIAN
from tests.nn.readings import IN, N, Reader, T


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return F.linear(x, weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, grads[0].flatten(0, -2).T @ ctx.saved_tensors[0].flatten(0, -2)


@pytest.mark.parametrize("scheme", ["flipout", "shared"])
def test_a_function_with_its_own_backward_is_refused(scheme: Any) -> None:
    model = flipout.perturb(
        Reader(lambda m, x: Double.apply(x, m.linear.weight)), GAUSSIAN, scheme=scheme, where="linear.*"
    )
    with pytest.raises(errors.UnservedRead, match=r"linear\.weight: linear .*torch\.autograd\.Function"):
        model(torch.randn(N, T, IN))
