"""LSTMs under masks by kernels: a product and a launch a step each way, the weight gradient of all steps at the end."""
# Triton reads a kernel's annotations and arguments in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# pyright: reportCallIssue=false

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import register
from ...batched import one_at_a_time
from ..base import refuse_double_backward
from ..linear import Linear
from ..lstm import REGULARIZED
from .base import INTERPRETED
from .gates import sigmoid, tanh
from .launch import launch

_ELEMENTS = 256


@triton.jit(do_not_specialize=["count"])
def forward_step(
    x, product, h, c, gates, made, y, c_next, fed, h_mask, g_mask, c_mask, keep_h, keep_c, count, width, x_row,
    MASKED_H: tl.constexpr, MASKED_G: tl.constexpr, MASKED_C: tl.constexpr, ZONED: tl.constexpr,
    ELEMENTS: tl.constexpr,
):  # fmt: skip
    """The next h and c from W_ih x, W_hh h and the last; fed is h as the next product sees it."""
    e = tl.program_id(0) * ELEMENTS + tl.arange(0, ELEMENTS)
    inside = e < count
    n, unit = e // width, e % width
    own, given = 4 * n * width + unit, n * x_row + unit
    pi = tl.load(x + given, mask=inside, other=0).to(tl.float32) + tl.load(product + own, mask=inside, other=0)
    pf = tl.load(x + given + width, mask=inside, other=0).to(tl.float32)
    pf += tl.load(product + own + width, mask=inside, other=0)
    pg = tl.load(x + given + 2 * width, mask=inside, other=0).to(tl.float32)
    pg += tl.load(product + own + 2 * width, mask=inside, other=0)
    po = tl.load(x + given + 3 * width, mask=inside, other=0).to(tl.float32)
    po += tl.load(product + own + 3 * width, mask=inside, other=0)
    i, f, g, o = sigmoid(pi), sigmoid(pf), tanh(pg), sigmoid(po)
    last = tl.load(c + e, mask=inside, other=0)
    candidate = g * tl.load(g_mask + e, mask=inside, other=0).to(tl.float32) if MASKED_G else g
    new = f * last + i * candidate
    if MASKED_C:
        new *= tl.load(c_mask + e, mask=inside, other=0).to(tl.float32)
    out = o * tanh(new)
    tl.store(gates + own, pi, mask=inside)
    tl.store(gates + own + width, pf, mask=inside)
    tl.store(gates + own + 2 * width, pg, mask=inside)
    tl.store(gates + own + 3 * width, po, mask=inside)
    tl.store(made + e, new, mask=inside)
    if ZONED:
        before = tl.load(h + e, mask=inside, other=0).to(tl.float32)
        out = tl.where(tl.load(keep_h + e, mask=inside, other=0) != 0, before, out)
        new = tl.where(tl.load(keep_c + e, mask=inside, other=0) != 0, last, new)
        tl.store(c_next + e, new, mask=inside)
    tl.store(y + e, out, mask=inside)
    if MASKED_H:
        out *= tl.load(h_mask + e, mask=inside, other=0).to(tl.float32)
        tl.store(fed + e, out, mask=inside)


@triton.jit(do_not_specialize=["count"])
def backward_step(
    dy, product, gates, made, c, dgates, dh, dc, h_mask, g_mask, c_mask, keep_h, keep_c, count, width,
    MASKED_H: tl.constexpr, MASKED_G: tl.constexpr, MASKED_C: tl.constexpr, ZONED: tl.constexpr,
    ELEMENTS: tl.constexpr,
):  # fmt: skip
    """The gradients of the gates before their activation. `product` is what comes back through W_hh; dh what passes it
    by, here and, for the step before, when this is done; dc likewise."""
    e = tl.program_id(0) * ELEMENTS + tl.arange(0, ELEMENTS)
    inside = e < count
    n, unit = e // width, e % width
    own = 4 * n * width + unit
    through = tl.load(product + e, mask=inside, other=0).to(tl.float32)
    if MASKED_H:
        through *= tl.load(h_mask + e, mask=inside, other=0).to(tl.float32)
    up = tl.load(dy + e, mask=inside, other=0).to(tl.float32) + through + tl.load(dh + e, mask=inside, other=0)
    down = tl.load(dc + e, mask=inside, other=0)
    around = tl.where(inside, 0.0, 0.0)
    by = around
    if ZONED:
        zoned_h = tl.load(keep_h + e, mask=inside, other=0) != 0
        zoned_c = tl.load(keep_c + e, mask=inside, other=0) != 0
        around, up = tl.where(zoned_h, up, 0), tl.where(zoned_h, 0, up)
        by, down = tl.where(zoned_c, down, 0), tl.where(zoned_c, 0, down)
    i = sigmoid(tl.load(gates + own, mask=inside, other=0).to(tl.float32))
    f = sigmoid(tl.load(gates + own + width, mask=inside, other=0).to(tl.float32))
    g = tanh(tl.load(gates + own + 2 * width, mask=inside, other=0).to(tl.float32))
    o = sigmoid(tl.load(gates + own + 3 * width, mask=inside, other=0).to(tl.float32))
    flat = tanh(tl.load(made + e, mask=inside, other=0))
    down += up * o * (1 - flat * flat)
    if MASKED_C:
        down *= tl.load(c_mask + e, mask=inside, other=0).to(tl.float32)
    update = down * tl.load(g_mask + e, mask=inside, other=0).to(tl.float32) if MASKED_G else down
    tl.store(dgates + own, update * g * i * (1 - i), mask=inside)
    tl.store(dgates + own + width, down * tl.load(c + e, mask=inside, other=0) * f * (1 - f), mask=inside)
    tl.store(dgates + own + 2 * width, update * i * (1 - g * g), mask=inside)
    tl.store(dgates + own + 3 * width, up * flat * o * (1 - o), mask=inside)
    tl.store(dh + e, around, mask=inside)
    tl.store(dc + e, down * f + by, mask=inside)


