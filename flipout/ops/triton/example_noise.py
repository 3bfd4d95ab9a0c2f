"""The noise of single examples, rank-one or a vector: made in registers where it is added, and never written.

The two numbers of a word lie half a vector apart: word i holds elements i and half + i.
"""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import register_kernel
from ...draws.bits import wrap
from ...draws.noise import KINDS
from .base import fits, has_adjacent_features
from .launching import launch
from .noise import STEP, state_normals
from .reductions import plus

_BLOCK = 1024  # words that a program takes at a time, at most
_PART_1 = tl.constexpr(wrap(3 * KINDS) % 2**64)  # what the start of a stream lacks to the start of its part 1


@triton.jit(do_not_specialize=["rows"])
def _dots(out_ptr, x_ptr, start_ptr, rows, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """out[n] = x[n] · B_n, with B_n the normal noise in part 1 of the stream of row n's example.

    x is (N, SIZE), out is (N,), and `rows` rows belong to one example. One program takes a row, BLOCK words at a time.
    """
    half: tl.constexpr = (SIZE + 1) // 2
    row = tl.program_id(0)
    z = tl.load(start_ptr + row // rows).to(tl.uint64) + _PART_1
    row_ptr = x_ptr + row.to(tl.int64) * SIZE
    total = tl.full((BLOCK,), 0, tl.float32)
    for k in range(0, half, BLOCK):
        i = k + tl.arange(0, BLOCK)
        first, second = state_normals(z + i.to(tl.uint64) * STEP, x_ptr.dtype.element_ty)
        total += tl.load(row_ptr + i, mask=i < half, other=0).to(tl.float32) * first
        total += tl.load(row_ptr + half + i, mask=i < SIZE - half, other=0).to(tl.float32) * second
    tl.store(out_ptr + row, tl.reduce(total, 0, plus))


@triton.jit(do_not_specialize=["rows"])
def _add(y_ptr, start_ptr, spread_ptr, factor_ptr, mean_ptr, rows, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """y[n] += mean + factor[n] · spread · A_n, with A_n the normal noise of the stream of row n's example.

    y is (N, SIZE), mean is (SIZE,), factor is (N,), spread is one number; mean and factor may be left out. `rows` rows
    belong to one example. One program takes BLOCK words of a row.
    """
    half: tl.constexpr = (SIZE + 1) // 2
    kind: tl.constexpr = y_ptr.dtype.element_ty
    row = tl.program_id(0)
    z = tl.load(start_ptr + row // rows).to(tl.uint64)
    scale = tl.load(spread_ptr).to(tl.float32)
    if factor_ptr is not None:
        scale *= tl.load(factor_ptr + row)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first, second = state_normals(z + i.to(tl.uint64) * STEP, kind)
    place_ptr = y_ptr + row.to(tl.int64) * SIZE + i
    is_first, is_second = i < half, i < SIZE - half
    first, second = first * scale, second * scale
    if mean_ptr is not None:
        first += tl.load(mean_ptr + i, mask=is_first, other=0).to(tl.float32)
        second += tl.load(mean_ptr + half + i, mask=is_second, other=0).to(tl.float32)
    tl.store(place_ptr, tl.load(place_ptr, mask=is_first, other=0).to(tl.float32) + first, mask=is_first)
    place_ptr += half
    tl.store(place_ptr, tl.load(place_ptr, mask=is_second, other=0).to(tl.float32) + second, mask=is_second)


def add_rank_one(y: Tensor, x: Tensor, start: Tensor, spread: Tensor) -> Tensor:
    """Return y + spread · (x · B_n) A_n, in the memory of y."""
    dots, size = x.new_empty(len(x), dtype=torch.float32), x.shape[1]
    launch(_dots, (len(x),), dots, x, start, len(x) // len(start), SIZE=size, BLOCK=_block(size))
    return _add_noise(y, start, spread, dots, None)


def add_normals(y: Tensor, mean: Tensor, start: Tensor, spread: Tensor) -> Tensor:
    """Return y + mean + spread · ε_n, in the memory of y."""
    return _add_noise(y, start, spread, None, mean.contiguous())


def _add_noise(y: Tensor, start: Tensor, spread: Tensor, factor: Tensor | None, mean: Tensor | None) -> Tensor:
    rows, size = y.shape
    if not size:
        return y
    block = _block(size)
    grid = rows, -(-size // (2 * block))
    launch(_add, grid, y, start, spread, factor, mean, rows // len(start), SIZE=size, BLOCK=block)
    return y


def _block(size: int) -> int:
    return int(min(triton.next_power_of_2(-(-size // 2)), _BLOCK))  # pyright: ignore[reportCallIssue]


def _fits(x: Tensor, dim: int) -> bool:
    """Admit matrices with adjacent features, of which the kernels know each row's example, below double precision,
    since they add in single precision."""
    is_matrix = x.dim() == 2 and dim == -1 and has_adjacent_features(x, -1) and x.numel() > 0
    return is_matrix and fits(x, x.dtype) and x.dtype != torch.float64


register_kernel("add_rank_one", add_rank_one, _fits)
register_kernel("add_normals", add_normals, _fits)
