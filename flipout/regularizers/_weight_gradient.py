"""The gradient of a recurrent weight in one product for all steps, instead of one product and one sum per step."""

from typing import Any

import torch
from torch import Tensor

from .._batched_gradients import one_at_a_time
from ..backend import without_autocast
from ..draws.bits import is_transformed
from ..ops.base import refuse_double_backward
from ..ops.lstm import REGULARIZED


def is_worthwhile(x: Tensor) -> bool:
    """Return True if one product for all steps is faster: on a GPU, where a product per step takes most of the time.

    Double precision keeps a product per step, so that it can be differentiated twice.
    """
    return x.is_cuda and x.dtype != torch.float64 and torch.is_grad_enabled() and not is_transformed()


class CollectedGradient(torch.autograd.Function):
    """Return the product of the input, W_ih x, and give W_hh its gradient.

    The gates are a function of W_ih x + W_hh h, so both summands have the same gradient dg. That of W_hh is
    Σ_t dg_t h_{t−1}ᵀ. `states` are filled during the forward pass with the h that W_hh was multiplied by.
    """

    @staticmethod
    def forward(ctx: Any, gates: Tensor, weight: Tensor, states: list[Tensor], reverse: bool) -> Tensor:
        ctx.states, ctx.reverse, ctx.dtype = states, reverse, weight.dtype
        return gates.view_as(gates)

    @staticmethod
    @one_at_a_time
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        refuse_double_backward(*REGULARIZED)
        (grad,) = grads
        h = torch.stack(ctx.states[::-1] if ctx.reverse else ctx.states, 1)
        with without_autocast(grad.device.type):
            weight_grad = grad.flatten(0, 1).T @ h.flatten(0, 1).to(grad.dtype)
        return grad, weight_grad.to(ctx.dtype), None, None
