"""The LSTM of flipout with its backward pass written out: two products a step each way, weight gradients at the end.

It keeps the sequences of h, c and gates for backward, and computes what `recurrent.Scan` defines.
"""

from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


class FlippedLSTM(torch.autograd.Function):
    """W_ih x + b_ih of all times (N, time, 4H), h, c, and W_hh as W̄, ΔŴ, bias, r, s → outputs (time, N, H), h, c."""

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
        flat_mean, flat_delta = mean.T, delta.T
        flipped = torch.empty_like(h)
        for n, t in enumerate(_order(steps, reverse)):
            before = x[:, t] if bias is None else x[:, t] + bias
            torch.mul(states[n], s, out=flipped)
            own = torch.addmm(before, states[n], flat_mean, out=gates[n])
            own.addcmul_(torch.mm(flipped, flat_delta), r)
            i, f, g, o = own.split(width, -1)
            own[:, : 2 * width].sigmoid_()
            g.tanh_()
            o.sigmoid_()
            torch.mul(f, cells[n], out=cells[n + 1]).addcmul_(i, g)
            torch.mul(o, cells[n + 1].tanh(), out=states[n + 1])
        ctx.save_for_backward(states, cells, gates, mean, delta, r, s)
        ctx.reverse, ctx.biased = reverse, bias is not None
        y = states[1:].flip(0) if reverse else states[1:].clone()
        return y, states[-1].clone(), cells[-1].clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        with torch.autocast(grads[0].device.type, enabled=False):
            return FlippedLSTM._backward(ctx, *grads)

    @staticmethod
    def _backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        states, cells, gates, mean, delta, r, s = ctx.saved_tensors
        dy, dh, dc = grads
        steps, width = len(gates), states.shape[-1]
        dgates, turned = torch.empty_like(gates), torch.empty_like(gates)
        dx = gates.new_empty(gates.shape[1], steps, gates.shape[2])
        order = list(_order(steps, ctx.reverse))
        dc = dc.clone()
        for n in reversed(range(steps)):
            i, f, g, o = gates[n].split(width, -1)
            own = dgates[n]
            di, df, dg, do = own.split(width, -1)
            dh = dh + dy[order[n]]
            tanh = cells[n + 1].tanh()
            dc += aten.tanh_backward(dh * o, tanh)
            torch.mul(dc, g, out=di)
            torch.mul(dc, cells[n], out=df)
            aten.sigmoid_backward(own[:, : 2 * width], gates[n][:, : 2 * width], grad_input=own[:, : 2 * width])
            aten.tanh_backward(dc * i, g, grad_input=dg)
            aten.sigmoid_backward(dh * tanh, o, grad_input=do)
            dc = dc * f
            torch.mul(own, r, out=turned[n])
            dh = torch.addmm(torch.mm(turned[n], delta).mul_(s), own, mean)
            dx[:, order[n]] = own
        before = states[:-1]
        needs = ctx.needs_input_grad
        dmean = _outer(dgates, before) if needs[3] else None
        ddelta = _outer(turned, before * s) if needs[4] else None
        dbias = dgates.sum((0, 1)) if ctx.biased and needs[5] else None
        return dx, dh, dc, dmean, ddelta, dbias, None, None, None


def _order(steps: int, reverse: bool) -> range:
    return range(steps - 1, -1, -1) if reverse else range(steps)


def _outer(grad: Tensor, x: Tensor) -> Tensor:
    return grad.flatten(0, 1).T @ x.flatten(0, 1)
