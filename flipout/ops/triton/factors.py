"""Noise of rank one, and vectors of noise, for every example: made in registers and never written."""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import register
from ...draws.bits import GAMMA, wrap
from ...draws.noise import KINDS
from .base import fits, side_by_side
from .launch import launch
from .noise import normals

_BLOCK = 1024  # words at a time, at most
_GAMMA = tl.constexpr(GAMMA % 2**64)
_SECOND = tl.constexpr(wrap(3 * KINDS) % 2**64)  # where part 1 of a stream is


@triton.jit
def plus(a, b):
    return a + b


@triton.jit(do_not_specialize=["rows"])
def _dots(out, x, start, rows, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """out[n] = x[n] · ε of part 1 of its example's stream; `rows` rows belong to one example."""
    half: tl.constexpr = (SIZE + 1) // 2
    row = tl.program_id(0)
    z = tl.load(start + row // rows).to(tl.uint64) + _SECOND
    line = x + row.to(tl.int64) * SIZE
    total = tl.full((BLOCK,), 0, tl.float32)
    for k in range(0, half, BLOCK):
        i = k + tl.arange(0, BLOCK)
        first, second = normals(z + i.to(tl.uint64) * _GAMMA, x.dtype.element_ty)
        total += tl.load(line + i, mask=i < half, other=0).to(tl.float32) * first
        total += tl.load(line + half + i, mask=i < SIZE - half, other=0).to(tl.float32) * second
    tl.store(out + row, tl.reduce(total, 0, plus))


@triton.jit(do_not_specialize=["rows"])
def _add(y, start, spread, factor, mean, rows, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """y[n] += mean + factor[n] · spread · ε of its example's stream."""
    half: tl.constexpr = (SIZE + 1) // 2
    kind: tl.constexpr = y.dtype.element_ty
    row = tl.program_id(0)
    z = tl.load(start + row // rows).to(tl.uint64)
    scale = tl.load(spread).to(tl.float32)
    if factor is not None:
        scale *= tl.load(factor + row)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first, second = normals(z + i.to(tl.uint64) * _GAMMA, kind)
    line = y + row.to(tl.int64) * SIZE + i
    upper, lower = i < half, i < SIZE - half
    first, second = first * scale, second * scale
    if mean is not None:
        first += tl.load(mean + i, mask=upper, other=0).to(tl.float32)
        second += tl.load(mean + half + i, mask=lower, other=0).to(tl.float32)
    tl.store(line, tl.load(line, mask=upper, other=0).to(tl.float32) + first, mask=upper)
    tl.store(line + half, tl.load(line + half, mask=lower, other=0).to(tl.float32) + second, mask=lower)


def put_factored(y: Tensor, x: Tensor, start: Tensor, spread: Tensor) -> Tensor:
    """y + spread · (x · B_n) A_n, in the memory of y."""
    dots, size = x.new_empty(len(x), dtype=torch.float32), x.shape[1]
    launch(_dots, (len(x),), dots, x, start, len(x) // len(start), SIZE=size, BLOCK=_block(size))
    return _added(y, start, spread, dots, None)


def add_normals(y: Tensor, mean: Tensor, start: Tensor, spread: Tensor) -> Tensor:
    """y + mean + spread · ε_n, in the memory of y."""
    return _added(y, start, spread, None, mean.contiguous())


def _added(y: Tensor, start: Tensor, spread: Tensor, factor: Tensor | None, mean: Tensor | None) -> Tensor:
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
    """Rows of features."""
    rows = x.dim() == 2 and dim == -1 and side_by_side(x, -1) and x.numel() > 0
    return rows and fits(x, x.dtype) and x.dtype != torch.float64


register("put_factored", put_factored, _fits)
register("add_normals", add_normals, _fits)
