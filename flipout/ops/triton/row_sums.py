"""Sums over all rows, the gradient of a bias: in single precision, and split over the device if there are many rows.

The backward pass needs the same rows flipped. The kernel can write them too, so that they are read only once.
"""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..._perturbation import Signs
from ...backend import register_kernel
from ...draws.bits import stream_name
from .base import fits, has_adjacent_features, index_type, real_type
from .launching import Launch
from .reductions import plus
from .signs import is_negative

_BLOCK_M, _BLOCK_N = 32, 128  # rows and columns of a tile
_NARROW_N = 32  # columns of a tile if one program takes all rows
_ALL_ROWS_M = 128  # rows that such a program loads before it adds them up
_PROGRAMS = 1024  # enough to fill a device


@triton.jit(do_not_specialize=["first", "name", "rows", "positions"])
def _sums(
    out_ptr,
    x_ptr,
    flipped_ptr,
    seed_ptr,
    first: tl.int64,
    name: tl.int64,
    rows,
    positions,
    FEATURES: tl.constexpr,
    LENGTH: tl.constexpr,
    NEGATE: tl.constexpr,
    REAL: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """out[k, j] = Σ x[n, j] over rows n of part k, and flipped[n, j] = ± x[n, j] if there is a `flipped_ptr`.

    x and flipped are (rows, FEATURES), out is (parts, FEATURES). A part has LENGTH rows, and `positions` rows belong to
    one example and have its signs. One program sums BLOCK_N columns of one part, BLOCK_M rows at a time.
    """
    left = tl.program_id(0) * BLOCK_N
    column = left + tl.arange(0, BLOCK_N)
    begin = tl.program_id(1).to(INDEX) * LENGTH
    is_column = column < FEATURES
    total = tl.full((BLOCK_M, BLOCK_N), 0, REAL)
    for offset in range(0, LENGTH, BLOCK_M):
        row = begin + offset + tl.arange(0, BLOCK_M)
        is_there = (row < rows)[:, None] & is_column[None, :]
        place = row[:, None] * FEATURES + column[None, :]
        value = tl.load(x_ptr + place, mask=is_there, other=0).to(REAL)
        total += value
        if flipped_ptr is not None:
            example = first + (row // positions).to(tl.int64)
            is_flipped = is_negative(example, left, name, seed_ptr, BLOCK_N, True) != NEGATE
            tl.store(flipped_ptr + place, tl.where(is_flipped, -value, value), mask=is_there)
    tl.store(out_ptr + tl.program_id(1) * FEATURES + column, tl.reduce(total, 0, plus), mask=is_column)


def sum_rows(x: Tensor, dim: int) -> Tensor:
    """Return the sum over all dimensions but `dim`, whose numbers are adjacent in memory."""
    return _run(x, dim, None, None, (0, 0), 1, False)


def flip_and_sum(x: Tensor, signs: Signs, seed: Tensor, over: int, dim: int) -> tuple[Tensor, Tensor]:
    """Return x times its examples' signs of the Parameter's dimension `over`, along `dim`; and `sum_rows` of x."""
    flipped, negate = torch.empty_like(x), signs.antithetic and over == 0
    stream = (signs.first, stream_name(signs.key, over))
    return flipped, _run(x, dim, flipped, seed, stream, signs.count, negate)


def _run(
    x: Tensor, dim: int, flipped: Tensor | None, seed: Tensor | None, stream: tuple[int, ...], count: int, negate: bool
) -> Tensor:
    parts, sum_parts, join_parts = _launches(x.shape, x.dtype, dim, flipped is not None, count, negate)
    out = x.new_empty(x.shape[dim])
    if join_parts is None:
        sum_parts((out, x, flipped, seed), *stream)
        return out
    partial = x.new_empty((parts, x.shape[dim]), dtype=torch.promote_types(x.dtype, torch.float32))
    sum_parts((partial, x, flipped, seed), *stream)
    join_parts((out, partial, None, None), 0, 0)
    return out


@lru_cache(1024)
def _launches(
    shape: torch.Size, dtype: torch.dtype, dim: int, flips: bool, count: int, negate: bool
) -> tuple[int, Launch, Launch | None]:
    """Return the number of parts, the launch that sums each, and the one that adds them up if there are several."""
    features = shape[dim]
    rows = shape.numel() // features
    length = max(int(triton.next_power_of_2(-(-rows * -(-features // _BLOCK_N) // _PROGRAMS))), _BLOCK_M)
    parts = -(-rows // length)
    columns = _NARROW_N if parts == 1 and not flips else _BLOCK_N
    sum_parts = _launch(rows, features, length, parts, columns, _BLOCK_M, dtype, rows // count, negate)
    if parts == 1:
        return 1, sum_parts, None
    padded = max(int(triton.next_power_of_2(parts)), _BLOCK_M)
    return parts, sum_parts, _launch(parts, features, padded, 1, _NARROW_N, min(padded, _ALL_ROWS_M), dtype)


def _launch(
    rows: int,
    features: int,
    length: int,
    parts: int,
    block_n: int,
    block_m: int,
    dtype: torch.dtype,
    positions: int = 1,
    negate: bool = False,
) -> Launch:
    return Launch(
        _sums,
        (-(-features // block_n), parts),
        rows,
        positions,
        FEATURES=features,
        LENGTH=length,
        NEGATE=int(negate),
        REAL=real_type(dtype),
        INDEX=index_type(rows * features),
        BLOCK_M=block_m,
        BLOCK_N=block_n,
    )


def _fits(x: Tensor, dim: int) -> bool:
    """Admit tensors whose features are adjacent, since the kernel walks memory as rows."""
    return fits(x, x.dtype) and x.numel() > 0 and has_adjacent_features(x, dim)


register_kernel("sum_rows", sum_rows, _fits)
