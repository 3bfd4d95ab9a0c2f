"""Both products of a linear layer under flipout in one launch, with one accumulator that is flipped between them.

y = r ∘ (r ∘ (x W̄ᵀ) + x′ ΔŴᵀ) + bias, where x′ = s ∘ x is flipped already. The second product is neither written nor
rounded. One kernel, its choice of tiles and its launcher.
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

from ..._perturbation import Signs
from ...backend import capability, register_kernel
from ...draws.bits import stream_name
from ..base import Op
from ..linear import Linear
from .base import INTERPRETED, has_adjacent_features, index_type
from .dot_product import dot
from .launching import Launch
from .signs import is_negative

_AMPERE = (8, 0)
_LARGEST = 2**20  # weights; above, cuBLAS's two products and their sum are as fast or faster (docs/speed.md)
_FILLED = 128 * 256 * 100  # outputs in large tiles, one tile for most processors of a device
_BAND = 8  # blocks of rows that come one after the other, so that what they read stays in the cache


class LinearTile(NamedTuple):
    """The tile of one program: its rows, columns and summands at a time, its warps, and its pipeline stages."""

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int


# The fastest on an H200 of those tried (docs/speed.md): for many rows, with a weight as stored and transposed, and for
# few rows, which would leave most of a device idle in such large tiles.
_MANY_ROWS, _TRANSPOSED = LinearTile(128, 256, 64, 8, 3), LinearTile(128, 128, 32, 4, 4)
_FEW_ROWS = LinearTile(64, 128, 64, 4, 4)


def _tile(rows: int, width: int, is_straight: bool) -> LinearTile:
    if rows * width < _FILLED:
        return _FEW_ROWS
    return _MANY_ROWS if is_straight else _TRANSPOSED


@triton.jit
def _accumulate(
    total,
    x_ptr,
    w_ptr,
    row,
    column,
    rows,
    columns,
    x_row_stride,
    w_row_stride,
    w_column_stride,
    LENGTH: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Return total + x wᵀ for one tile, over LENGTH summands, BLOCK_K at a time."""
    k = tl.arange(0, BLOCK_K)
    a_ptr = x_ptr + row[:, None] * x_row_stride + k[None, :]
    b_ptr = w_ptr + column[None, :] * w_row_stride + k[:, None] * w_column_stride
    is_even: tl.constexpr = LENGTH % BLOCK_K == 0
    is_row, is_column = (row < rows)[:, None], (column < columns)[None, :]
    for offset in range(0, LENGTH, BLOCK_K):
        a_mask = is_row if is_even else is_row & (offset + k < LENGTH)[None, :]
        b_mask = is_column if is_even else is_column & (offset + k < LENGTH)[:, None]
        total = dot(tl.load(a_ptr, mask=a_mask, other=0), tl.load(b_ptr, mask=b_mask, other=0), total, "ieee")
        a_ptr += BLOCK_K
        b_ptr += BLOCK_K * w_column_stride
    return total


