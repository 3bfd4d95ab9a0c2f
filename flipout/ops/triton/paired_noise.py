"""Noise with two numbers to a word, normal or uniform: made in registers, for all starting points in one launch."""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import register_kernel
from ...draws.bits import wrap
from ...draws.noise import KINDS
from .base import fits, index_type, op, real_type
from .launching import Launch
from .noise import word_normals
from .noise_words import NUMBERS, aligned, cast, scale_noise, stream_word

_BLOCK = 512  # words in one program; twice as many in half precision
_TRITON = {
    torch.float64: tl.float64,
    torch.float32: tl.float32,
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
}


@triton.jit(do_not_specialize=[*NUMBERS, "half"], do_not_specialize_on_alignment=["start_ptr"])
def _pairs(
    out_ptr,
    start_ptr,
    factor_ptr,
    slope_ptr,
    fold: tl.int64,
    base: tl.int64,
    total: tl.int64,
    half: tl.int64,
    size: tl.int64,
    origin: tl.int64,
    ALONE: tl.constexpr,
    SEEDED: tl.constexpr,
    ALIGNED: tl.constexpr,
    REAL: tl.constexpr,
    KIND: tl.constexpr,
    FACTOR: tl.constexpr,
    SOFTPLUS: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out[k, i], out[k, half + i] = factor ∘ the two numbers of word i of stream k.

    out is (starts, size), and the numbers are normal, computed in REAL, or, if REAL is None, uniform 32-bit integers.
    There are `half` words to a stream and `total` in all. One program takes BLOCK words.
    """
    after, length = aligned(half.to(INDEX), ALIGNED), aligned(size.to(INDEX), ALIGNED)
    i = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    is_first = i < aligned(total.to(INDEX), ALIGNED)
    row, column = (0, i) if ALONE else (i // after, i % after)
    word = stream_word(start_ptr, row, column, origin, is_first, fold, base, ALONE, SEEDED)
    if REAL is None:
        first, second = (word >> 32).to(tl.int64), (word & 0xFFFFFFFF).to(tl.int64)
    else:
        first, second = word_normals(word, REAL, KIND)
    place = row * length + column
    # The second half may be one shorter. Everything is loaded before anything is stored, which the compiler would not
    # do by itself.
    is_second = is_first if ALIGNED else is_first & (column + after < length)
    first = scale_noise(first, factor_ptr, slope_ptr, column, place, is_first, KIND, FACTOR, SOFTPLUS)
    second = scale_noise(
        second, factor_ptr, slope_ptr, column + after, place + after, is_second, KIND, FACTOR, SOFTPLUS
    )
    tl.store(out_ptr + place, cast(first, out_ptr.dtype.element_ty), mask=is_first)
    tl.store(out_ptr + place + after, cast(second, out_ptr.dtype.element_ty), mask=is_second)


@lru_cache(1024)
def pair_launch(
    starts: int,
    size: int,
    channel: int,
    dtype: torch.dtype,
    rounded: torch.dtype | None,
    factor: int,
    softplus: bool,
    seeded: bool,
) -> Launch:
    """Return the launch for `starts` streams of `size` numbers in `dtype`.

    `channel` is 3 · part for normal noise and 3 · part + 1 for uniform noise. The numbers are rounded to `rounded`
    before they are scaled, and are uniform if that is None. `factor` is FACTOR.
    """
    half = -(-size // 2)
    total, block = starts * half, 2 * _BLOCK if dtype.itemsize == 2 else _BLOCK
    return Launch(
        _pairs,
        (-(-total // block),),
        total,
        half,
        size,
        wrap(channel * KINDS),
        ALONE=starts == 1,
        SEEDED=seeded,
        ALIGNED=size % 32 == 0,
        REAL=rounded and real_type(rounded, dtype),
        KIND=rounded and _TRITON[rounded],
        FACTOR=factor,
        SOFTPLUS=softplus,
        INDEX=index_type(starts * size),
        BLOCK=block,
    )


def _empty_normal(start: Tensor, shape: Sequence[int], dtype: torch.dtype, part: int) -> Tensor:
    return start.new_empty((*start.shape, *shape), dtype=dtype)


def _fill_normal(out: Tensor, start: Tensor, shape: Sequence[int], dtype: torch.dtype, part: int) -> None:
    launch = pair_launch(start.numel(), math.prod(shape), 3 * part, dtype, dtype, 0, False, False)
    launch((out, start, None, None), 0, 0)


def _empty_uniform(start: Tensor, shape: Sequence[int], part: int) -> Tensor:
    return start.new_empty((*start.shape, *shape))


def _fill_uniform(out: Tensor, start: Tensor, shape: Sequence[int], part: int) -> None:
    launch = pair_launch(start.numel(), math.prod(shape), 3 * part + 1, out.dtype, None, 0, False, False)
    launch((out, start, None, None), 0, 0)


register_kernel("Stream.normal", op("normal", _empty_normal, _fill_normal), fits)
register_kernel("Stream.uniform", op("uniform", _empty_uniform, _fill_uniform), fits)