class RuledLSTM(torch.autograd.Function):
    """W_ih x + b of all times (N, time, 4H), h, c, W_hh, and masks: of h before W_hh (N, H), of g and of the c made
    (time or 1, N, H), and where h and c keep their last value (time, N, H) → outputs (time, N, H), h, c."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        h: Tensor,
        c: Tensor,
        weight: Tensor,
        h_mask: Tensor | None,
        g_mask: Tensor | None,
        c_mask: Tensor | None,
        keep_h: Tensor | None,
        keep_c: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        (count, steps, _), width = x.shape, h.shape[-1]
        x = x if x.stride(-1) == 1 else x.contiguous()
        recurrent = weight.to(x.dtype)
        y, gates = x.new_empty(steps, count, width), x.new_empty(steps, count, 4 * width)
        made, product = c.new_empty(steps, count, width), x.new_empty(count, 4 * width)
        fed = y if h_mask is None else torch.empty_like(y)
        first = h.contiguous() if h_mask is None else (h * h_mask).to(x.dtype)
        cells = made if keep_c is None else torch.empty_like(made)
        last_h, last_c, sees = h.contiguous(), c.contiguous(), first
        how, grid = _how(h_mask, g_mask, c_mask, keep_c), (-(-count * width // _ELEMENTS),)
        masks = [_stepwise(mask, steps) for mask in (g_mask, c_mask, keep_h, keep_c)]
        held = x if h_mask is None else h_mask.contiguous()
        with torch.cuda.device_of(x), torch.autocast(x.device.type, enabled=False):
            for t in range(steps):
                torch.mm(sees, recurrent.T, out=product)
                own = [x if mask is None else mask[t] for mask in masks]
                launch(
                    forward_step, grid,
                    x[:, t], product, last_h, last_c, gates[t], made[t], y[t], cells[t], fed[t], held, *own,
                    count * width, width, x.stride(0), **how,
                )  # fmt: skip
                last_h, last_c, sees = y[t], cells[t], fed[t]
        ctx.save_for_backward(first, c, weight, gates, made, cells, fed, h_mask, g_mask, c_mask, keep_h, keep_c)
        return y, y[-1].clone(), cells[-1].clone()

    @staticmethod
    @one_at_a_time
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        refuse_double_backward(*REGULARIZED)
        first, c, weight, gates, made, cells, fed, h_mask, g_mask, c_mask, keep_h, keep_c = ctx.saved_tensors
        dy, dh, dc = grads
        steps, count, width = made.shape
        recurrent, dy = weight.to(gates.dtype), dy.contiguous()
        dh = dh.to(made.dtype, memory_format=torch.contiguous_format, copy=True)
        dc = dc.to(made.dtype, memory_format=torch.contiguous_format, copy=True)
        dgates, product = torch.empty_like(gates), gates.new_zeros(count, width)
        how, grid = _how(h_mask, g_mask, c_mask, keep_c), (-(-count * width // _ELEMENTS),)
        masks = [_stepwise(mask, steps) for mask in (g_mask, c_mask, keep_h, keep_c)]
        held = dy if h_mask is None else h_mask.contiguous()
        c = c.contiguous()
        with torch.cuda.device_of(dy), torch.autocast(dy.device.type, enabled=False):
            for t in reversed(range(steps)):
                own = [dy if mask is None else mask[t] for mask in masks]
                launch(
                    backward_step, grid,
                    dy[t], product, gates[t], made[t], cells[t - 1] if t else c, dgates[t], dh, dc, held, *own,
                    count * width, width, **how,
                )  # fmt: skip
                torch.mm(dgates[t], recurrent, out=product)
            dh += product if h_mask is None else product * h_mask
            before = torch.cat((first.to(gates.dtype)[None], fed[:-1]))
            needs = (False, ctx.needs_input_grad[3])
            _, dweight = Linear(width, 4 * width).gradients(dgates, before, recurrent, needs)
        dweight = None if dweight is None else dweight.to(weight.dtype)
        return dgates.transpose(0, 1), dh.to(first.dtype), dc, dweight, None, None, None, None, None


def _how(*masks: Tensor | None) -> dict[str, Any]:
    """Of h, g and c, and where c keeps its last value."""
    named = zip(("MASKED_H", "MASKED_G", "MASKED_C", "ZONED"), masks, strict=True)
    return {**{name: mask is not None for name, mask in named}, "ELEMENTS": _ELEMENTS}


def _stepwise(mask: Tensor | None, steps: int) -> Tensor | None:
    """A mask for each step; bits as bytes."""
    if mask is None:
        return None
    mask = mask.view(torch.uint8) if mask.dtype == torch.bool else mask
    return mask.contiguous().expand(steps, *mask.shape[1:])


def _fits(x: Tensor, dtype: torch.dtype) -> bool:
    known = dtype in (torch.float32, torch.bfloat16, torch.float16) and x.numel() > 0
    return known and (INTERPRETED or (x.is_cuda and torch.version.hip is None))


register("ruled_lstm", RuledLSTM.apply, _fits)
