"""The LSTM of flipout by kernels, and the LSTM with one weight for all sequences.

For few sequences each pass is one launch (lstm_persistent); for many it is a product and a launch for each step
(lstm_stepwise_forward and lstm_stepwise_backward).

The product of a step is a Bᵀ + flip ∘ (a′ B′ᵀ) with plain and flipped operands: [h, h ∘ s] with [W̄, ΔŴ] forward, and
[dg, dg ∘ r] with their transposes backward. With one weight the second term is left out.
"""

from typing import Any

import torch
from torch import Tensor

from ..._batched_gradients import one_at_a_time
from ...backend import register_kernel
from ..base import refuse_double_backward
from ..lstm import WRITTEN_OUT
from .base import INTERPRETED
from .lstm_packing import pack_signs, padded_length, previous_states
from .lstm_persistent import device_limits, persistent_tile
from .lstm_persistent_backward import backward_persistent
from .lstm_persistent_forward import forward_persistent
from .lstm_stepwise_backward import backward_stepwise, step_back
from .lstm_stepwise_forward import forward_stepwise

_AMPERE = 8  # the first generation with tensor cores for all these dtypes


class FusedLSTM(torch.autograd.Function):
    """Compute what `ops.lstm.FlippedLSTM` computes, from its arguments. Sequences of h, c and gates are kept for
    backward."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        with torch.cuda.device_of(arguments[0]):
            return FusedLSTM._forward(ctx, *arguments)

    @staticmethod
    def _forward(
        ctx: Any,
        x: Tensor,
        h: Tensor,
        c: Tensor,
        mean: Tensor,
        delta: Tensor | None,
        bias: Tensor | None,
        r: Tensor | None,
        s: Tensor | None,
        reverse: bool,
        alive: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.has_bias = bias is not None
        ctx.flags = {"REVERSE": reverse, "ALIVE": alive is not None, "FLIPPED": delta is not None}
        (count, steps, _), width = x.shape, h.shape[-1]
        x = x if x.stride(-1) == 1 else x.contiguous()
        signs = pack_signs(x, width, r, s)
        gates, y = x.new_empty(steps, count, 4 * width), x.new_empty(steps, count, width)
        cells = c.new_empty(steps + 1, *c.shape)
        cells[0] = c
        tile = persistent_tile(count, 4 * width, x)
        pairs = x.new_zeros(2, 2, count, tile.split * tile.part_length(width) if tile else padded_length(width))
        pairs[0, 0, :, :width], pairs[0, 1, :, :width] = h, h if s is None else h * s
        alive = signs if alive is None else alive.flatten(1).to(torch.uint8).contiguous()
        inputs = (x, x if bias is None else bias.contiguous(), alive, signs)
        outputs, flags = (pairs, gates, cells, y), {**ctx.flags, "BIAS": ctx.has_bias}
        if tile is None:
            assert delta is not None
            forward_stepwise(inputs, mean, delta, outputs, flags)
        else:
            forward_persistent(inputs, mean, delta, outputs, flags, tile)
        ctx.save_for_backward(h, y, cells, gates, mean, delta, signs, alive)
        return y, pairs[steps % 2, 0, :, :width].clone(), cells[-1].clone()

    @staticmethod
    @one_at_a_time
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        refuse_double_backward(*WRITTEN_OUT)
        with torch.autocast(grads[0].device.type, enabled=False), torch.cuda.device_of(grads[0]):
            return FusedLSTM._backward(ctx, *grads)

    @staticmethod
    def _backward(ctx: Any, dy: Tensor, dh: Tensor, dc: Tensor) -> tuple[Tensor | None, ...]:
        h, y, cells, gates, mean, delta, signs, alive = ctx.saved_tensors
        flags, (steps, count, width) = ctx.flags, y.shape
        dy = dy if dy.stride(-1) == 1 else dy.contiguous()
        dcells = dc.to(cells.dtype, memory_format=torch.contiguous_format, copy=True)
        tile = persistent_tile(count, width, y)
        row_length = tile.split * tile.part_length(4 * width) if tile else padded_length(4 * width)
        pairs = y.new_empty(1 + flags["FLIPPED"], steps, count, row_length)
        pairs[..., 4 * width :] = 0
        passed = torch.zeros_like(dcells) if flags["ALIVE"] else dcells
        tensors = (alive, passed, dy, dcells, gates, cells, signs, pairs)
        step_back(dh.contiguous(), tensors, steps - 1, flags, last=True)
        dgates, needs = pairs[0, ..., : 4 * width], ctx.needs_input_grad
        if tile is None:
            dh, sums = backward_stepwise(tensors, mean, delta, flags), dgates
        else:
            sums = dgates[-1].to(torch.float32, copy=True).contiguous()
            dh = backward_persistent((*tensors, sums), mean, delta, flags, tile)
        dh = dh + passed if flags["ALIVE"] else dh
        dx = (dgates.flip(0) if flags["REVERSE"] else dgates).transpose(0, 1)
        dmean, ddelta = _weight_gradients(pairs, y, h, signs, needs[3:5], flags)
        dbias = sums.flatten(0, -2).sum(0).to(y.dtype) if ctx.has_bias and needs[5] else None
        return dx, dh.to(h.dtype), dcells.to(dc.dtype), dmean, ddelta, dbias, None, None, None, None


def _weight_gradients(
    pairs: Tensor, y: Tensor, h: Tensor, signs: Tensor, needs: tuple[bool, bool], flags: dict[str, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Return Σ dg hᵀ and Σ (dg ∘ r)(h ∘ s)ᵀ over all steps and sequences, each if needed."""
    if not any(needs):
        return None, None
    width = y.shape[-1]
    states = previous_states(y, h, signs, flags["FLIPPED"], flags["REVERSE"])
    dgates = pairs.flatten(1, 2)[..., : 4 * width].mT
    states = states[..., : width - width % -(16 // y.itemsize)]  # no more than an aligned row needs
    if all(needs):
        both = torch.bmm(dgates, states)
        return both[0, :, :width], both[1, :, :width]
    which = needs.index(True)
    gradient = torch.mm(dgates[which], states[which])[:, :width]
    return (gradient, None) if which == 0 else (None, gradient)


def _fits(x: Tensor, dtype: torch.dtype) -> bool:
    """Return True for fp32, bf16 and fp16 on NVIDIA devices from Ampere on, whose tensor cores the kernels use.

    The kernels add in fp32, so they do not serve fp64.
    """
    if dtype not in (torch.float32, torch.bfloat16, torch.float16) or not x.numel():
        return False
    return INTERPRETED or (x.is_cuda and torch.version.hip is None and device_limits(x.device)[2] >= _AMPERE)


def _fits_shared(x: Tensor, dtype: torch.dtype, sequences: int, rows: int) -> bool:
    """Return True if one launch can hold all sequences.

    More sequences would need the step-by-step kernels, which exist only for flipout.
    """
    return _fits(x, dtype) and persistent_tile(sequences, rows, x) is not None


def _shared_lstm(
    x: Tensor, h: Tensor, c: Tensor, weight: Tensor, bias: Tensor | None, reverse: bool, alive: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    return FusedLSTM.apply(x, h, c, weight, None, bias, None, None, reverse, alive)


register_kernel("lstm", FusedLSTM.apply, _fits)
register_kernel("shared_lstm", _shared_lstm, _fits_shared)
