"""The backward pass of an LSTM for few sequences in one launch, under flipout or with one weight for all."""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# pyright: reportPossiblyUnboundVariable=false, reportUnboundVariable=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launching import launch
from .lstm_gates import S_BIT, add_gates, drop_ended, flip_gates, gate_gradients, load_gates, sign, store_gates
from .lstm_packing import pad_weights
from .lstm_persistent import PersistentTile, launch_spans, product_tile, tile_options, wait_for_all, zero_counter


@triton.jit(do_not_specialize=["begin", "end", "steps", "count"])
def _backward(
    alive_ptr,
    passed_ptr,
    dy_ptr,
    dcells_ptr,
    gates_ptr,
    cells_ptr,
    signs_ptr,
    pairs_ptr,
    sums_ptr,
    weights_ptr,
    parts_ptr,
    counter_ptr,
    begin,
    end,
    steps,
    count,
    width,
    dy_time_stride,
    dy_row_stride,
    a_pair_stride,
    b_pair_stride,
    MULTIPLY: tl.constexpr,
    GATE: tl.constexpr,
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
    """Σ parts = dg W̄ + s ∘ ((dg ∘ r) ΔŴ) of step t, and pairs[:, t − 1] = dg and dg ∘ r, for begin > t ≥ end.

    dg is the gradient of a step's gates before their activation.

    Shapes:
        pairs   (1 or 2, steps, count, SPLIT · LENGTH): dg, and dg ∘ r if FLIPPED
        weights (1 or 2, width, SPLIT · LENGTH): W̄ᵀ, and ΔŴᵀ if FLIPPED
        parts   (SPLIT, count, width)
        sums    (count, 4 · width): dg summed over the steps
        dy      (steps, count, width)
        gates   (steps, count, 4 · width), before their activation
        cells   (steps + 1, count, width)
        dcells  (count, width): dc, replaced by dc of the first state
        alive   (steps, count) bytes
        passed  (count, width): with ALIVE, the dh of sequences that have ended, which passes their steps by

    Program (i, k) makes part k of the sums of columns i · BLOCK_N onward for all sequences, and SHARE units of the
    state.
    """
    row_length: tl.constexpr = SPLIT * LENGTH
    n, column = tl.arange(0, BLOCK_M), tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    row, is_row = n.to(INDEX), (n < count)[:, None]
    is_inside = is_row & (column < width)[None, :]
    k = tl.program_id(1) * LENGTH + tl.arange(0, BLOCK_K)
    a_ptr = pairs_ptr + (row * row_length)[:, None] + k[None, :]
    b_ptr = weights_ptr + (tl.minimum(column, width - 1).to(INDEX) * row_length)[:, None] + k[None, :]
    total = count.to(INDEX) * width
    place = (row * width)[:, None] + column[None, :]
    s = 1.0
    if FLIPPED:
        s = sign(tl.load(signs_ptr + place, mask=is_inside, other=0), S_BIT)
    part_ptr = parts_ptr + tl.program_id(1) * total + place
    programs = tl.num_programs(0) * tl.num_programs(1)
    e = (tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)).to(INDEX) * SHARE + tl.arange(0, SHARE)
    is_unit, line, j = e < total, e // width, e % width
    dc = tl.load(dcells_ptr + e, mask=is_unit, other=0)
    if FLIPPED:
        byte = tl.load(signs_ptr + e, mask=is_unit, other=0)
    si, sf, sg, so = load_gates(sums_ptr + 4 * line * width + j, width, is_unit)
    if ALIVE:
        passed = tl.load(passed_ptr + e, mask=is_unit, other=0)
    t, arrivals = begin, 0
    while t > end:
        t -= 1
        earlier = tl.maximum(t - 1, 0).to(INDEX)
        if GATE:
            time = (steps - 1 - earlier if REVERSE else earlier).to(INDEX)
            dy = tl.load(dy_ptr + time * dy_time_stride + line * dy_row_stride + j, mask=is_unit, other=0)
            i, f, g, o = load_gates(gates_ptr + 4 * (earlier * total + line * width) + j, width, is_unit)
            last_c = tl.load(cells_ptr + earlier * total + e, mask=is_unit, other=0)
            c = tl.load(cells_ptr + (earlier + 1) * total + e, mask=is_unit, other=0)
        if MULTIPLY:
            part = product_tile(
                a_ptr + t.to(INDEX) * count * row_length, a_pair_stride, b_ptr, b_pair_stride, is_row, s,
                FLIPPED, LENGTH, PRECISION, BLOCK_M, BLOCK_N, BLOCK_K,
            )  # fmt: skip
            tl.store(part_ptr, part, mask=is_inside)
        if MULTIPLY and GATE:
            arrivals += programs
            wait_for_all(counter_ptr, arrivals)
        if GATE:  # noqa: SIM102 (decided while compiling)
            if t > 0:
                dh = tl.load(parts_ptr + e, mask=is_unit, other=0, cache_modifier=".cg")
                for split in tl.static_range(1, SPLIT):
                    dh += tl.load(parts_ptr + split * total + e, mask=is_unit, other=0, cache_modifier=".cg")
                dh += dy
                if ALIVE:
                    dh += passed
                di, df, dg, do, next_dc = gate_gradients(i, f, g, o, last_c, c, dh, dc)
                if ALIVE:
                    is_alive = tl.load(alive_ptr + time * count + line, mask=is_unit, other=0) != 0
                    di, df, dg, do, next_dc = drop_ended(is_alive, di, df, dg, do, next_dc, dc)
                    passed = tl.where(is_alive, 0, dh)
                dc = next_dc
                pair_ptr = pairs_ptr + (earlier * count + line) * row_length + j
                store_gates(pair_ptr, width, di, df, dg, do, is_unit)
                si, sf, sg, so = add_gates(si, sf, sg, so, di, df, dg, do)
                if FLIPPED:
                    di, df, dg, do = flip_gates(byte, di, df, dg, do)
                    store_gates(pair_ptr + a_pair_stride, width, di, df, dg, do, is_unit)
        if t > end:
            arrivals += programs
            wait_for_all(counter_ptr, arrivals)
    if GATE:
        tl.store(dcells_ptr + e, dc, mask=is_unit)
        if ALIVE:
            tl.store(passed_ptr + e, passed, mask=is_unit)
        store_gates(sums_ptr + 4 * line * width + j, width, si, sf, sg, so, is_unit)


def backward_persistent(
    tensors: tuple[Tensor, ...], mean: Tensor, delta: Tensor | None, flags: dict[str, bool], tile: PersistentTile
) -> Tensor:
    """Make the gates' gradients of all steps but the last, which are made already; return dh of the first state.

    `tensors` are alive, passed, dy, dcells, gates, cells, signs, pairs and sums.
    """
    _, _, dy, *_, pairs, _ = tensors
    steps, count, width = dy.shape
    weights = pad_weights(mean, delta, width, pairs.shape[-1], transposed=True)
    parts = dy.new_empty(tile.split, count, width, dtype=torch.float32)
    grid = (-(-width // tile.block_n), tile.split)
    for begin, end, multiply, gate in launch_spans(steps):
        launch(
            _backward,
            grid,
            *tensors,
            weights,
            parts,
            zero_counter(dy),
            steps - begin,
            steps - end,
            steps,
            count,
            width,
            *dy.stride()[:2],
            pairs.stride(0),
            weights.stride(0),
            MULTIPLY=multiply,
            GATE=gate,
            **flags,
            **tile_options(tile, grid, count, width, weights, pairs),
        )
    return parts.sum(0)
