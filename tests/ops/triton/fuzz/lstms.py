"""Kernels of LSTMs with their backward passes, on drawn sequences."""

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

from .memory import NARROW, NEAR, Made, Memory

WIDTHS = st.sampled_from([1, 3, 17])
kernels = import_module("flipout.ops.triton.lstm")


def differentiated(
    memory: Memory,
    run: Callable[..., Made],
    shapes: list[tuple[int, ...]],
    dtypes: list[torch.dtype],
    *about: Tensor | None,
) -> None:
    """Outputs of inputs of these shapes, and their gradients from drawn ones. What is `about` them has no gradient."""
    inputs = [memory.numbers(*shape, dtype=dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    (count, steps, _), width = shapes[0], shapes[1][-1]
    outputs = [(steps, count, width), (count, width), (count, width)]
    grads = [
        memory.numbers(*shape, dtype=dtype) for shape, dtype in zip(outputs, [dtypes[0], *dtypes[1:3]], strict=True)
    ]

    def make(*given: Tensor | None) -> Made:
        tensors = [one.detach().requires_grad_() for one in given[: len(inputs)] if one is not None]
        with torch.enable_grad():
            made = run(*tensors, *given[len(inputs) + 3 :])
        found = torch.autograd.grad(
            [one for one in made if one is not None],
            tensors,
            [one for one in given[len(inputs) :][:3] if one is not None],
        )
        return [*made, *found]

    memory.compare(make, *inputs, *grads, *about, near=8 * NEAR[dtypes[0]])


def lstm(memory: Memory, flipped: bool) -> None:
    """A few sequences, and many; some that end before others; forward in time and backward."""
    draw, count, steps, width = (
        memory.draw,
        memory.draw(st.integers(1, 5)),
        memory.draw(st.integers(1, 3)),
        memory.draw(WIDTHS),
    )
    dtype, biased, reverse, ends = draw(NARROW), draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    op, few = Linear(width, 4 * width), draw(st.sampled_from([64, 2]))

    def run(x: Tensor, h: Tensor, c: Tensor, mean: Tensor, *given: Tensor) -> Made:
        rest = list(given)
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
        patch.setattr(kernels, "_FEW", few)
        patch.setattr(kernels, "_SHARES", 2)
        differentiated(memory, run, shapes, dtypes, r, s, *alive)


def ruled_lstm(memory: Memory) -> None:
    """Masks of h, g and c, of every step or of all; and zoneout."""
    draw, count, steps, width = (
        memory.draw,
        memory.draw(st.integers(1, 5)),
        memory.draw(st.integers(1, 3)),
        memory.draw(WIDTHS),
    )
    dtype, zoned = draw(NARROW), draw(st.booleans())
    given = [draw(st.booleans()) for _ in range(3)]

    def run(x: Tensor, h: Tensor, c: Tensor, weight: Tensor, *masks: Tensor | None) -> Made:
        h_mask, g_mask, c_mask, keep_h, keep_c = masks
        kernel = chosen("ruled_lstm", x, x.dtype, required=False)
        if kernel is not None:
            return kernel(x, h, c, weight, *masks)
        cell = LSTM(*(None if mask is None else StepMasks(mask, steps) for mask in (g_mask, c_mask)))
        if keep_h is not None and keep_c is not None:
            cell = StateRuleCell(cell, None, Zoneout(keep_h, keep_c))
        y, last = Scan(cell, lambda h: (h if h_mask is None else h * h_mask) @ weight.T)(x, (h, c))
        return [y, *last]

    sizes = [(count, width), *((draw(st.sampled_from([1, steps])), count, width) for _ in range(2))]
    masks = [memory.masks(*size, dtype=dtype) if one else None for one, size in zip(given, sizes, strict=True)]
    kept = [memory.masks(steps, count, width, dtype=torch.bool) if zoned else None for _ in range(2)]
    shapes = [(count, steps, 4 * width), (count, width), (count, width), (4 * width, width)]
    differentiated(memory, run, shapes, [dtype, dtype, torch.float32, dtype], *masks, *kept)


CASES = {
    "lstm": partial(lstm, flipped=True),
    "lstm of one weight": partial(lstm, flipped=False),
    "ruled_lstm": ruled_lstm,
}
