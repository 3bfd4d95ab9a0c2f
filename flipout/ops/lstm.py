"""The LSTM of flipout with its backward pass written out.

It computes what `recurrent.Scan` defines: the product of the input for all steps at once, two products per step each
way, and the weight gradients at the end.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._batched_gradients import one_at_a_time
from ..backend import without_autocast
from .base import refuse_double_backward
from .lstm_steps import Weight, run_backward, run_forward
from .onednn import linear, outer_sum

# What cannot be differentiated twice, and what to do instead.
WRITTEN_OUT = (
    "The LSTM of flipout in single and half precision",
    "Use double precision, or run the forward pass inside `with flipout.backend.choosing('eager'):`",
)
REGULARIZED = "A regularised LSTM in single and half precision on a GPU", "Use double precision"
NO_WEIGHT = (None,) * len(Weight._fields)


class PlainWeight(NamedTuple):
    """A matrix without noise, with the fields of a `Weight`."""

    mean: Tensor
    delta: None = None
    r: None = None
    s: None = None


class FlippedLSTM(torch.autograd.Function):
    """All steps of one layer in one direction.

    The arguments are x (N, time, features), h, c, the fields of the input's `Weight` or `PlainWeight`, those of the
    recurrent `Weight`, the bias, and whether time runs backward. With `NO_WEIGHT` for the input, x is the product that
    its weight would give, (N, time, 4H). The outputs are those of all steps (time, N, H), and the last h and c.

    The backward pass needs x and the sequences of h, c and gates, which are kept.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, h: Tensor, c: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
        of_input, of_state, (bias, reverse) = others[:4], others[4:8], others[8:]
        is_product, x_by_time = of_input[0] is None, x.transpose(0, 1)
        gates = _copied(x_by_time, bias) if is_product else _input_product(x_by_time, of_input, bias)
        states, cells = (part.new_empty(len(gates) + 1, *part.shape) for part in (h, c))
        first, last = (-1, 0) if reverse else (0, -1)
        states[first], cells[first] = h, c
        run_forward(gates, _around(states, reverse), _around(cells, reverse), Weight(*of_state), reverse)
        ctx.save_for_backward(None if is_product else x, states, cells, gates, *of_input, *of_state)
        ctx.reverse = reverse
        outputs = _around(states, reverse)[1]
        return outputs.clone(), states[last].clone(), cells[last].clone()

    @staticmethod
    @one_at_a_time
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        refuse_double_backward(*WRITTEN_OUT)
        with without_autocast(grads[0].device.type):
            return FlippedLSTM._backward(ctx, *grads)

    @staticmethod
    def _backward(ctx: Any, dy: Tensor, dh: Tensor, dc: Tensor) -> tuple[Tensor | None, ...]:
        x, states, cells, gates, *weights = ctx.saved_tensors
        recurrent, before = Weight(*weights[4:]), _around(states, ctx.reverse)[0]
        needs_x, needs_input, needs_recurrent, needs_bias = _needs(ctx.needs_input_grad)
        dgates, dh, dc = torch.empty_like(gates), dh.resolve_neg().clone(), dc.resolve_neg().clone()
        run_backward((dy, dh, dc), gates, _around(cells, ctx.reverse), dgates, recurrent, ctx.reverse)
        dbias = dgates.sum((0, 1)) if needs_bias else None
        dx, dinput = dgates, NO_WEIGHT[:2]
        if x is None:
            _, *drecurrent = _gradients(dgates.clone(), before, recurrent, False, needs_recurrent)
        else:
            _, *drecurrent = _gradients(dgates, before, recurrent, False, needs_recurrent)
            dgates *= recurrent.r  # flipping twice restores them
            dx, *dinput = _gradients(dgates, x.transpose(0, 1), weights[:4], needs_x, needs_input)
        dx = None if dx is None else dx.transpose(0, 1)
        return dx, dh, dc, *dinput, None, None, *drecurrent, None, None, dbias, None


def _needs(needs: tuple[bool, ...]) -> tuple[bool, tuple[bool, ...], tuple[bool, ...], bool]:
    """Return which gradients are needed: of x, of W̄ and ΔŴ of the input, of those of the state, and of the bias."""
    return needs[0], needs[3:5], needs[7:9], needs[11]


def _copied(product: Tensor, bias: Tensor | None) -> Tensor:
    gates = torch.empty_like(product, memory_format=torch.contiguous_format)
    return gates.copy_(product) if bias is None else torch.add(product, bias, out=gates)


def _input_product(x: Tensor, weight: Sequence[Any], bias: Tensor | None) -> Tensor:
    """Return (time, N, 4H) for x (time, N, features)."""
    mean, delta, r, s = weight
    product = linear(x, mean, bias)
    if delta is None:
        return product
    return product.addcmul_(linear(x * s, delta), r)


def _gradients(
    grad: Tensor, x: Tensor, weight: Sequence[Any], needs_x: bool, needs: tuple[bool, ...]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of x, W̄ and ΔŴ, where needed. Flips `grad` in place to spare memory, if there is noise."""
    mean, delta, r, s = weight
    dx = linear(grad, mean.T) if needs_x else None
    dmean = outer_sum(grad, x) if needs[0] else None
    if delta is None:
        return dx, dmean, None
    grad *= r
    if dx is not None:
        dx.addcmul_(linear(grad, delta.T), s)
    return dx, dmean, outer_sum(grad, x * s) if needs[1] else None


def _around(sequence: Tensor, reverse: bool) -> tuple[Tensor, Tensor]:
    """Return the states before and after every step, of a sequence with one state more than there are steps."""
    return (sequence[1:], sequence[:-1]) if reverse else (sequence[:-1], sequence[1:])
