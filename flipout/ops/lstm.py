"""The LSTM of flipout with its backward pass written out: two products a step each way, weight gradients at the end.

It keeps the sequences of h, c and gates for backward, and computes what `recurrent.Scan` defines.
"""

from typing import Any

import torch
from torch import Tensor

from .._batched_gradients import one_at_a_time
from ..backend import without_autocast
from .base import refuse_double_backward

aten = torch.ops.aten


class FlippedLSTM(torch.autograd.Function):
    """W_ih x of all times (N, time, 4H), h, c, and W_hh as W̄, ΔŴ, biases, r, s → outputs (time, N, H), h, c."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        h: Tensor,
        c: Tensor,
        mean: Tensor,
        delta: Tensor,
        bias: Tensor | None,
        r: Tensor,
        s: Tensor,
        reverse: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        steps, width = x.shape[1], h.shape[-1]
        gates = x.new_empty(steps, *h.shape[:-1], 4 * width)
        states, cells = (x.new_empty(steps + 1, *part.shape, dtype=part.dtype) for part in (h, c))
        states[0], cells[0] = h, c
        weights = torch.stack((mean, delta)).mT
        pair, products = h.new_empty(2, *h.shape), gates.new_empty(2, *gates.shape[1:])
        (plain, flipped), (straight, turned) = pair, products
        inputs, hs, cs = x.unbind(1), states.unbind(0), cells.unbind(0)
        for n, (t, own) in enumerate(zip(_order(steps, reverse), gates.unbind(0), strict=True)):
            if bias is None:
                own.copy_(inputs[t])
            else:
                torch.add(inputs[t], bias, out=own)
            torch.mul(plain.copy_(hs[n]), s, out=flipped)
            torch.bmm(pair, weights, out=products)
            own.add_(straight).addcmul_(turned, r)
            both, g, o = own.split((2 * width, width, width), -1)
            i, f = both.sigmoid_().split(width, -1)
            torch.mul(f, cs[n], out=cs[n + 1]).addcmul_(i, g.tanh_())
            torch.mul(o.sigmoid_(), cs[n + 1].tanh(), out=hs[n + 1])
        ctx.save_for_backward(states, cells, gates, mean, delta, r, s)
        ctx.reverse, ctx.biased = reverse, bias is not None
        y = states[1:].flip(0) if reverse else states[1:].clone()
        return y, states[-1].clone(), cells[-1].clone()

    @staticmethod
    @one_at_a_time
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        refuse_double_backward(*WRITTEN_OUT)
        with without_autocast(grads[0].device.type):
            return FlippedLSTM._backward(ctx, *grads)

    @staticmethod
    def _backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        states, cells, gates, mean, delta, r, s = ctx.saved_tensors
        dy, dh, dc = grads
        steps, width = len(gates), states.shape[-1]
        weights = torch.stack((mean, delta))
        pairs, products = gates.new_empty(2, *gates.shape), gates.new_empty(2, *states.shape[1:])
        dgates, turned = pairs
        slopes, through = _slopes(gates, cells)
        order, forget = list(_order(steps, ctx.reverse)), gates.unflatten(-1, (4, width))[:, :, 1].unbind(0)
        by_gate = zip(*(one.unflatten(-1, (4, width)).unbind(0) for one in (slopes, dgates)), strict=True)
        every = list(zip(by_gate, dgates.unbind(0), turned.unbind(0), through.unbind(0), strict=True))
        for n in reversed(range(steps)):
            (slope, parts), own, flipped, on = every[n]
            dh = dh + dy[order[n]]
            dc = torch.addcmul(dc, dh, on)
            torch.mul(slope[:, :3], dc.unsqueeze(1), out=parts[:, :3])
            torch.mul(slope[:, 3], dh, out=parts[:, 3])
            dc = dc * forget[n]
            torch.mul(own, r, out=flipped)
            torch.bmm(pairs[:, n], weights, out=products)
            dh = torch.addcmul(products[0], products[1], s)
        before, needs = states[:-1], ctx.needs_input_grad
        dx = (dgates.flip(0) if ctx.reverse else dgates).transpose(0, 1)
        dmean = _outer(dgates, before) if needs[3] else None
        ddelta = _outer(turned, before * s) if needs[4] else None
        dbias = dgates.sum((0, 1)) if ctx.biased and needs[5] else None
        return dx, dh, dc, dmean, ddelta, dbias, None, None, None


# What cannot be differentiated twice, and what to do instead.
WRITTEN_OUT = (
    "The LSTM of flipout in single and half precision",
    "Use double precision, or do the forward pass inside of `with flipout.backend.using('eager'):`",
)
RULED = "A regularised LSTM in single and half precision on a GPU", "Use double precision"


def _slopes(gates: Tensor, cells: Tensor) -> tuple[Tensor, Tensor]:
    """For all steps at once: what dc (for o: dh) is multiplied with to give the gradients of the gates before their
    activation, and how much of dh goes to dc."""
    tanh, slopes = cells[1:].tanh(), torch.empty_like(gates)
    (i, f, g, o), (si, sf, sg, so) = gates.chunk(4, -1), slopes.chunk(4, -1)
    aten.sigmoid_backward(g, i, grad_input=si)
    aten.sigmoid_backward(cells[:-1], f, grad_input=sf)
    aten.tanh_backward(i, g, grad_input=sg)
    aten.sigmoid_backward(tanh, o, grad_input=so)
    return slopes, aten.tanh_backward(o, tanh)


def _order(steps: int, reverse: bool) -> range:
    return range(steps - 1, -1, -1) if reverse else range(steps)


def _outer(grad: Tensor, x: Tensor) -> Tensor:
    return grad.flatten(0, 1).T @ x.flatten(0, 1)
