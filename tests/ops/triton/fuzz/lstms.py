"""Cases for the kernels of LSTMs, with their backward passes, on drawn sequences."""

from collections.abc import Callable
from functools import partial
from importlib import import_module

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from flipout.backend import chosen
from flipout.ops.base import Flipped, Straight
from flipout.ops.linear import Linear
from flipout.ops.recurrent import LSTM, Scan
from flipout.regularizers._rules import StateRuleCell, StepMasks, Zoneout

from .memory import NARROW, NEAR, Memory, Results

WIDTHS = st.sampled_from([1, 3, 17])
persistent = import_module("flipout.ops.triton.lstm_persistent")


def differentiated(
    memory: Memory,
    run: Callable[..., Results],
    shapes: list[tuple[int, ...]],
    dtypes: list[torch.dtype],
    *constants: Tensor | None,
) -> None:
    """Compare outputs for inputs of these shapes, and gradients from drawn ones. The constants have no gradient."""
    inputs = [memory.numbers(*shape, dtype=dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    (count, steps, _), width = shapes[0], shapes[1][-1]
    outputs = [(steps, count, width), (count, width), (count, width)]
    grads = [
        memory.numbers(*shape, dtype=dtype) for shape, dtype in zip(outputs, [dtypes[0], *dtypes[1:3]], strict=True)
    ]

    def make(*tensors: Tensor | None) -> Results:
        leaves = [tensor.detach().requires_grad_() for tensor in tensors[: len(inputs)] if tensor is not None]
        output_grads = [tensor for tensor in tensors[len(inputs) :][:3] if tensor is not None]
        with torch.enable_grad():
            results = run(*leaves, *tensors[len(inputs) + 3 :])
        found = torch.autograd.grad([result for result in results if result is not None], leaves, output_grads)
        return [*results, *found]

    memory.compare(make, *inputs, *grads, *constants, near=8 * NEAR[dtypes[0]])


def lstm(memory: Memory, flipped: bool) -> None:
    """Few sequences and many, some of which end before others, in either direction of time."""
    draw, count, steps, width = (
        memory.draw,
        memory.draw(st.integers(1, 5)),
        memory.draw(st.integers(1, 3)),
        memory.draw(WIDTHS),
    )
    dtype, biased, reverse, ends = draw(NARROW), draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    op, largest_count = Linear(width, 4 * width), draw(st.sampled_from([64, 2]))

    def run(x: Tensor, h: Tensor, c: Tensor, mean: Tensor, *more: Tensor) -> Results:
        rest = list(more)
        bias, delta = rest.pop(0) if biased else None, rest.pop(0) if flipped else None
        r, s, *alive = rest
        product = Straight(op, mean, bias) if delta is None else Flipped(op, op, mean, delta, r, s, bias)
        y, last = Scan(LSTM(), product, None, reverse)(x, (h, c), *alive)
        return [y, *last]

    wide = torch.float32
    shapes = [(count, steps, 4 * width), (count, width), (count, width), (4 * width, width)]
    dtypes = [dtype, dtype, wide, dtype]
    if biased:
        shapes, dtypes = [*shapes, (4 * width,)], [*dtypes, dtype]
    if flipped:
        shapes, dtypes = [*shapes, (4 * width, width)], [*dtypes, dtype]
    r, s = memory.signs(count, 4 * width, dtype=dtype), memory.signs(count, width, dtype=dtype)
    alive = [memory.masks(steps, count, 1, dtype=torch.bool)] if ends else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(persistent, "_LARGEST_COUNT", largest_count)
        patch.setattr(persistent, "_LARGEST_SPLIT", 2)
        differentiated(memory, run, shapes, dtypes, r, s, *alive)


def masked_lstm(memory: Memory) -> None:
    """Masks of h, g and c, one for every step or one for all, and zoneout."""
    draw, count, steps, width = (
        memory.draw,
        memory.draw(st.integers(1, 5)),
        memory.draw(st.integers(1, 3)),
        memory.draw(WIDTHS),
    )
    dtype, zoned = draw(NARROW), draw(st.booleans())
    is_masked = [draw(st.booleans()) for _ in range(3)]

    def run(x: Tensor, h: Tensor, c: Tensor, weight: Tensor, *masks: Tensor | None) -> Results:
        h_mask, g_mask, c_mask, keep_h, keep_c = masks
        kernel = chosen("masked_lstm", x, x.dtype, required=False)
        if kernel is not None:
            return kernel(x, h, c, weight, *masks)
        cell = LSTM(*(None if mask is None else StepMasks(mask, steps) for mask in (g_mask, c_mask)))
        if keep_h is not None and keep_c is not None:
            cell = StateRuleCell(cell, None, Zoneout(keep_h, keep_c))
        y, last = Scan(cell, lambda h: (h if h_mask is None else h * h_mask) @ weight.T)(x, (h, c))
        return [y, *last]

    sizes = [(count, width), *((draw(st.sampled_from([1, steps])), count, width) for _ in range(2))]
    masks = [memory.masks(*size, dtype=dtype) if has else None for has, size in zip(is_masked, sizes, strict=True)]
    kept = [memory.masks(steps, count, width, dtype=torch.bool) if zoned else None for _ in range(2)]
    shapes = [(count, steps, 4 * width), (count, width), (count, width), (4 * width, width)]
    differentiated(memory, run, shapes, [dtype, dtype, torch.float32, dtype], *masks, *kept)


CASES = {
    "lstm": partial(lstm, flipped=True),
    "shared_lstm": partial(lstm, flipped=False),
    "masked_lstm": masked_lstm,
}
