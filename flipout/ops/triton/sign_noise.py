"""Noise of ±1, 64 numbers to a word: made in registers, for all starting points in one launch."""
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
from .noise_words import NUMBERS, aligned, cast, scale_noise, stream_word

_WORDS = 16  # words in one program


@triton.jit(do_not_specialize=[*NUMBERS, "words"], do_not_specialize_on_alignment=["start_ptr"])
def _bits(
    out_ptr,
    start_ptr,
    factor_ptr,
    fold: tl.int64,
    base: tl.int64,
    total: tl.int64,
    words: tl.int64,
    size: tl.int64,
    origin: tl.int64,
    ALONE: tl.constexpr,
    SEEDED: tl.constexpr,
    ALIGNED: tl.constexpr,
    REAL: tl.constexpr,
    FACTOR: tl.constexpr,
    INDEX: tl.constexpr,
    WORDS: tl.constexpr,
):
    """out[k, 64 i + b] = factor ∘ (1 − 2 · bit b of word i of stream k).

    out is (starts, size). There are `words` words to a stream and `total` in all. One program takes WORDS of them.
    """
    length = aligned(size.to(INDEX), ALIGNED)
    i = tl.program_id(0).to(INDEX) * WORDS + tl.arange(0, WORDS)
    is_inside = i < total.to(INDEX)
    row, column = (0, i) if ALONE else (i // words.to(INDEX), i % words.to(INDEX))
    word = stream_word(start_ptr, row, column, origin, is_inside, fold, base, ALONE, SEEDED)
    line = 0 if ALONE else (row * length)[:, None]
    signs = ()
    for half in tl.static_range(2):
        # Shifts are of 32 bits: Triton 3.6 compiles shifts of 64 bits by a lane's place wrongly for some dtypes.
        bit = tl.arange(0, 32)[None, :]
        element = column[:, None] * 64 + (32 * half + bit)
        bits = (word >> (32 * half)).to(tl.uint32)[:, None]
        sign = 1 - 2 * ((bits >> bit.to(tl.uint32)) & 1).to(REAL)
        is_there = is_inside[:, None] & (element < length)
        scaled = scale_noise(sign, factor_ptr, None, element, line + element, is_there, REAL, FACTOR, False)
        signs = signs + (scaled,)  # noqa: RUF005
    for half in tl.static_range(2):
        element = column[:, None] * 64 + (32 * half + tl.arange(0, 32)[None, :])
        is_there = is_inside[:, None] & (element < length)
        tl.store(out_ptr + line + element, cast(signs[half], out_ptr.dtype.element_ty), mask=is_there)


@lru_cache(1024)
def sign_launch(
    starts: int, size: int, channel: int, dtype: torch.dtype, rounded: torch.dtype, factor: int, seeded: bool
) -> Launch:
    """Return the launch for `starts` streams of `size` numbers in `dtype`.

    `channel` is 3 · part + 2. The numbers are computed in the wider of `dtype` and `rounded`. `factor` is FACTOR.
    """
    words = -(-size // 64)
    total = starts * words
    return Launch(
        _bits,
        (-(-total // _WORDS),),
        total,
        words,
        size,
        wrap(channel * KINDS),
        ALONE=starts == 1,
        SEEDED=seeded,
        ALIGNED=size % 64 == 0,
        REAL=real_type(rounded, dtype),
        FACTOR=factor,
        INDEX=index_type(starts * size),
        WORDS=_WORDS,
    )


def _empty_sign(start: Tensor, shape: Sequence[int], dtype: torch.dtype, part: int) -> Tensor:
    return start.new_empty((*start.shape, *shape), dtype=dtype)


def _fill_sign(out: Tensor, start: Tensor, shape: Sequence[int], dtype: torch.dtype, part: int) -> None:
    launch = sign_launch(start.numel(), math.prod(shape), 3 * part + 2, dtype, dtype, 0, False)
    launch((out, start, None), 0, 0)


register_kernel("Stream.sign", op("sign", _empty_sign, _fill_sign), fits)
