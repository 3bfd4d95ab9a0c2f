"""Flipout with a ΔŴ for every few members, whose noise is made where it is multiplied and never written to memory.

A word gives two normal numbers, which lie half a Parameter apart: for an even number of rows, in one column. So a
program takes a block of rows in either half.
"""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import capability, register
from ...draws.bits import GAMMA
from ..base import Op
from ..linear import Linear
from .base import INTERPRETED
from .launch import launch
from .noise import normals
from .scan import dot

_MEMBERS = 128  # rows that share a ΔŴ, at most: above, it pays to write it
_SIDE, _DEPTH = 64, 16  # of the blocks of a Parameter, and columns that a forward pass takes at a time
_BLOCKS = 2048  # programs that fill a device
_AMPERE = (8, 0)
_GAMMA = tl.constexpr(GAMMA % 2**64)


@triton.jit(do_not_specialize=["count", "share", "skip", "rows"])
def _forward(
    y,
    x,
    r,
    start,
    spread,
    count,
    share,
    skip,
    rows,
    FAN_IN: tl.constexpr,
    FAN_OUT: tl.constexpr,
    ROWS: tl.constexpr,
    SIDE: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """y += spread · r ∘ (x ΔŴᵀ), in place, for x flipped already: `share` rows of it for each base, the first base
    without its first `skip`; `rows` rows have one r."""
    half: tl.constexpr = FAN_OUT // 2
    kind: tl.constexpr = x.dtype.element_ty
    base = tl.program_id(0)
    o = tl.program_id(1) * SIDE + tl.arange(0, SIDE)
    place = tl.arange(0, ROWS)
    row = base * share + place - skip
    there = (place < share) & (row >= 0) & (row < count)
    z = tl.load(start + base).to(tl.uint64) + (o.to(tl.uint64) * FAN_IN) * _GAMMA
    upper = tl.full((SIDE, ROWS), 0, tl.float32)
    lower = tl.full((SIDE, ROWS), 0, tl.float32)
    line = row.to(tl.int64) * FAN_IN
    for k in range(0, FAN_IN, DEPTH):
        i = k + tl.arange(0, DEPTH)
        own = tl.load(x + line[:, None] + i[None, :], mask=there[:, None] & (i[None, :] < FAN_IN), other=0).T
        first, second = normals(z[:, None] + (i.to(tl.uint64) * _GAMMA)[None, :], kind)
        upper = dot(first.to(kind), own, upper, "ieee")
        lower = dot(second.to(kind), own, lower, "ieee")
    scale = tl.load(spread).to(tl.float32)
    inside = there[:, None] & (o[None, :] < half)
    out, flips = (
        row.to(tl.int64)[:, None] * FAN_OUT + o[None, :],
        (row // rows).to(tl.int64)[:, None] * FAN_OUT + o[None, :],
    )
    sign = tl.load(r + flips, mask=inside, other=0).to(tl.float32)
    mean = tl.load(y + out, mask=inside, other=0).to(tl.float32)
    tl.store(y + out, mean + sign * scale * upper.T, mask=inside)
    sign = tl.load(r + flips + half, mask=inside, other=0).to(tl.float32)
    mean = tl.load(y + out + half, mask=inside, other=0).to(tl.float32)
    tl.store(y + out + half, mean + sign * scale * lower.T, mask=inside)


@triton.jit(do_not_specialize=["count", "share", "skip", "bases"])
def _weighted(
    out,
    left,
    right,
    start,
    scale,
    count,
    share,
    skip,
    bases,
    KIND: tl.constexpr,
    FAN_IN: tl.constexpr,
    FAN_OUT: tl.constexpr,
    ROWS: tl.constexpr,
    SIDE: tl.constexpr,
    LENGTH: tl.constexpr,
):
    """scale · Σ ΔŴ ∘ leftᵀ right over LENGTH of the bases, each with `share` members, for a block of the Parameter."""
    half: tl.constexpr = FAN_OUT // 2
    i = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    o = tl.program_id(1) * SIDE + tl.arange(0, SIDE)
    place = tl.arange(0, ROWS)
    z = ((o.to(tl.uint64) * FAN_IN) * _GAMMA)[:, None] + (i.to(tl.uint64) * _GAMMA)[None, :]
    upper = tl.full((SIDE, SIDE), 0, tl.float32)
    lower = tl.full((SIDE, SIDE), 0, tl.float32)
    zero = tl.full((SIDE, SIDE), 0, tl.float32)
    for b in range(0, LENGTH):
        base = tl.program_id(2) * LENGTH + b
        member = base * share + place - skip
        there = ((place < share) & (member >= 0) & (member < count))[:, None]
        line, inside = left + member.to(tl.int64)[:, None] * FAN_OUT + o[None, :], there & (o[None, :] < half)
        above = tl.load(line, mask=inside, other=0)
        below = tl.load(line + half, mask=inside, other=0)
        own = tl.load(
            right + member.to(tl.int64)[:, None] * FAN_IN + i[None, :], mask=there & (i[None, :] < FAN_IN), other=0
        )
        first, second = normals(z + tl.load(start + base, mask=base < bases, other=0).to(tl.uint64), KIND)
        upper += dot(above.T, own, zero, "ieee") * first
        lower += dot(below.T, own, zero, "ieee") * second
    factor = tl.load(scale)
    line = (tl.program_id(2) * FAN_OUT + o).to(tl.int64)[:, None] * FAN_IN + i[None, :]
    inside = (o[:, None] < half) & (i[None, :] < FAN_IN)
    tl.store(out + line, upper * factor, mask=inside)
    tl.store(out + line + half * FAN_IN, lower * factor, mask=inside)


def put_grouped(y: Tensor, x: Tensor, r: Tensor, start: Tensor, spread: Tensor, share: int, skip: int) -> Tensor:
    """y + spread · r ∘ apply(x, ΔŴ), in the memory of y: `share` rows of x in each group, `skip` less in the first."""
    (count, fan_in), fan_out, rows = x.shape, y.shape[1], x.shape[0] // len(r)
    launch(
        _forward,
        (len(start), _blocks(fan_out // 2)),
        y,
        x.contiguous(),
        r.contiguous(),
        start,
        spread,
        count,
        share,
        skip,
        rows,
        FAN_IN=fan_in,
        FAN_OUT=fan_out,
        SIDE=_SIDE,
        DEPTH=_DEPTH,
        **_launch(share, 4),
    )
    return y


def weighted_groups(
    r: Tensor, s: Tensor, fitness: Tensor, dtype: torch.dtype, start: Tensor, spread: Tensor, share: int, skip: int
) -> Tensor:
    """spread · Σ ΔŴ ∘ Rᵀ diag(F) S over all groups, with noise for `dtype`. The products are in the signs' own
    dtype: half precision rounds F relative to the largest."""
    fan_out, fan_in, bases = r.shape[1], s.shape[1], len(start)
    blocks = _blocks(fan_in), _blocks(fan_out // 2)
    length = -(-bases // max(min(bases, _BLOCKS // (blocks[0] * blocks[1])), 1))
    splits = -(-bases // length)
    largest = fitness.abs().amax().clamp_min(torch.finfo(fitness.dtype).tiny)
    out = fitness.new_empty(splits, fan_out, fan_in)
    launch(
        _weighted,
        (*blocks, splits),
        out,
        r * (fitness / largest).to(r.dtype).unsqueeze(1),
        s.contiguous(),
        start,
        spread.to(fitness.dtype) * largest,
        len(r),
        share,
        skip,
        bases,
        KIND={torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}[dtype],
        FAN_IN=fan_in,
        FAN_OUT=fan_out,
        SIDE=_SIDE,
        LENGTH=length,
        **_launch(share, 8),
    )
    return out.sum(0)


def _blocks(numbers: int) -> int:
    return -(-numbers // _SIDE)


def _launch(share: int, warps: int) -> dict[str, int]:
    """Members, padded; and warps, registers and loads ahead, so that a processor holds several programs."""
    rows = max(1 << (share - 1).bit_length(), 16)
    return {
        "ROWS": rows,
        "num_warps": warps if rows < _MEMBERS else 8,
        "num_stages": 3 if rows < _MEMBERS else 2,
        "maxnreg": 128,
    }


def _fits(tensor: Tensor, dtype: torch.dtype, op: Op | None, shape: torch.Size, share: int) -> bool:
    """A matrix with an even number of rows, and enough to fill a block, in half precision: elsewhere the noise is not
    what takes the time."""
    matrix = (op is None or isinstance(op, Linear)) and len(shape) == 2 and shape[0] % 2 == 0 and shape.numel() > 0
    if not matrix or not 0 < share <= _MEMBERS:
        return False
    if INTERPRETED:
        return dtype in (torch.float32, torch.bfloat16, torch.float16)
    ready = capability(tensor.device) >= _AMPERE
    return ready and dtype in (torch.bfloat16, torch.float16) and shape[0] >= _SIDE


register("put_grouped", put_grouped, _fits)
register("weighted_groups", weighted_groups, _fits)
