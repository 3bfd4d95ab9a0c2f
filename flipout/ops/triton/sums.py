"""The gradient of a bias: sums over all rows, in single precision, split over a device."""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import register
from .base import fits, index_type, side_by_side
from .factors import plus
from .launch import Launch

_ROWS, _COLUMNS = 32, 128
_PROGRAMS = 1024  # fill a device


@triton.jit(do_not_specialize=["rows"])
def _partial(
    out,
    x,
    rows,
    FEATURES: tl.constexpr,
    LENGTH: tl.constexpr,
    INDEX: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Sums of LENGTH rows each."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    begin = tl.program_id(1).to(INDEX) * LENGTH
    own = column < FEATURES
    total = tl.full((ROWS, COLUMNS), 0, out.dtype.element_ty)
    for at in range(0, LENGTH, ROWS):
        row = begin + at + tl.arange(0, ROWS)
        there = (row < rows)[:, None] & own[None, :]
        total += tl.load(x + row[:, None] * FEATURES + column[None, :], mask=there, other=0).to(total.dtype)
    tl.store(out + tl.program_id(1) * FEATURES + column, tl.reduce(total, 0, plus), mask=own)


def sum_rows(x: Tensor, dim: int) -> Tensor:
    """Σ over all dimensions but `dim`, whose numbers lie side by side."""
    splits, wide, made = _launch(x.shape, x.dtype, dim)
    out = x.new_empty((splits, x.shape[dim]), dtype=wide)
    made((out, x))
    total = out.sum(0)
    return total if wide == x.dtype else total.to(x.dtype)


@lru_cache(1024)
def _launch(shape: torch.Size, dtype: torch.dtype, dim: int) -> tuple[int, torch.dtype, Launch]:
    """With it, how many parts of the sums there are, and their dtype."""
    features = shape[dim]
    rows, blocks = shape.numel() // features, -(-features // _COLUMNS)
    length = max(1 << (-(-rows * blocks // _PROGRAMS) - 1).bit_length(), _ROWS)
    splits = -(-rows // length)
    made = Launch(
        _partial,
        (blocks, splits),
        rows,
        FEATURES=features,
        LENGTH=length,
        INDEX=index_type(shape.numel()),
        ROWS=_ROWS,
        COLUMNS=_COLUMNS,
    )
    return splits, torch.promote_types(dtype, torch.float32), made


def _fits(x: Tensor, dim: int) -> bool:
    return fits(x, x.dtype) and x.numel() > 0 and side_by_side(x, dim)


register("sum_rows", sum_rows, _fits)
