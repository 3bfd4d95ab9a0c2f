"""LSTMs under dropout masks and zoneout: a product and a launch for each step, the weight's gradient at the end.

The two kernels and the autograd Function that launches them stand in one file: each argument of a kernel is a tensor
that the Function keeps.
"""
# Triton reads a kernel's annotations and arguments in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# pyright: reportCallIssue=false

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..._batched_gradients import one_at_a_time
from ...backend import register_kernel
from ..base import refuse_double_backward
from ..linear import Linear
from ..lstm import REGULARIZED
from .base import INTERPRETED
from .launching import launch
from .lstm_gates import sigmoid, tanh

_ELEMENTS = 256


@triton.jit(do_not_specialize=["total"])
def _masked_step(
    x_ptr, product_ptr, h_ptr, c_ptr, gates_ptr, new_c_ptr, y_ptr, next_c_ptr, fed_ptr,
    h_mask_ptr, g_mask_ptr, c_mask_ptr, keep_h_ptr, keep_c_ptr, total, width, x_row_stride,
    MASKED_H: tl.constexpr, MASKED_G: tl.constexpr, MASKED_C: tl.constexpr, ZONED: tl.constexpr,
    ELEMENTS: tl.constexpr,
):  # fmt: skip
    """c′ = c_mask ∘ (σ(f) c + σ(i) (g_mask ∘ tanh g)) and y = σ(o) tanh c′, for gates = x + product.

    With ZONED, y and c′ keep the last h and c where `keep_h` and `keep_c` say so.

    Shapes:
        x       (count, 4 · width), as are product and gates; everything else is (count, width), `total` numbers
        new_c   (count, width): c′ without zoneout
        next_c  (count, width): c′ with zoneout
        fed     (count, width): h_mask ∘ y, which the next product sees

    One program makes ELEMENTS numbers.
    """
    e = tl.program_id(0) * ELEMENTS + tl.arange(0, ELEMENTS)
    is_inside = e < total
    n, unit = e // width, e % width
    gate, place = 4 * n * width + unit, n * x_row_stride + unit
    pi = tl.load(x_ptr + place, mask=is_inside, other=0).to(tl.float32)
    pi += tl.load(product_ptr + gate, mask=is_inside, other=0)
    pf = tl.load(x_ptr + place + width, mask=is_inside, other=0).to(tl.float32)
    pf += tl.load(product_ptr + gate + width, mask=is_inside, other=0)
    pg = tl.load(x_ptr + place + 2 * width, mask=is_inside, other=0).to(tl.float32)
    pg += tl.load(product_ptr + gate + 2 * width, mask=is_inside, other=0)
    po = tl.load(x_ptr + place + 3 * width, mask=is_inside, other=0).to(tl.float32)
    po += tl.load(product_ptr + gate + 3 * width, mask=is_inside, other=0)
    i, f, g, o = sigmoid(pi), sigmoid(pf), tanh(pg), sigmoid(po)
    last_c = tl.load(c_ptr + e, mask=is_inside, other=0)
    candidate = g * tl.load(g_mask_ptr + e, mask=is_inside, other=0).to(tl.float32) if MASKED_G else g
    c = f * last_c + i * candidate
    if MASKED_C:
        c *= tl.load(c_mask_ptr + e, mask=is_inside, other=0).to(tl.float32)
    h = o * tanh(c)
    tl.store(gates_ptr + gate, pi, mask=is_inside)
    tl.store(gates_ptr + gate + width, pf, mask=is_inside)
    tl.store(gates_ptr + gate + 2 * width, pg, mask=is_inside)
    tl.store(gates_ptr + gate + 3 * width, po, mask=is_inside)
    tl.store(new_c_ptr + e, c, mask=is_inside)
    if ZONED:
        last_h = tl.load(h_ptr + e, mask=is_inside, other=0).to(tl.float32)
        h = tl.where(tl.load(keep_h_ptr + e, mask=is_inside, other=0) != 0, last_h, h)
        c = tl.where(tl.load(keep_c_ptr + e, mask=is_inside, other=0) != 0, last_c, c)
        tl.store(next_c_ptr + e, c, mask=is_inside)
    tl.store(y_ptr + e, h, mask=is_inside)
    if MASKED_H:
        h *= tl.load(h_mask_ptr + e, mask=is_inside, other=0).to(tl.float32)
        tl.store(fed_ptr + e, h, mask=is_inside)


