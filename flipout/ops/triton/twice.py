"""Both products of a linear layer under flipout in one: an accumulator that is flipped between them.

y = r ∘ (r ∘ (x W̄) + x′ ΔŴ) + bias, for x′ = s ∘ x flipped already. The second product is neither written nor rounded.
"""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# pyright: reportCallIssue=false

from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import capability, register
from ...draws.bits import stream_name
from ...perturbation import Signs
from ..base import Op
from ..linear import Linear
from .base import INTERPRETED, index_type, side_by_side
from .launch import Launch
from .scan import dot
from .signs import BLOCK, sign_words, sign_words_once

_AMPERE = (8, 0)
_MOST = 2**20  # numbers of a weight; above, cuBLAS's two products and their sum are as fast or faster (docs/speed.md)
_FILLED = 128 * 256 * 100  # numbers of an output in large tiles, one for most processors of a device
_BAND = 8  # blocks of rows that come one after the other, so that what they read stays near
_BLOCK = tl.constexpr(BLOCK)


class Tile(NamedTuple):
    """Rows, columns and summands that one program takes at a time; its warps, and its loads ahead."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


# What was fastest on an H200 of what was tried (docs/speed.md): for many rows, with a weight as it is and transposed;
# and for few, which would leave most of a device idle in such tiles.
_MANY, _TRANSPOSED, _FEW = Tile(128, 256, 64, 8, 3), Tile(128, 128, 32, 4, 4), Tile(64, 128, 64, 4, 4)


def _tile(rows: int, width: int, straight: bool) -> Tile:
    if rows * width < _FILLED:
        return _FEW
    return _MANY if straight else _TRANSPOSED


@triton.jit
def negatives(example, begin, name, seed, COLUMNS: tl.constexpr, ONCE: tl.constexpr = False):
    """Which signs of these examples are −1, for COLUMNS features from a multiple of 128 on."""
    number, column = tl.load(seed), tl.arange(0, COLUMNS)
    word = tl.full((example.shape[0], COLUMNS), 0, tl.uint32)
    for block in tl.static_range(COLUMNS // _BLOCK):
        at = begin // _BLOCK + block
        words = sign_words_once(number, name, example, at) if ONCE else sign_words(number, name, example, at)
        for part in tl.static_range(4):
            word = tl.where((column // 32 == 4 * block + part)[None, :], words[part][:, None], word)
    return ((word >> (column % 32).to(tl.uint32)[None, :]) & 1) != 0


@triton.jit
def _sum(total, x, w, row, column, rows, columns, x_row, w_row, w_column, LENGTH: tl.constexpr, DEPTH: tl.constexpr):
    """total + x wᵀ, over LENGTH summands."""
    k = tl.arange(0, DEPTH)
    a = x + row[:, None] * x_row + k[None, :]
    b = w + column[None, :] * w_row + k[:, None] * w_column
    whole: tl.constexpr = LENGTH % DEPTH == 0
    there, own = (row < rows)[:, None], (column < columns)[None, :]
    for at in range(0, LENGTH, DEPTH):
        left = there if whole else there & (at + k < LENGTH)[None, :]
        right = own if whole else own & (at + k < LENGTH)[:, None]
        total = dot(tl.load(a, mask=left, other=0), tl.load(b, mask=right, other=0), total, "ieee")
        a += DEPTH
        b += DEPTH * w_column
    return total


@triton.jit(do_not_specialize=["rows", "positions", "first", "name"])
def _twice(
    y,
    x,
    flipped,
    mean,
    delta,
    bias,
    seed,
    first: tl.int64,
    name: tl.int64,
    rows,
    positions,
    w_row,
    w_column,
    LENGTH: tl.constexpr,
    WIDTH: tl.constexpr,
    NEGATE: tl.constexpr,
    INDEX: tl.constexpr,
    BAND: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    down, across = (rows + ROWS - 1) // ROWS, (WIDTH + COLUMNS - 1) // COLUMNS
    band = tl.program_id(0) // (BAND * across)
    high_band = tl.minimum(down - band * BAND, BAND)
    inner = tl.program_id(0) % (BAND * across)
    top, begin = (band * BAND + inner % high_band) * ROWS, (inner // high_band) * COLUMNS
    row, column = top.to(INDEX) + tl.arange(0, ROWS), begin.to(INDEX) + tl.arange(0, COLUMNS)
    total = tl.full((ROWS, COLUMNS), 0, tl.float32)
    total = _sum(total, x, mean, row, column, rows, WIDTH, LENGTH, w_row, w_column, LENGTH, DEPTH)
    example = first + (row // positions).to(tl.int64)
    negative = negatives(example, begin, name, seed, COLUMNS) != NEGATE
    total = tl.where(negative, -total, total)
    total = _sum(total, flipped, delta, row, column, rows, WIDTH, LENGTH, w_row, w_column, LENGTH, DEPTH)
    total = tl.where(negative, -total, total)
    inside = (row < rows)[:, None] & (column < WIDTH)[None, :]
    if bias is not None:
        total += tl.load(bias + column, mask=column < WIDTH, other=0).to(tl.float32)[None, :]
    tl.store(y + (row * WIDTH)[:, None] + column[None, :], total, mask=inside)


def multiply_twice(
    x: Tensor,
    flipped: Tensor,
    mean: Tensor,
    delta: Tensor,
    bias: Tensor | None,
    signs: Signs,
    seed: Tensor,
    over: int,
    tile: Tile | None = None,
) -> Tensor:
    """x W̄ᵀ + r ∘ (x′ ΔŴᵀ) + bias, with the signs r of the Parameter's dimension `over`."""
    if mean.stride() != delta.stride():  # one pair of strides serves both; a Parameter may lie in memory in any way
        mean, delta = mean.contiguous(), delta.contiguous()
    bias = None if bias is None else bias.contiguous()
    y = x.new_empty((*x.shape[:-1], mean.shape[0]))
    made = _launch(x.shape, mean.shape, mean.stride(), signs.count, signs.antithetic and over == 0, tile)
    made((y, x, flipped, mean, delta, bias, seed), signs.first, stream_name(signs.key, over))
    return y


@lru_cache(1024)
def _launch(
    shape: torch.Size, weight: torch.Size, strides: tuple[int, int], count: int, negate: bool, tile: Tile | None
) -> Launch:
    width, length = weight
    rows = shape.numel() // length
    tile = _tile(rows, width, strides[1] == 1) if tile is None else tile
    return Launch(
        _twice,
        (-(-rows // tile.rows) * -(-width // tile.columns),),
        rows,
        rows // count,
        *strides,
        LENGTH=length,
        WIDTH=width,
        NEGATE=int(negate),
        INDEX=index_type(rows * max(width, length)),
        BAND=_BAND,
        ROWS=tile.rows,
        COLUMNS=tile.columns,
        DEPTH=tile.depth,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def _fits(x: Tensor, signs: Signs, op: Op) -> bool:
    """Rows that start at multiples of 16 bytes, in half precision; the interpreter has no such products."""
    if not isinstance(op, Linear) or op.bases is not None or signs.part is not None or not x.numel():
        return False
    if INTERPRETED:
        return x.dtype != torch.float64 and side_by_side(x, -1)
    aligned = op.in_features % 8 == 0 == op.out_features % 8 and op.in_features * op.out_features <= _MOST
    half = x.dtype in (torch.bfloat16, torch.float16) and capability(x.device) >= _AMPERE
    return half and aligned and side_by_side(x, -1)


register("multiply_twice", multiply_twice, _fits)
