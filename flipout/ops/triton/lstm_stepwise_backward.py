"""The backward pass of an LSTM under flipout, step by step: a batched product and one launch for each.

The persistent kernel for few sequences uses `step_back` too, for the last step of a sequence.
"""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# pyright: reportPossiblyUnboundVariable=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from .base import index_type
from .launching import launch
from .lstm_gates import S_BIT, drop_ended, flip_gates, gate_gradients, load_gates, sign, store_gates
from .lstm_packing import ELEMENTS, pad_weights, padded_length


@triton.jit(do_not_specialize=["t", "time", "count"])
def _step_back(
    dh_ptr,
    alive_ptr,
    passed_ptr,
    dy_ptr,
    dcells_ptr,
    gates_ptr,
    cells_ptr,
    signs_ptr,
    pairs_ptr,
    t,
    time,
    count,
    width,
    dy_time_stride,
    dy_row_stride,
    product_row_stride,
    pair_row_stride,
    pair_stride,
    LAST: tl.constexpr,
    FLIPPED: tl.constexpr,
    ALIVE: tl.constexpr,
    INDEX: tl.constexpr,
    ELEMENTS: tl.constexpr,
):
    """pairs[0, t] = dg, the gradient of step t's gates before their activation, and pairs[1, t] = dg ∘ r if FLIPPED.

    Shapes:
        dh      (2, count, product_row_stride): dg W̄ and (dg ∘ r) ΔŴ of step t + 1; (count, width) for the LAST step
        dy      (steps, count, width)
        gates   (steps, count, 4 · width), before their activation
        cells   (steps + 1, count, width)
        dcells  (count, width): dc, replaced by dc of the step before
        pairs   (1 or 2, steps, count, pair_row_stride)
        alive   (steps, count) bytes
        passed  (count, width): with ALIVE, the dh of sequences that have ended, which passes their steps by

    One program makes ELEMENTS units of the state.
    """
    e = tl.program_id(0).to(INDEX) * ELEMENTS + tl.arange(0, ELEMENTS)
    total = count.to(INDEX) * width
    is_inside = e < total
    n, j = e // width, e % width
    if FLIPPED:
        byte = tl.load(signs_ptr + e, mask=is_inside, other=0)
    if LAST:
        dh = tl.load(dh_ptr + e, mask=is_inside, other=0).to(tl.float32)
    else:
        product_ptr = dh_ptr + n * product_row_stride + j
        dh = tl.load(product_ptr, mask=is_inside, other=0).to(tl.float32)
        if FLIPPED:
            dh += sign(byte, S_BIT) * tl.load(
                product_ptr + count.to(INDEX) * product_row_stride, mask=is_inside, other=0
            ).to(tl.float32)
    dy_place_ptr = dy_ptr + time.to(INDEX) * dy_time_stride + n * dy_row_stride + j
    dh += tl.load(dy_place_ptr, mask=is_inside, other=0).to(tl.float32)
    i, f, g, o = load_gates(gates_ptr + 4 * t.to(INDEX) * total + 4 * n * width + j, width, is_inside)
    cell_ptr = cells_ptr + t.to(INDEX) * total + e
    last_c, c = tl.load(cell_ptr, mask=is_inside, other=0), tl.load(cell_ptr + total, mask=is_inside, other=0)
    last_dc = tl.load(dcells_ptr + e, mask=is_inside, other=0)
    if ALIVE:
        dh += tl.load(passed_ptr + e, mask=is_inside, other=0)
    i, f, g, o, dc = gate_gradients(i, f, g, o, last_c, c, dh, last_dc)
    if ALIVE:
        is_alive = tl.load(alive_ptr + time.to(INDEX) * count + n, mask=is_inside, other=0) != 0
        i, f, g, o, dc = drop_ended(is_alive, i, f, g, o, dc, last_dc)
        tl.store(passed_ptr + e, tl.where(is_alive, 0, dh), mask=is_inside)
    tl.store(dcells_ptr + e, dc, mask=is_inside)
    pair_ptr = pairs_ptr + (t.to(INDEX) * count + n) * pair_row_stride + j
    store_gates(pair_ptr, width, i, f, g, o, is_inside)
    if FLIPPED:
        i, f, g, o = flip_gates(byte, i, f, g, o)
        store_gates(pair_ptr + pair_stride, width, i, f, g, o, is_inside)


def step_back(dh: Tensor, tensors: tuple[Tensor, ...], t: int, flags: dict[str, bool], last: bool) -> None:
    """Make the gates' gradients of step t. `tensors` are alive, passed, dy, dcells, gates, cells, signs and pairs."""
    _, _, dy, *_, pairs = tensors
    steps, count, width = dy.shape
    launch(
        _step_back,
        (-(-count * width // ELEMENTS),),
        dh,
        *tensors,
        t,
        steps - 1 - t if flags["REVERSE"] else t,
        count,
        width,
        *dy.stride()[:2],
        padded_length(width),
        pairs.shape[-1],
        pairs.stride(0),
        LAST=last,
        FLIPPED=flags["FLIPPED"],
        ALIVE=flags["ALIVE"],
        INDEX=index_type(pairs.numel()),
        ELEMENTS=ELEMENTS,
    )


def backward_stepwise(tensors: tuple[Tensor, ...], mean: Tensor, delta: Tensor, flags: dict[str, bool]) -> Tensor:
    """Make the gates' gradients of all steps but the last, which are made already; return dh of the first state."""
    _, _, dy, *_, signs, pairs = tensors
    steps, count, width = dy.shape
    weights = pad_weights(mean, delta, pairs.shape[-1], padded_length(width))
    products = pairs.new_empty(2, count, weights.shape[-1])
    for t in reversed(range(steps)):
        torch.bmm(pairs[:, t], weights, out=products)
        if t:
            step_back(products, tensors, t - 1, flags, last=False)
    plain, flipped = products[..., :width].float()
    return plain + flipped * (1 - 2 * (signs >> S_BIT.value & 1).float())