@triton.jit(do_not_specialize=["total"])
def _masked_step_back(
    dy_ptr, product_ptr, gates_ptr, new_c_ptr, c_ptr, dgates_ptr, dh_ptr, dc_ptr,
    h_mask_ptr, g_mask_ptr, c_mask_ptr, keep_h_ptr, keep_c_ptr, total, width,
    MASKED_H: tl.constexpr, MASKED_G: tl.constexpr, MASKED_C: tl.constexpr, ZONED: tl.constexpr,
    ELEMENTS: tl.constexpr,
):  # fmt: skip
    """dgates = the gradients of one step's gates before their activation.

    Shapes:
        product (count, width): the gradient that comes back through W_hh
        dh      (count, width): the gradient that bypasses W_hh, replaced by the one for the step before
        dc      (count, width): the gradient of c, replaced by the one for the step before
        gates   (count, 4 · width), as is dgates; everything else is (count, width), `total` numbers

    One program takes ELEMENTS numbers.
    """
    e = tl.program_id(0) * ELEMENTS + tl.arange(0, ELEMENTS)
    is_inside = e < total
    n, unit = e // width, e % width
    gate = 4 * n * width + unit
    through = tl.load(product_ptr + e, mask=is_inside, other=0).to(tl.float32)
    if MASKED_H:
        through *= tl.load(h_mask_ptr + e, mask=is_inside, other=0).to(tl.float32)
    dh = tl.load(dy_ptr + e, mask=is_inside, other=0).to(tl.float32) + through
    dh += tl.load(dh_ptr + e, mask=is_inside, other=0)
    dc = tl.load(dc_ptr + e, mask=is_inside, other=0)
    kept_dh = tl.where(is_inside, 0.0, 0.0)
    kept_dc = kept_dh
    if ZONED:
        is_kept_h = tl.load(keep_h_ptr + e, mask=is_inside, other=0) != 0
        is_kept_c = tl.load(keep_c_ptr + e, mask=is_inside, other=0) != 0
        kept_dh, dh = tl.where(is_kept_h, dh, 0), tl.where(is_kept_h, 0, dh)
        kept_dc, dc = tl.where(is_kept_c, dc, 0), tl.where(is_kept_c, 0, dc)
    i = sigmoid(tl.load(gates_ptr + gate, mask=is_inside, other=0).to(tl.float32))
    f = sigmoid(tl.load(gates_ptr + gate + width, mask=is_inside, other=0).to(tl.float32))
    g = tanh(tl.load(gates_ptr + gate + 2 * width, mask=is_inside, other=0).to(tl.float32))
    o = sigmoid(tl.load(gates_ptr + gate + 3 * width, mask=is_inside, other=0).to(tl.float32))
    tanh_c = tanh(tl.load(new_c_ptr + e, mask=is_inside, other=0))
    dc += dh * o * (1 - tanh_c * tanh_c)
    if MASKED_C:
        dc *= tl.load(c_mask_ptr + e, mask=is_inside, other=0).to(tl.float32)
    dcandidate = dc * tl.load(g_mask_ptr + e, mask=is_inside, other=0).to(tl.float32) if MASKED_G else dc
    tl.store(dgates_ptr + gate, dcandidate * g * i * (1 - i), mask=is_inside)
    tl.store(dgates_ptr + gate + width, dc * tl.load(c_ptr + e, mask=is_inside, other=0) * f * (1 - f), mask=is_inside)
    tl.store(dgates_ptr + gate + 2 * width, dcandidate * i * (1 - g * g), mask=is_inside)
    tl.store(dgates_ptr + gate + 3 * width, dh * tanh_c * o * (1 - o), mask=is_inside)
    tl.store(dh_ptr + e, kept_dh, mask=is_inside)
    tl.store(dc_ptr + e, dc * f + kept_dc, mask=is_inside)


