"""Matrices in FP8: flipped, scaled and rounded in one pass, together with the transpose."""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..._perturbation import Signs
from ...backend import ADA, capability, register_kernel
from ...draws.bits import stream_name
from .base import INTERPRETED, has_adjacent_features, index_type
from .launching import launch
from .reductions import larger
from .signs import BLOCK, is_negative

_BLOCK_M = 64  # rows of a tile
_BLOCK, _REPEATS = 2048, 8  # numbers that a program of `_largest` takes at a time, and how many times
_BLOCK_N = tl.constexpr(BLOCK)


@triton.jit(do_not_specialize=["positions", "first", "name"])
def _quantise(
    x_ptr,
    straight_ptr,
    turned_ptr,
    scale_ptr,
    seed_ptr,
    rows,
    positions,
    first: tl.int64,
    name: tl.int64,
    FEATURES: tl.constexpr,
    NEGATE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
):
    """straight = round(± x / scale) and turned = straightᵀ, in FP8; either of them, and the signs, may be left out.

    x and straight are (rows, FEATURES), turned is (FEATURES, rows), scale is one number, and `positions` rows belong to
    one example and have its signs. One program makes a tile of BLOCK_M × 128.
    """
    left = tl.program_id(1) * _BLOCK_N
    row, column = tl.program_id(0).to(INDEX) * BLOCK_M + tl.arange(0, BLOCK_M), left.to(INDEX) + tl.arange(0, _BLOCK_N)
    is_inside = (row < rows)[:, None] & (column < FEATURES)[None, :]
    value = tl.load(x_ptr + (row * FEATURES)[:, None] + column[None, :], mask=is_inside, other=0).to(tl.float32)
    value = value * tl.div_rn(1.0, tl.load(scale_ptr))
    if seed_ptr is not None:
        example = first + (row // positions).to(tl.int64)
        is_flipped = is_negative(example, left, name, seed_ptr, _BLOCK_N, True) != NEGATE
        value = tl.where(is_flipped, -value, value)
    rounded = value.to(tl.float8e4nv)
    if straight_ptr is not None:
        tl.store(straight_ptr + (row * FEATURES)[:, None] + column[None, :], rounded, mask=is_inside)
    if turned_ptr is not None:
        tl.store(turned_ptr + (column * rows)[:, None] + row[None, :], rounded.T, mask=is_inside.T)


@triton.jit
def _largest(out_ptr, x_ptr, total, INDEX: tl.constexpr, BLOCK: tl.constexpr, REPEATS: tl.constexpr):
    """out = max |x| over the finite ones of `total` numbers; out starts at 0. One program takes BLOCK · REPEATS."""
    begin = tl.program_id(0).to(INDEX) * (BLOCK * REPEATS)
    largest_yet = tl.full((BLOCK,), 0, tl.float32)
    for i in tl.static_range(REPEATS):
        place = begin + i * BLOCK + tl.arange(0, BLOCK)
        size = tl.abs(tl.load(x_ptr + place, mask=place < total, other=0).to(tl.float32))
        largest_yet = tl.maximum(largest_yet, tl.where(size < float("inf"), size, 0))
    tl.atomic_max(out_ptr, tl.reduce(largest_yet, 0, larger), sem="relaxed")


def largest(x: Tensor) -> Tensor:
    """Return max |x| over the finite numbers of x, in single precision."""
    out = torch.zeros((), dtype=torch.float32, device=x.device)
    grid = (-(-x.numel() // (_BLOCK * _REPEATS)),)
    launch(_largest, grid, out, x, x.numel(), INDEX=index_type(x.numel()), BLOCK=_BLOCK, REPEATS=_REPEATS)
    return out


def quantise(
    x: Tensor, scale: Tensor, stream: tuple[Signs, Tensor, int] | None, straight: bool, turned: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Return Q(x) and Q(x)ᵀ, each if asked for. `stream` is the signs of the rows, their seed and their dimension."""
    rows, features = x.shape
    signs, seed, over = (None, None, 0) if stream is None else stream
    name = 0 if signs is None else stream_name(signs.key, over)
    rounded = torch.empty(rows, features, dtype=torch.float8_e4m3fn, device=x.device) if straight else None
    transposed = torch.empty(features, rows, dtype=torch.float8_e4m3fn, device=x.device) if turned else None
    launch(
        _quantise,
        (-(-rows // _BLOCK_M), -(-features // BLOCK)),
        x,
        rounded,
        transposed,
        scale,
        seed,
        rows,
        rows // signs.count if signs else 1,
        signs.first if signs else 0,
        name,
        FEATURES=features,
        NEGATE=int(signs is not None and signs.antithetic and over == 0),
        INDEX=index_type(x.numel()),
        BLOCK_M=_BLOCK_M,
        num_warps=4,
    )
    return rounded, transposed


def _fits(x: Tensor, signs: Signs | None) -> bool:
    """Admit half precision on devices with FP8: the compiled kernel got transposes of single precision wrong, and the
    interpreter rounds to FP8 in a way of its own."""
    is_entire = signs is None or (signs.part is None and signs.count > 0)
    if not is_entire or x.numel() == 0 or not has_adjacent_features(x, -1):
        return False
    return not INTERPRETED and x.dtype in (torch.bfloat16, torch.float16) and capability(x.device) >= ADA


def _fits_largest(x: Tensor) -> bool:
    """Admit what `quantise` admits: the largest number is the scale of FP8, and nothing else asks for it."""
    return _fits(x, None)


register_kernel("quantise", quantise, _fits)
register_kernel("largest", largest, _fits_largest)
