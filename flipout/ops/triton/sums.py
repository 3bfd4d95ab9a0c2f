"""The gradient of a bias: sums over all rows, in single precision, split over a device where there are many."""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import register
from .base import fits, index_type, real_type, side_by_side
from .factors import plus
from .launch import Launch

_ROWS, _COLUMNS, _FEW = 32, 128, 32  # of a tile; fewer columns where one program has all the rows of its own
_PROGRAMS = 1024  # fill a device


@triton.jit(do_not_specialize=["rows"])
def _sums(
    out,
    x,
    rows,
    FEATURES: tl.constexpr,
    LENGTH: tl.constexpr,
    REAL: tl.constexpr,
    INDEX: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Of LENGTH rows each."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    begin = tl.program_id(1).to(INDEX) * LENGTH
    own = column < FEATURES
    total = tl.full((ROWS, COLUMNS), 0, REAL)
    for at in range(0, LENGTH, ROWS):
        row = begin + at + tl.arange(0, ROWS)
        there = (row < rows)[:, None] & own[None, :]
        total += tl.load(x + row[:, None] * FEATURES + column[None, :], mask=there, other=0).to(REAL)
    tl.store(out + tl.program_id(1) * FEATURES + column, tl.reduce(total, 0, plus), mask=own)


def sum_rows(x: Tensor, dim: int) -> Tensor:
    """Σ over all dimensions but `dim`, whose numbers lie side by side."""
    splits, first, second = _launches(x.shape, x.dtype, dim)
    out = x.new_empty(x.shape[dim])
    if second is None:
        first((out, x))
        return out
    parts = x.new_empty((splits, x.shape[dim]), dtype=torch.promote_types(x.dtype, torch.float32))
    first((parts, x))
    second((out, parts))
    return out


@lru_cache(1024)
def _launches(shape: torch.Size, dtype: torch.dtype, dim: int) -> tuple[int, Launch, Launch | None]:
    """How many parts the sums have, the launch that makes them, and the one that adds them up if there are several."""
    features = shape[dim]
    rows = shape.numel() // features
    length = max(int(triton.next_power_of_2(-(-rows * -(-features // _COLUMNS) // _PROGRAMS))), _ROWS)
    splits = -(-rows // length)
    if splits == 1:
        return 1, _launch(rows, features, length, 1, _FEW, dtype), None
    whole = max(int(triton.next_power_of_2(splits)), _ROWS)
    return (
        splits,
        _launch(rows, features, length, splits, _COLUMNS, dtype),
        _launch(splits, features, whole, 1, _FEW, dtype),
    )


def _launch(rows: int, features: int, length: int, splits: int, columns: int, dtype: torch.dtype) -> Launch:
    return Launch(
        _sums,
        (-(-features // columns), splits),
        rows,
        FEATURES=features,
        LENGTH=length,
        REAL=real_type(dtype),
        INDEX=index_type(rows * features),
        ROWS=_ROWS,
        COLUMNS=columns,
    )


def _fits(x: Tensor, dim: int) -> bool:
    return fits(x, x.dtype) and x.numel() > 0 and side_by_side(x, dim)


register("sum_rows", sum_rows, _fits)