class MaskedLSTM(torch.autograd.Function):
    """Run an LSTM under masks.

    Takes W_ih x + b of all times (N, time, 4H), h, c and W_hh; masks of h before W_hh (N, H), of g and of the new c
    (time or 1, N, H); and where h and c keep their last value (time, N, H). Returns the outputs (time, N, H), h and c.
    """

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
        new_cells, product = c.new_empty(steps, count, width), x.new_empty(count, 4 * width)
        fed = y if h_mask is None else torch.empty_like(y)
        first_fed = h.contiguous() if h_mask is None else (h * h_mask).to(x.dtype)
        cells = new_cells if keep_c is None else torch.empty_like(new_cells)
        last_h, last_c, last_fed = h.contiguous(), c.contiguous(), first_fed
        flags, grid = _flags(h_mask, g_mask, c_mask, keep_c), (-(-count * width // _ELEMENTS),)
        masks = [_stepwise(mask, steps) for mask in (g_mask, c_mask, keep_h, keep_c)]
        h_factor = x if h_mask is None else h_mask.contiguous()
        with torch.cuda.device_of(x), torch.autocast(x.device.type, enabled=False):
            for t in range(steps):
                torch.mm(last_fed, recurrent.T, out=product)
                step_masks = [x if mask is None else mask[t] for mask in masks]
                launch(
                    _masked_step, grid,
                    x[:, t], product, last_h, last_c, gates[t], new_cells[t], y[t], cells[t], fed[t],
                    h_factor, *step_masks, count * width, width, x.stride(0), **flags,
                )  # fmt: skip
                last_h, last_c, last_fed = y[t], cells[t], fed[t]
        ctx.save_for_backward(
            first_fed, c, weight, gates, new_cells, cells, fed, h_mask, g_mask, c_mask, keep_h, keep_c
        )
        return y, y[-1].clone(), cells[-1].clone()

    @staticmethod
    @one_at_a_time
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        refuse_double_backward(*REGULARIZED)
        first_fed, c, weight, gates, new_cells, cells, fed, h_mask, g_mask, c_mask, keep_h, keep_c = ctx.saved_tensors
        dy, dh, dc = grads
        steps, count, width = new_cells.shape
        recurrent, dy = weight.to(gates.dtype), dy.contiguous()
        dh = dh.to(new_cells.dtype, memory_format=torch.contiguous_format, copy=True)
        dc = dc.to(new_cells.dtype, memory_format=torch.contiguous_format, copy=True)
        dgates, product = torch.empty_like(gates), gates.new_zeros(count, width)
        flags, grid = _flags(h_mask, g_mask, c_mask, keep_c), (-(-count * width // _ELEMENTS),)
        masks = [_stepwise(mask, steps) for mask in (g_mask, c_mask, keep_h, keep_c)]
        h_factor = dy if h_mask is None else h_mask.contiguous()
        c = c.contiguous()
        with torch.cuda.device_of(dy), torch.autocast(dy.device.type, enabled=False):
            for t in reversed(range(steps)):
                step_masks = [dy if mask is None else mask[t] for mask in masks]
                launch(
                    _masked_step_back, grid,
                    dy[t], product, gates[t], new_cells[t], cells[t - 1] if t else c, dgates[t], dh, dc,
                    h_factor, *step_masks, count * width, width, **flags,
                )  # fmt: skip
                torch.mm(dgates[t], recurrent, out=product)
            dh += product if h_mask is None else product * h_mask
            all_fed = torch.cat((first_fed.to(gates.dtype)[None], fed[:-1]))
            needs = (False, ctx.needs_input_grad[3])
            _, dweight = Linear(width, 4 * width).gradients(dgates, all_fed, recurrent, needs)
        dweight = None if dweight is None else dweight.to(weight.dtype)
        return dgates.transpose(0, 1), dh.to(first_fed.dtype), dc, dweight, None, None, None, None, None


def _flags(*masks: Tensor | None) -> dict[str, Any]:
    """Return the constants that say which masks there are: of h, g and c, and where c keeps its last value."""
    named = zip(("MASKED_H", "MASKED_G", "MASKED_C", "ZONED"), masks, strict=True)
    return {**{name: mask is not None for name, mask in named}, "ELEMENTS": _ELEMENTS}


def _stepwise(mask: Tensor | None, steps: int) -> Tensor | None:
    """Return a mask with an entry for each step, and booleans as bytes."""
    if mask is None:
        return None
    mask = mask.view(torch.uint8) if mask.dtype == torch.bool else mask
    return mask.contiguous().expand(steps, *mask.shape[1:])


def _fits(x: Tensor, dtype: torch.dtype) -> bool:
    """Return True for fp32, bf16 and fp16 on NVIDIA devices.

    The kernels add in fp32, so they do not serve fp64. They were not tried on other devices.
    """
    is_known = dtype in (torch.float32, torch.bfloat16, torch.float16) and x.numel() > 0
    return is_known and (INTERPRETED or (x.is_cuda and torch.version.hip is None))


register_kernel("masked_lstm", MaskedLSTM.apply, _fits)
