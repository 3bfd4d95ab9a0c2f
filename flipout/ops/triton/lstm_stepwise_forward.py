"""The forward pass of an LSTM under flipout for many sequences: a batched product and one launch for each step."""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from .base import index_type
from .launching import launch
from .lstm_gates import S_BIT, add_gates, flip_gates, load_gates, next_state, sign, store_gates
from .lstm_packing import ELEMENTS, pad_weights, padded_length


@triton.jit(do_not_specialize=["t", "time", "count"])
def _step(
    x_ptr,
    bias_ptr,
    alive_ptr,
    products_ptr,
    signs_ptr,
    pairs_ptr,
    gates_ptr,
    cells_ptr,
    y_ptr,
    t,
    time,
    count,
    width,
    x_row_stride,
    x_time_stride,
    pair_row_stride,
    product_row_stride,
    BIAS: tl.constexpr,
    ALIVE: tl.constexpr,
    INDEX: tl.constexpr,
    ELEMENTS: tl.constexpr,
):
    """gates[t] = x[time] + h W̄ᵀ + r ∘ ((h ∘ s) ΔŴᵀ) + bias, and from them the next c, h and h ∘ s.

    Shapes:
        x        (count, steps, 4 · width)
        products (2, count, product_row_stride): h W̄ᵀ and (h ∘ s) ΔŴᵀ, made already
        pairs    (2, 2, count, pair_row_stride): h and h ∘ s of even and of odd steps
        gates    (steps, count, 4 · width), before their activation
        cells    (steps + 1, count, width)
        y        (steps, count, width)
        alive    (steps, count) bytes: with ALIVE, a sequence that has ended keeps its state

    One program makes ELEMENTS units of the state.
    """
    e = tl.program_id(0).to(INDEX) * ELEMENTS + tl.arange(0, ELEMENTS)
    total = count.to(INDEX) * width
    is_inside = e < total
    n, j = e // width, e % width
    byte = tl.load(signs_ptr + e, mask=is_inside, other=0)
    i, f, g, o = load_gates(x_ptr + time.to(INDEX) * x_time_stride + n * x_row_stride + j, width, is_inside)
    product_ptr = products_ptr + n * product_row_stride + j
    pi, pf, pg, po = load_gates(product_ptr, width, is_inside)
    qi, qf, qg, qo = load_gates(product_ptr + count.to(INDEX) * product_row_stride, width, is_inside)
    qi, qf, qg, qo = flip_gates(byte, qi, qf, qg, qo)
    i, f, g, o = add_gates(i, f, g, o, qi, qf, qg, qo)
    i, f, g, o = add_gates(i, f, g, o, pi, pf, pg, po)
    if BIAS:
        bi, bf, bg, bo = load_gates(bias_ptr + j, width, is_inside)
        i, f, g, o = add_gates(i, f, g, o, bi, bf, bg, bo)
    cell_ptr, pair_stride = cells_ptr + t.to(INDEX) * total + e, count.to(INDEX) * pair_row_stride
    last_c = tl.load(cell_ptr, mask=is_inside, other=0)
    c, h = next_state(i, f, g, o, last_c)
    h = h.to(y_ptr.dtype.element_ty)
    if ALIVE:
        is_alive = tl.load(alive_ptr + time.to(INDEX) * count + n, mask=is_inside, other=0) != 0
        last_h_ptr = pairs_ptr + (t % 2) * 2 * pair_stride + n * pair_row_stride + j
        h = tl.where(is_alive, h, tl.load(last_h_ptr, mask=is_inside, other=0))
        c = tl.where(is_alive, c, last_c)
    tl.store(cell_ptr + total, c, mask=is_inside)
    store_gates(gates_ptr + 4 * t.to(INDEX) * total + 4 * n * width + j, width, i, f, g, o, is_inside)
    tl.store(y_ptr + time.to(INDEX) * total + e, h, mask=is_inside)
    next_h_ptr = pairs_ptr + ((t + 1) % 2) * 2 * pair_stride + n * pair_row_stride + j
    tl.store(next_h_ptr, h, mask=is_inside)
    tl.store(next_h_ptr + pair_stride, h * sign(byte, S_BIT), mask=is_inside)


def forward_stepwise(
    inputs: tuple[Tensor, ...], mean: Tensor, delta: Tensor, outputs: tuple[Tensor, ...], flags: dict[str, bool]
) -> None:
    """Fill `outputs`, the pairs, gates, cells and y, from `inputs`, the x, bias, alive and signs."""
    x, bias, alive, signs = inputs
    pairs, gates, cells, y = outputs
    (count, steps, _), width = x.shape, mean.shape[1]
    weights = pad_weights(mean, delta, padded_length(4 * width), padded_length(width))
    products = x.new_empty(2, count, weights.shape[1])
    for t in range(steps):
        torch.bmm(pairs[t % 2], weights.mT, out=products)
        launch(
            _step,
            (-(-count * width // ELEMENTS),),
            x,
            bias,
            alive,
            products,
            signs,
            pairs,
            gates,
            cells,
            y,
            t,
            steps - 1 - t if flags["REVERSE"] else t,
            count,
            width,
            *x.stride()[:2],
            weights.shape[-1],
            products.shape[-1],
            BIAS=flags["BIAS"],
            ALIVE=flags["ALIVE"],
            INDEX=index_type(gates.numel()),
            ELEMENTS=ELEMENTS,
        )
