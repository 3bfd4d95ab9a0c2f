"""Flipout whose groups of a few members share a ΔŴ: the noise is made where it is multiplied, and never written.

The two normal numbers of a word lie half a Parameter apart, which is in one column if the number of rows is even. So a
program takes a block of rows in either half. The file holds two kernels, the product and the sum over members for an
evolution strategy's update, since both walk the same tiles of the same noise and are admitted for the same Parameters.
"""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import capability, register_kernel
from ..base import Op
from ..linear import Linear
from .base import INTERPRETED
from .dot_product import dot
from .launching import launch
from .noise import STEP, state_normals

_LARGEST_GROUP = 128  # rows that share a ΔŴ, at most; above, writing ΔŴ pays
_BLOCK_N, _BLOCK_K = 64, 16  # sides of a Parameter's blocks, and columns that a forward pass takes at a time
_PROGRAMS = 2048  # enough to fill a device
_AMPERE = (8, 0)


@triton.jit(do_not_specialize=["count", "share", "skip", "rows"])
def _add_product(
    y_ptr,
    x_ptr,
    r_ptr,
    start_ptr,
    spread_ptr,
    count,
    share,
    skip,
    rows,
    FAN_IN: tl.constexpr,
    FAN_OUT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """y += spread · r ∘ (x ΔŴ_bᵀ), in place, with x flipped already and b the base of each row.

    x is (count, FAN_IN), y is (count, FAN_OUT), r has one row for every `rows` rows, and every base has `share` rows,
    but the first one `skip` fewer. One program makes the rows of one base and BLOCK_N columns in either half of y.
    """
    half: tl.constexpr = FAN_OUT // 2
    kind: tl.constexpr = x_ptr.dtype.element_ty
    base = tl.program_id(0)
    o = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    place = tl.arange(0, BLOCK_M)
    row = base * share + place - skip
    is_row = (place < share) & (row >= 0) & (row < count)
    z = tl.load(start_ptr + base).to(tl.uint64) + (o.to(tl.uint64) * FAN_IN) * STEP
    upper = tl.full((BLOCK_N, BLOCK_M), 0, tl.float32)
    lower = tl.full((BLOCK_N, BLOCK_M), 0, tl.float32)
    line = row.to(tl.int64) * FAN_IN
    for k in range(0, FAN_IN, BLOCK_K):
        i = k + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + line[:, None] + i[None, :], mask=is_row[:, None] & (i[None, :] < FAN_IN), other=0).T
        first, second = state_normals(z[:, None] + (i.to(tl.uint64) * STEP)[None, :], kind)
        upper = dot(first.to(kind), x, upper, "ieee")
        lower = dot(second.to(kind), x, lower, "ieee")
    scale = tl.load(spread_ptr).to(tl.float32)
    is_inside = is_row[:, None] & (o[None, :] < half)
    out = row.to(tl.int64)[:, None] * FAN_OUT + o[None, :]
    flips = (row // rows).to(tl.int64)[:, None] * FAN_OUT + o[None, :]
    sign = tl.load(r_ptr + flips, mask=is_inside, other=0).to(tl.float32)
    mean = tl.load(y_ptr + out, mask=is_inside, other=0).to(tl.float32)
    tl.store(y_ptr + out, mean + sign * scale * upper.T, mask=is_inside)
    sign = tl.load(r_ptr + flips + half, mask=is_inside, other=0).to(tl.float32)
    mean = tl.load(y_ptr + out + half, mask=is_inside, other=0).to(tl.float32)
    tl.store(y_ptr + out + half, mean + sign * scale * lower.T, mask=is_inside)


@triton.jit(do_not_specialize=["count", "share", "skip", "bases"])
def _weighted_sum(
    out_ptr,
    left_ptr,
    right_ptr,
    start_ptr,
    scale_ptr,
    count,
    share,
    skip,
    bases,
    KIND: tl.constexpr,
    FAN_IN: tl.constexpr,
    FAN_OUT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    LENGTH: tl.constexpr,
):
    """out[k] = scale · Σ_b ΔŴ_b ∘ (left_bᵀ right_b) over the LENGTH bases b of split k.

    left is (count, FAN_OUT), right is (count, FAN_IN), out is (splits, FAN_OUT, FAN_IN), and every base has `share`
    rows, but the first one `skip` fewer. One program sums a block of BLOCK_N × BLOCK_N in either half of a Parameter.
    """
    half: tl.constexpr = FAN_OUT // 2
    i = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    o = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    place = tl.arange(0, BLOCK_M)
    z = ((o.to(tl.uint64) * FAN_IN) * STEP)[:, None] + (i.to(tl.uint64) * STEP)[None, :]
    upper = tl.full((BLOCK_N, BLOCK_N), 0, tl.float32)
    lower = tl.full((BLOCK_N, BLOCK_N), 0, tl.float32)
    zero = tl.full((BLOCK_N, BLOCK_N), 0, tl.float32)
    for b in range(0, LENGTH):
        base = tl.program_id(2) * LENGTH + b
        member = base * share + place - skip
        is_member = ((place < share) & (member >= 0) & (member < count))[:, None]
        line_ptr = left_ptr + member.to(tl.int64)[:, None] * FAN_OUT + o[None, :]
        is_inside = is_member & (o[None, :] < half)
        left_upper = tl.load(line_ptr, mask=is_inside, other=0)
        left_lower = tl.load(line_ptr + half, mask=is_inside, other=0)
        right = tl.load(
            right_ptr + member.to(tl.int64)[:, None] * FAN_IN + i[None, :],
            mask=is_member & (i[None, :] < FAN_IN),
            other=0,
        )
        first, second = state_normals(z + tl.load(start_ptr + base, mask=base < bases, other=0).to(tl.uint64), KIND)
        upper += dot(left_upper.T, right, zero, "ieee") * first
        lower += dot(left_lower.T, right, zero, "ieee") * second
    scale = tl.load(scale_ptr)
    line = (tl.program_id(2) * FAN_OUT + o).to(tl.int64)[:, None] * FAN_IN + i[None, :]
    is_inside = (o[:, None] < half) & (i[None, :] < FAN_IN)
    tl.store(out_ptr + line, upper * scale, mask=is_inside)
    tl.store(out_ptr + line + half * FAN_IN, lower * scale, mask=is_inside)


def add_grouped_product(
    y: Tensor, x: Tensor, r: Tensor, start: Tensor, spread: Tensor, share: int, skip: int
) -> Tensor:
    """Return y + spread · r ∘ apply(x, ΔŴ), in the memory of y.

    A group has `share` rows, and the first group `skip` fewer.
    """
    (count, fan_in), fan_out, rows = x.shape, y.shape[1], x.shape[0] // len(r)
    launch(
        _add_product,
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
        BLOCK_N=_BLOCK_N,
        BLOCK_K=_BLOCK_K,
        **_options(share, 4),
    )
    return y


def weighted_noise_sum(
    r: Tensor, s: Tensor, fitness: Tensor, dtype: torch.dtype, start: Tensor, spread: Tensor, share: int, skip: int
) -> Tensor:
    """Return spread · Σ ΔŴ ∘ Rᵀ diag(F) S over all groups, with noise made for `dtype`.

    The products are in the dtype of the signs. Half precision rounds F relative to its largest number.
    """
    fan_out, fan_in, bases = r.shape[1], s.shape[1], len(start)
    blocks = _blocks(fan_in), _blocks(fan_out // 2)
    length = -(-bases // max(min(bases, _PROGRAMS // (blocks[0] * blocks[1])), 1))
    splits = -(-bases // length)
    largest_fitness = fitness.abs().amax().clamp_min(torch.finfo(fitness.dtype).tiny)
    out = fitness.new_empty(splits, fan_out, fan_in)
    launch(
        _weighted_sum,
        (*blocks, splits),
        out,
        r * (fitness / largest_fitness).to(r.dtype).unsqueeze(1),
        s.contiguous(),
        start,
        spread.to(fitness.dtype) * largest_fitness,
        len(r),
        share,
        skip,
        bases,
        KIND={torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}[dtype],
        FAN_IN=fan_in,
        FAN_OUT=fan_out,
        BLOCK_N=_BLOCK_N,
        LENGTH=length,
        **_options(share, 8),
    )
    return out.sum(0)


def _blocks(numbers: int) -> int:
    return -(-numbers // _BLOCK_N)


def _options(share: int, warps: int) -> dict[str, int]:
    """Return the padded rows of a group, and warps, stages and registers that let a processor hold several programs."""
    rows = max(1 << (share - 1).bit_length(), 16)
    return {
        "BLOCK_M": rows,
        "num_warps": warps if rows < _LARGEST_GROUP else 8,
        "num_stages": 3 if rows < _LARGEST_GROUP else 2,
        "maxnreg": 128,
    }


def _fits(tensor: Tensor, dtype: torch.dtype, op: Op | None, shape: torch.Size, share: int) -> bool:
    """Admit groups of up to 128 rows and matrices with an even number of rows, enough to fill a block, in half
    precision: elsewhere making the noise is not what takes the time."""
    is_matrix = (op is None or isinstance(op, Linear)) and len(shape) == 2 and shape[0] % 2 == 0 and shape.numel() > 0
    if not is_matrix or not 0 < share <= _LARGEST_GROUP:
        return False
    if INTERPRETED:
        return dtype in (torch.float32, torch.bfloat16, torch.float16)
    is_ready = capability(tensor.device) >= _AMPERE
    return is_ready and dtype in (torch.bfloat16, torch.float16) and shape[0] >= _BLOCK_N


register_kernel("add_grouped_product", add_grouped_product, _fits)
register_kernel("weighted_noise_sum", weighted_noise_sum, _fits)
