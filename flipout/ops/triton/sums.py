"""The gradient of a bias: sums over all rows, in single precision, split over a device where there are many."""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import register
from .base import fits, index_type, side_by_side
from .factors import plus
from .launch import launch

_ROWS = 32
_PROGRAMS, _COLUMNS = 1024, 128  # fill a device; and where there is one sum for each feature
_FEW = 32


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
    features = x.shape[dim]
    rows = x.numel() // features
    length = max(_power(-(-rows * -(-features // _COLUMNS) // _PROGRAMS)), _ROWS)
    splits = -(-rows // length)
    out = torch.empty(features, dtype=x.dtype, device=x.device)
    if splits == 1:
        _fill(out, x, rows, features, length, 1, _FEW)
        return out
    kind = torch.float64 if x.dtype == torch.float64 else torch.float32
    parts = torch.empty(splits, features, dtype=kind, device=x.device)
    _fill(parts, x, rows, features, length, splits, _COLUMNS)
    _fill(out, parts, splits, features, max(_power(splits), _ROWS), 1, _FEW)
    return out


def _fill(out: Tensor, x: Tensor, rows: int, features: int, length: int, splits: int, columns: int) -> None:
    launch(
        _sums,
        (-(-features // columns), splits),
        out,
        x,
        rows,
        FEATURES=features,
        LENGTH=length,
        REAL=tl.float64 if x.dtype == torch.float64 else tl.float32,
        INDEX=index_type(x),
        ROWS=_ROWS,
        COLUMNS=columns,
    )


def _power(number: int) -> int:
    """The power of two that is not below it."""
    return 1 << (number - 1).bit_length()


def _fits(x: Tensor, dim: int) -> bool:
    return fits(x, x.dtype) and x.numel() > 0 and side_by_side(x, dim)


register("sum_rows", sum_rows, _fits)