@triton.jit(do_not_specialize=["rows", "positions", "first", "name"])
def _fused_linear(
    y_ptr,
    x_ptr,
    flipped_ptr,
    mean_ptr,
    delta_ptr,
    bias_ptr,
    seed_ptr,
    first: tl.int64,
    name: tl.int64,
    rows,
    positions,
    w_row_stride,
    w_column_stride,
    LENGTH: tl.constexpr,
    WIDTH: tl.constexpr,
    NEGATE: tl.constexpr,
    INDEX: tl.constexpr,
    BAND: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """y = r ∘ (r ∘ (x W̄ᵀ) + x′ ΔŴᵀ) + bias.

    x and x′ are (rows, LENGTH), W̄ and ΔŴ (WIDTH, LENGTH) with the strides given, y is (rows, WIDTH), and r has one row
    of signs for every `positions` rows. One program makes a tile of BLOCK_M × BLOCK_N outputs. Programs go down a BAND
    of row blocks before they go across.
    """
    down, across = (rows + BLOCK_M - 1) // BLOCK_M, (WIDTH + BLOCK_N - 1) // BLOCK_N
    band = tl.program_id(0) // (BAND * across)
    band_height = tl.minimum(down - band * BAND, BAND)
    inner = tl.program_id(0) % (BAND * across)
    top, left = (band * BAND + inner % band_height) * BLOCK_M, (inner // band_height) * BLOCK_N
    row, column = top.to(INDEX) + tl.arange(0, BLOCK_M), left.to(INDEX) + tl.arange(0, BLOCK_N)
    total = tl.full((BLOCK_M, BLOCK_N), 0, tl.float32)
    total = _accumulate(
        total, x_ptr, mean_ptr, row, column, rows, WIDTH, LENGTH, w_row_stride, w_column_stride, LENGTH, BLOCK_K
    )
    example = first + (row // positions).to(tl.int64)
    is_flipped = is_negative(example, left, name, seed_ptr, BLOCK_N) != NEGATE
    total = tl.where(is_flipped, -total, total)
    total = _accumulate(
        total, flipped_ptr, delta_ptr, row, column, rows, WIDTH, LENGTH, w_row_stride, w_column_stride, LENGTH, BLOCK_K
    )
    total = tl.where(is_flipped, -total, total)
    is_inside = (row < rows)[:, None] & (column < WIDTH)[None, :]
    if bias_ptr is not None:
        total += tl.load(bias_ptr + column, mask=column < WIDTH, other=0).to(tl.float32)[None, :]
    tl.store(y_ptr + (row * WIDTH)[:, None] + column[None, :], total, mask=is_inside)


def multiply_fused(
    x: Tensor,
    flipped: Tensor,
    mean: Tensor,
    delta: Tensor,
    bias: Tensor | None,
    signs: Signs,
    seed: Tensor,
    over: int,
    tile: LinearTile | None = None,
) -> Tensor:
    """Return x W̄ᵀ + r ∘ (x′ ΔŴᵀ) + bias, with the signs r of the Parameter's dimension `over`."""
    if mean.stride() != delta.stride():  # one pair of strides serves both, and a Parameter may have any
        mean, delta = mean.contiguous(), delta.contiguous()
    bias = None if bias is None else bias.contiguous()
    y = x.new_empty((*x.shape[:-1], mean.shape[0]))
    launch = _launch(x.shape, mean.shape, mean.stride(), signs.count, signs.antithetic and over == 0, tile)
    launch((y, x, flipped, mean, delta, bias, seed), signs.first, stream_name(signs.key, over))
    return y


@lru_cache(1024)
def _launch(
    shape: torch.Size, weight: torch.Size, strides: tuple[int, int], count: int, negate: bool, tile: LinearTile | None
) -> Launch:
    width, length = weight
    rows = shape.numel() // length
    tile = _tile(rows, width, strides[1] == 1) if tile is None else tile
    return Launch(
        _fused_linear,
        (-(-rows // tile.block_m) * -(-width // tile.block_n),),
        rows,
        rows // count,
        *strides,
        LENGTH=length,
        WIDTH=width,
        NEGATE=int(negate),
        INDEX=index_type(rows * max(width, length)),
        BAND=_BAND,
        BLOCK_M=tile.block_m,
        BLOCK_N=tile.block_n,
        BLOCK_K=tile.block_k,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def _fits(x: Tensor, signs: Signs, op: Op) -> bool:
    """Admit half precision with rows that start at multiples of 16 bytes, for tensor cores, and up to 2²⁰ weights,
    above which cuBLAS is as fast. The interpreter has no tensor cores: it may have single precision and any size.
    """
    if not isinstance(op, Linear) or op.bases is not None or signs.part is not None or not x.numel():
        return False
    if INTERPRETED:
        return x.dtype != torch.float64 and has_adjacent_features(x, -1)
    is_aligned = op.in_features % 8 == 0 == op.out_features % 8 and op.in_features * op.out_features <= _LARGEST
    is_half = x.dtype in (torch.bfloat16, torch.float16) and capability(x.device) >= _AMPERE
    return is_half and is_aligned and has_adjacent_features(x, -1)


register_kernel("fused_linear", multiply_fused, _fits)
