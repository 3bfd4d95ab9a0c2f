"""The forward pass of an LSTM for few sequences in one launch, under flipout or with one weight for all."""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# pyright: reportPossiblyUnboundVariable=false, reportUnboundVariable=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launching import launch
from .lstm_gates import S_BIT, add_gates, load_gates, next_state, sign, store_gates
from .lstm_packing import pad_weights
from .lstm_persistent import PersistentTile, launch_spans, product_tile, tile_options, wait_for_all, zero_counter


@triton.jit(do_not_specialize=["begin", "end", "steps", "count"])
def _forward(
    x_ptr,
    bias_ptr,
    alive_ptr,
    signs_ptr,
    weights_ptr,
    pairs_ptr,
    gates_ptr,
    cells_ptr,
    y_ptr,
    parts_ptr,
    counter_ptr,
    begin,
    end,
    steps,
    count,
    width,
    x_row_stride,
    x_time_stride,
    b_pair_stride,
    MULTIPLY: tl.constexpr,
    GATE: tl.constexpr,
    BIAS: tl.constexpr,
    FLIPPED: tl.constexpr,
    ALIVE: tl.constexpr,
    REVERSE: tl.constexpr,
    SPLIT: tl.constexpr,
    LENGTH: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SHARE: tl.constexpr,
    INDEX: tl.constexpr,
):
    """gates[t] = x[time] + h W̄ᵀ + r ∘ ((h ∘ s) ΔŴᵀ) + bias, and from them the next c, h and h ∘ s, for begin ≤ t < end.

    Shapes:
        x       (count, steps, 4 · width)
        weights (1 or 2, 4 · width, SPLIT · LENGTH): W̄, and ΔŴ if FLIPPED
        pairs   (2, 2, count, SPLIT · LENGTH): h and h ∘ s of even and of odd steps
        gates   (steps, count, 4 · width), before their activation
        cells   (steps + 1, count, width)
        y       (steps, count, width)
        parts   (SPLIT, count, 4 · width)
        alive   (steps, count) bytes: with ALIVE, a sequence that has ended keeps its state

    Program (i, k) makes part k of the sums of columns i · BLOCK_N onward for all sequences, and SHARE units of the
    state.
    """
    row_length: tl.constexpr = SPLIT * LENGTH
    n, column = tl.arange(0, BLOCK_M), tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    row, is_row = n.to(INDEX), (n < count)[:, None]
    is_inside = is_row & (column < 4 * width)[None, :]
    weight_row = tl.minimum(column, 4 * width - 1)
    k = tl.program_id(1) * LENGTH + tl.arange(0, BLOCK_K)
    a_ptr = pairs_ptr + (row * row_length)[:, None] + k[None, :]
    b_ptr = weights_ptr + (weight_row.to(INDEX) * row_length)[:, None] + k[None, :]
    total, a_pair_stride = count.to(INDEX) * width, count.to(INDEX) * row_length
    part_ptr = parts_ptr + tl.program_id(1) * 4 * total + (4 * row * width)[:, None] + column[None, :]
    r = 1.0
    if FLIPPED:
        byte = tl.load(signs_ptr + (row * width)[:, None] + (weight_row % width)[None, :], mask=is_inside, other=0)
        r = sign(byte, (weight_row // width)[None, :])
    programs = tl.num_programs(0) * tl.num_programs(1)
    e = (tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)).to(INDEX) * SHARE + tl.arange(0, SHARE)
    is_unit, line, j = e < total, e // width, e % width
    if FLIPPED:
        s = sign(tl.load(signs_ptr + e, mask=is_unit, other=0), S_BIT)
    c = tl.load(cells_ptr + begin.to(INDEX) * total + e, mask=is_unit, other=0)
    if BIAS:
        bi, bf, bg, bo = load_gates(bias_ptr + j, width, is_unit)
    if ALIVE:
        h = tl.load(pairs_ptr + (begin % 2) * 2 * a_pair_stride + line * row_length + j, mask=is_unit, other=0)
    t, arrivals = begin, 0
    while t < end:
        time = (steps - 1 - t if REVERSE else t).to(INDEX)
        if GATE:
            xi, xf, xg, xo = load_gates(x_ptr + time * x_time_stride + line * x_row_stride + j, width, is_unit)
        if MULTIPLY:
            part = product_tile(
                a_ptr + (t % 2) * 2 * a_pair_stride, a_pair_stride, b_ptr, b_pair_stride, is_row, r,
                FLIPPED, LENGTH, PRECISION, BLOCK_M, BLOCK_N, BLOCK_K,
            )  # fmt: skip
            tl.store(part_ptr, part, mask=is_inside)
        if MULTIPLY and GATE:
            arrivals += programs
            wait_for_all(counter_ptr, arrivals)
        if GATE:
            i, f, g, o = load_gates(parts_ptr + 4 * line * width + j, width, is_unit)
            for split in tl.static_range(1, SPLIT):
                pi, pf, pg, po = load_gates(parts_ptr + 4 * (split * total + line * width) + j, width, is_unit)
                i, f, g, o = add_gates(i, f, g, o, pi, pf, pg, po)
            i, f, g, o = add_gates(i, f, g, o, xi, xf, xg, xo)
            if BIAS:
                i, f, g, o = add_gates(i, f, g, o, bi, bf, bg, bo)
            next_c, next_h = next_state(i, f, g, o, c)
            next_h = next_h.to(y_ptr.dtype.element_ty)
            if ALIVE:
                is_alive = tl.load(alive_ptr + time * count + line, mask=is_unit, other=0) != 0
                next_h, next_c = tl.where(is_alive, next_h, h), tl.where(is_alive, next_c, c)
            h, c = next_h, next_c
            next_h_ptr = pairs_ptr + ((t + 1) % 2) * 2 * a_pair_stride + line * row_length + j
            tl.store(next_h_ptr, h, mask=is_unit)
            if FLIPPED:
                tl.store(next_h_ptr + a_pair_stride, h * s, mask=is_unit)
        t += 1
        if t < end:
            arrivals += programs
            wait_for_all(counter_ptr, arrivals)
        if GATE:  # after the barrier, since no other program waits for these
            tl.store(y_ptr + time * total + e, h, mask=is_unit)
            tl.store(cells_ptr + t.to(INDEX) * total + e, c, mask=is_unit)
            gates_place_ptr = gates_ptr + 4 * ((t - 1).to(INDEX) * total + line * width) + j
            store_gates(gates_place_ptr, width, i, f, g, o, is_unit)


def forward_persistent(
    inputs: tuple[Tensor, ...],
    mean: Tensor,
    delta: Tensor | None,
    outputs: tuple[Tensor, ...],
    flags: dict[str, bool],
    tile: PersistentTile,
) -> None:
    """Fill `outputs`, the pairs, gates, cells and y, from `inputs`, the x, bias, alive and signs."""
    x, pairs, gates = inputs[0], outputs[0], outputs[1]
    (count, steps, _), width = x.shape, mean.shape[1]
    weights = pad_weights(mean, delta, 4 * width, pairs.shape[-1])
    parts = x.new_empty(tile.split, count, 4 * width, dtype=torch.float32)
    grid = (-(-4 * width // tile.block_n), tile.split)
    for begin, end, multiply, gate in launch_spans(steps):
        launch(
            _forward,
            grid,
            *inputs,
            weights,
            *outputs,
            parts,
            zero_counter(x),
            begin,
            end,
            steps,
            count,
            width,
            *x.stride()[:2],
            weights.stride(0),
            MULTIPLY=multiply,
            GATE=gate,
            **flags,
            **tile_options(tile, grid, count, width, weights, gates),
        )
