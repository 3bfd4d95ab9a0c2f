"""Prepares the operands of the LSTM's kernels: weights padded with zeros, signs in bytes, the state before each step.

Rows are padded so that every product is aligned.
"""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from .base import index_type
from .launching import launch
from .lstm_gates import S_BIT, load_gates, sign

ELEMENTS = 512  # numbers that a program takes if it only multiplies and adds
_PAD = 64  # numbers
_BLOCK = 64  # sides of the tile that a program copies


@triton.jit(do_not_specialize=["rows", "columns"])
def _pad(
    out_ptr,
    mean_ptr,
    delta_ptr,
    rows,
    columns,
    padded_rows,
    padded_columns,
    TRANSPOSED: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out[0] = W̄ and out[1] = ΔŴ, or their transposes, with zeros behind.

    W̄ and ΔŴ are (rows, columns), or (columns, rows) if TRANSPOSED; out is (1 or 2, padded_rows, padded_columns). One
    program copies a tile of BLOCK × BLOCK.
    """
    i = tl.program_id(1).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    if TRANSPOSED:
        is_inside = (j < columns)[:, None] & (i < rows)[None, :]
        place = (j * rows)[:, None] + i[None, :]
    else:
        is_inside = (i < rows)[:, None] & (j < columns)[None, :]
        place = (i * columns)[:, None] + j[None, :]
    if tl.program_id(2) == 0:
        tile = tl.load(mean_ptr + place, mask=is_inside, other=0)
    else:
        tile = tl.load(delta_ptr + place, mask=is_inside, other=0)
    if TRANSPOSED:
        tile = tile.T
    is_padded = (i < padded_rows)[:, None] & (j < padded_columns)[None, :]
    line = (tl.program_id(2).to(INDEX) * padded_rows + i) * padded_columns
    tl.store(out_ptr + line[:, None] + j[None, :], tile, mask=is_padded)


@triton.jit
def _is_negative_bit(x):
    return (x.to(tl.float32) < 0).to(tl.int32)


@triton.jit
def _pack(out_ptr, r_ptr, s_ptr, total, width, ELEMENTS: tl.constexpr, INDEX: tl.constexpr):
    """out[n, j] = the signs of unit j of sequence n in one byte: r of its four gates, and s.

    out and s are (count, width), `total` numbers; r is (count, 4 · width). One program makes ELEMENTS bytes.
    """
    e = tl.program_id(0).to(INDEX) * ELEMENTS + tl.arange(0, ELEMENTS)
    is_inside = e < total
    byte = _is_negative_bit(tl.load(s_ptr + e, mask=is_inside, other=0)) << S_BIT
    i, f, g, o = load_gates(r_ptr + 4 * (e // width) * width + e % width, width, is_inside)
    byte |= _is_negative_bit(i) | _is_negative_bit(f) << 1 | _is_negative_bit(g) << 2 | _is_negative_bit(o) << 3
    tl.store(out_ptr + e, byte.to(tl.uint8), mask=is_inside)


@triton.jit
def _previous(
    out_ptr,
    y_ptr,
    h_ptr,
    signs_ptr,
    total,
    step_stride,
    width,
    row_stride,
    pair_stride,
    FLIPPED: tl.constexpr,
    REVERSE: tl.constexpr,
    INDEX: tl.constexpr,
    ELEMENTS: tl.constexpr,
):
    """out[0, t, n] = the h that step t starts from, and out[1, t, n] = s ∘ out[0, t, n] if FLIPPED; zeros behind.

    out is (1 or 2, steps, count, row_stride), in the order of the steps. y is (steps, count, width), in the order of
    time, and h is (count, width). One program makes ELEMENTS of the `total` numbers of out[0].
    """
    e = tl.program_id(0).to(INDEX) * ELEMENTS + tl.arange(0, ELEMENTS)
    line, j = e // row_stride, e % row_stride
    count = step_stride // width
    t, n = line // count, line % count
    is_inside = (e < total) & (j < width)
    state = n * width + j
    time = total // row_stride // count - t if REVERSE else t - 1
    previous = tl.load(y_ptr + time * step_stride + state, mask=is_inside & (t > 0), other=0)
    previous += tl.load(h_ptr + state, mask=is_inside & (t == 0), other=0).to(previous.dtype)
    tl.store(out_ptr + e, previous, mask=e < total)
    if FLIPPED:
        s = sign(tl.load(signs_ptr + state, mask=is_inside, other=0), S_BIT)
        tl.store(out_ptr + pair_stride + e, previous * s, mask=e < total)


def padded_length(length: int) -> int:
    """Return the length of a row with its padding."""
    return -(-length // _PAD) * _PAD


def pad_weights(mean: Tensor, delta: Tensor | None, rows: int, columns: int, transposed: bool = False) -> Tensor:
    """Return W̄ and ΔŴ, or their transposes, as one (1 or 2, rows, columns) tensor, filled up with zeros."""
    weights = mean.new_empty(1 if delta is None else 2, rows, columns)
    launch(
        _pad,
        (-(-columns // _BLOCK), -(-rows // _BLOCK), len(weights)),
        weights,
        mean.contiguous(),
        (mean if delta is None else delta).contiguous(),
        *(reversed(mean.shape) if transposed else mean.shape),
        rows,
        columns,
        TRANSPOSED=transposed,
        INDEX=index_type(weights.numel()),
        BLOCK=_BLOCK,
    )
    return weights


def pack_signs(x: Tensor, width: int, r: Tensor | None, s: Tensor | None) -> Tensor:
    """Return the signs of the sequences of x, (count, width) bytes; left unfilled if there are none."""
    signs = x.new_empty(x.shape[0], width, dtype=torch.uint8)
    if r is not None and s is not None:
        launch(
            _pack,
            (-(-signs.numel() // ELEMENTS),),
            signs,
            r.contiguous(),
            s.contiguous(),
            signs.numel(),
            width,
            ELEMENTS=ELEMENTS,
            INDEX=index_type(r.numel()),
        )
    return signs


def previous_states(y: Tensor, h: Tensor, signs: Tensor, flipped: bool, reverse: bool) -> Tensor:
    """Return (1 or 2, steps · count, padded width): the h before each step, and if `flipped` also s ∘ h."""
    steps, count, width = y.shape
    states = y.new_empty(1 + flipped, steps * count, padded_length(width))
    total = states[0].numel()
    launch(
        _previous,
        (-(-total // ELEMENTS),),
        states,
        y,
        h.contiguous(),
        signs,
        total,
        count * width,
        width,
        states.shape[-1],
        states.stride(0),
        FLIPPED=flipped,
        REVERSE=reverse,
        INDEX=index_type(states.numel()),
        ELEMENTS=ELEMENTS,
    )
    return states
