"""The gradient of a bias: sums over all rows, in single precision, split over a device where there are many.

What is read for them is flipped and written by the same kernel where that is wanted too, as the backward pass does.
"""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import register
from ...draws.bits import stream_name
from ...perturbation import Signs
from .base import fits, index_type, real_type, side_by_side
from .factors import plus
from .launch import Launch
from .twice import negatives

_ROWS, _COLUMNS, _FEW = 32, 128, 32  # of a tile; fewer columns where one program has all the rows of its own
_AT_ONCE = 128  # rows that such a program loads before it adds them up
_PROGRAMS = 1024  # fill a device


@triton.jit(do_not_specialize=["first", "name", "rows", "positions"])
def _sums(
    out,
    x,
    flipped,
    seed,
    first: tl.int64,
    name: tl.int64,
    rows,
    positions,
    FEATURES: tl.constexpr,
    LENGTH: tl.constexpr,
    NEGATE: tl.constexpr,
    REAL: tl.constexpr,
    INDEX: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Of LENGTH rows each; `positions` of them are an example and have its signs."""
    left = tl.program_id(0) * COLUMNS
    column = left + tl.arange(0, COLUMNS)
    begin = tl.program_id(1).to(INDEX) * LENGTH
    own = column < FEATURES
    total = tl.full((ROWS, COLUMNS), 0, REAL)
    for at in range(0, LENGTH, ROWS):
        row = begin + at + tl.arange(0, ROWS)
        there = (row < rows)[:, None] & own[None, :]
        place = row[:, None] * FEATURES + column[None, :]
        value = tl.load(x + place, mask=there, other=0).to(REAL)
        total += value
        if flipped is not None:
            example = first + (row // positions).to(tl.int64)
            negative = negatives(example, left, name, seed, COLUMNS, True) != NEGATE
            tl.store(flipped + place, tl.where(negative, -value, value), mask=there)
    tl.store(out + tl.program_id(1) * FEATURES + column, tl.reduce(total, 0, plus), mask=own)


def sum_rows(x: Tensor, dim: int) -> Tensor:
    """Σ over all dimensions but `dim`, whose numbers lie side by side."""
    return _run(x, dim, None, None, (0, 0), 1, False)


def flip_and_sum(x: Tensor, signs: Signs, seed: Tensor, over: int, dim: int) -> tuple[Tensor, Tensor]:
    """x times its examples' signs of the Parameter's dimension `over`, along `dim`; and x summed as above."""
    flipped, negate = torch.empty_like(x), signs.antithetic and over == 0
    whose = (signs.first, stream_name(signs.key, over))
    return flipped, _run(x, dim, flipped, seed, whose, signs.count, negate)


def _run(
    x: Tensor, dim: int, flipped: Tensor | None, seed: Tensor | None, whose: tuple[int, ...], count: int, negate: bool
) -> Tensor:
    splits, first, second = _launches(x.shape, x.dtype, dim, flipped is not None, count, negate)
    out = x.new_empty(x.shape[dim])
    if second is None:
        first((out, x, flipped, seed), *whose)
        return out
    parts = x.new_empty((splits, x.shape[dim]), dtype=torch.promote_types(x.dtype, torch.float32))
    first((parts, x, flipped, seed), *whose)
    second((out, parts, None, None), 0, 0)
    return out


@lru_cache(1024)
def _launches(
    shape: torch.Size, dtype: torch.dtype, dim: int, flips: bool, count: int, negate: bool
) -> tuple[int, Launch, Launch | None]:
    """How many parts the sums have, the launch that makes them, and the one that adds them up if there are several."""
    features = shape[dim]
    rows = shape.numel() // features
    length = max(int(triton.next_power_of_2(-(-rows * -(-features // _COLUMNS) // _PROGRAMS))), _ROWS)
    splits = -(-rows // length)
    columns = _FEW if splits == 1 and not flips else _COLUMNS
    made = _launch(rows, features, length, splits, columns, _ROWS, dtype, rows // count, negate)
    if splits == 1:
        return 1, made, None
    whole = max(int(triton.next_power_of_2(splits)), _ROWS)
    return splits, made, _launch(splits, features, whole, 1, _FEW, min(whole, _AT_ONCE), dtype)


def _launch(
    rows: int,
    features: int,
    length: int,
    splits: int,
    columns: int,
    at_once: int,
    dtype: torch.dtype,
    positions: int = 1,
    negate: bool = False,
) -> Launch:
    return Launch(
        _sums,
        (-(-features // columns), splits),
        rows,
        positions,
        FEATURES=features,
        LENGTH=length,
        NEGATE=int(negate),
        REAL=real_type(dtype),
        INDEX=index_type(rows * features),
        ROWS=at_once,
        COLUMNS=columns,
    )


def _fits(x: Tensor, dim: int) -> bool:
    return fits(x, x.dtype) and x.numel() > 0 and side_by_side(x, dim)


register("sum_rows", sum_rows, _fits)
