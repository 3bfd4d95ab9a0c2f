"""Noise in one launch: made in registers, for all starting points."""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false
# pyright: reportAttributeAccessIssue=false

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import register
from ...draws.bits import wrap
from ...draws.noise import KINDS, Origin
from .base import fits, index_type, op, real_type
from .launch import Launch, launch
from .noise import STEP, gaussians, sigmoid, softplus, splitmix, started

_BLOCK, _WORDS = 512, 16  # words of two numbers (twice as many in half precision), and of 64 signs, in one program


@triton.jit
def _word(start, row, column, origin, inside, fold, base, ALONE: tl.constexpr, SEEDED: tl.constexpr):
    """Word `column` of the stream that starts at start[row]; or of the only one, which may start at what is made of the
    seed that is there instead."""
    if ALONE:
        z = tl.load(start).to(tl.uint64)
        if SEEDED:
            z = started(z, fold, base)
    else:
        z = tl.load(start + row, mask=inside, other=0).to(tl.uint64)
    return splitmix(z + origin.to(tl.uint64) + column.to(tl.uint64) * STEP)


@triton.jit
def _aligned(number, ALIGNED: tl.constexpr):
    """The number; where it is a multiple of 16, in a way that lets the compiler see it."""
    return number // 16 * 16 if ALIGNED else number


@triton.jit
def _cast(x, KIND: tl.constexpr):
    """x as KIND. Half precision by way of single: the interpreter knows no other from double to bfloat16."""
    return x.to(tl.float32).to(KIND) if KIND.primitive_bitwidth == 16 else x.to(KIND)


@triton.jit
def _scaled(
    noise, factor, slope, column, place, inside, KIND: tl.constexpr, FACTOR: tl.constexpr, SOFTPLUS: tl.constexpr
):
    """The noise, rounded to KIND, times its factor: none (0), one number (1), one for each column (2) or place (3); or
    times the softplus of that. With a `slope`, times the derivative of its softplus as well."""
    made = noise
    if FACTOR:
        made = _cast(noise, KIND).to(noise.dtype)
        if FACTOR == 1:
            by = tl.load(factor).to(noise.dtype)
        else:
            by = tl.load(factor + (column if FACTOR == 2 else place), mask=inside, other=0).to(noise.dtype)
        made *= _cast(softplus(by, KIND), KIND).to(noise.dtype) if SOFTPLUS else by
        if slope is not None:
            x = tl.load(slope + column, mask=inside, other=0).to(noise.dtype)
            made = _cast(made, KIND).to(noise.dtype) * sigmoid(x, KIND)
    return made


_NUMBERS = ["origin", "fold", "base", "total", "size"]


@triton.jit(do_not_specialize=[*_NUMBERS, "half"], do_not_specialize_on_alignment=["start"])
def _halves(
    out,
    start,
    factor,
    slope,
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
    """Two numbers from each of the `total` words, for the two halves: normal in REAL, or uniform integers (None)."""
    after, each = _aligned(half.to(INDEX), ALIGNED), _aligned(size.to(INDEX), ALIGNED)
    i = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    inside = i < _aligned(total.to(INDEX), ALIGNED)
    row, column = (0, i) if ALONE else (i // after, i % after)
    z = _word(start, row, column, origin, inside, fold, base, ALONE, SEEDED)
    if REAL is None:
        first, second = (z >> 32).to(tl.int64), (z & 0xFFFFFFFF).to(tl.int64)
    else:
        first, second = gaussians(z, REAL, KIND)
    place = row * each + column
    # The second half may lack one. All is loaded before any is stored, which the compiler would not do by itself.
    there = inside if ALIGNED else inside & (column + after < each)
    first = _scaled(first, factor, slope, column, place, inside, KIND, FACTOR, SOFTPLUS)
    second = _scaled(second, factor, slope, column + after, place + after, there, KIND, FACTOR, SOFTPLUS)
    tl.store(out + place, _cast(first, out.dtype.element_ty), mask=inside)
    tl.store(out + place + after, _cast(second, out.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=[*_NUMBERS, "words"], do_not_specialize_on_alignment=["start"])
def _bits(
    out,
    start,
    factor,
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
    """±1, times its factor, from each bit of the `total` words, of which every starting point has `words`."""
    each = _aligned(size.to(INDEX), ALIGNED)
    i = tl.program_id(0).to(INDEX) * WORDS + tl.arange(0, WORDS)
    inside = i < total.to(INDEX)
    row, column = (0, i) if ALONE else (i // words.to(INDEX), i % words.to(INDEX))
    z = _word(start, row, column, origin, inside, fold, base, ALONE, SEEDED)
    line = 0 if ALONE else (row * each)[:, None]
    signs = ()
    for half in tl.static_range(2):
        bit = 32 * half + tl.arange(0, 32)[None, :]
        element = column[:, None] * 64 + bit
        sign = 1 - 2 * ((z[:, None] >> bit.to(tl.uint64)) & 1).to(REAL)
        there = inside[:, None] & (element < each)
        signs = signs + (_scaled(sign, factor, None, element, line + element, there, REAL, FACTOR, False),)  # noqa: RUF005
    for half in tl.static_range(2):
        element = column[:, None] * 64 + (32 * half + tl.arange(0, 32)[None, :])
        tl.store(
            out + line + element, _cast(signs[half], out.dtype.element_ty), mask=inside[:, None] & (element < each)
        )


@triton.jit(do_not_specialize=["total", "count", "first", "fold", "name"], do_not_specialize_on_alignment=["seed"])
def _starts(
    out,
    seed,
    total: tl.int64,
    count: tl.int64,
    first: tl.int64,
    fold: tl.int64,
    name: tl.int64,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    inside = i < total
    row, column = i // count.to(INDEX), i % count.to(INDEX)
    base = splitmix((first.to(tl.int64) + column).to(tl.uint64) * STEP)
    z = started(tl.load(seed + row, mask=inside, other=0), fold, name) + base
    tl.store(out + i, z.to(tl.int64), mask=inside)


def _no_numbers(start: Tensor, shape: Sequence[int], dtype: torch.dtype, part: int) -> Tensor:
    return start.new_empty((*start.shape, *shape), dtype=dtype)


def _no_integers(start: Tensor, shape: Sequence[int], part: int) -> Tensor:
    return start.new_empty((*start.shape, *shape))


def _no_starts(seed: Tensor, key: int, field: int, first: int, count: int, fold: int) -> Tensor:
    return seed.new_empty((*seed.shape, count))


@lru_cache(1024)
def _launch_halves(
    starts: int,
    size: int,
    kind: int,
    dtype: torch.dtype,
    rounded: torch.dtype | None,
    how: int,
    softplus: bool,
    seeded: bool,
) -> Launch:
    half = -(-size // 2)
    total, block = starts * half, 2 * _BLOCK if dtype.itemsize == 2 else _BLOCK
    return Launch(
        _halves,
        (-(-total // block),),
        total,
        half,
        size,
        wrap(kind * KINDS),
        ALONE=starts == 1,
        SEEDED=seeded,
        ALIGNED=size % 32 == 0,
        REAL=rounded and real_type(rounded, dtype),
        KIND=rounded and _TRITON[rounded],
        FACTOR=how,
        SOFTPLUS=softplus,
        INDEX=index_type(starts * size),
        BLOCK=block,
    )


@lru_cache(1024)
def _launch_bits(
    starts: int, size: int, kind: int, dtype: torch.dtype, rounded: torch.dtype, how: int, seeded: bool
) -> Launch:
    words = -(-size // 64)
    total = starts * words
    return Launch(
        _bits,
        (-(-total // _WORDS),),
        total,
        words,
        size,
        wrap(kind * KINDS),
        ALONE=starts == 1,
        SEEDED=seeded,
        ALIGNED=size % 64 == 0,
        REAL=real_type(rounded, dtype),
        FACTOR=how,
        INDEX=index_type(starts * size),
        WORDS=_WORDS,
    )


def _fill_normal(out: Tensor, start: Tensor, shape: Sequence[int], dtype: torch.dtype, part: int) -> None:
    made = _launch_halves(start.numel(), math.prod(shape), 3 * part, dtype, dtype, 0, False, False)
    made((out, start, None, None), 0, 0)


def _fill_uniform(out: Tensor, start: Tensor, shape: Sequence[int], part: int) -> None:
    made = _launch_halves(start.numel(), math.prod(shape), 3 * part + 1, out.dtype, None, 0, False, False)
    made((out, start, None, None), 0, 0)


def _fill_sign(out: Tensor, start: Tensor, shape: Sequence[int], dtype: torch.dtype, part: int) -> None:
    made = _launch_bits(start.numel(), math.prod(shape), 3 * part + 2, dtype, dtype, 0, False)
    made((out, start, None), 0, 0)


def scaled_noise(
    start: Tensor,
    factor: Tensor,
    shape: Sequence[int],
    kind: str,
    rounded: torch.dtype,
    dtype: torch.dtype,
    origin: Origin | None = None,
    softplus: bool = False,
    slope: Tensor | None = None,
) -> Tensor:
    """factor ∘ noise of `shape` for each starting point, in `dtype`; the noise alone is that of a stream of `rounded`.
    The factor is one number, or has the shape of the noise or of all of it; or it is the softplus of that. With a
    `slope` of the noise's shape, times the derivative of its softplus: normal noise only. With an `origin`, the start
    is a seed, one alone."""
    out = start.new_empty((*start.shape, *shape), dtype=dtype)
    if not out.numel():
        return out
    start, by = start.contiguous(), factor.contiguous()
    starts, size = start.numel(), math.prod(shape)
    how = 1 if factor.dim() == 0 else 2 if factor.numel() == size else 3
    seeded, words = origin is not None, (0, 0) if origin is None else origin.words()
    if kind == "normal":
        slope = None if slope is None else slope.contiguous()
        made = _launch_halves(starts, size, 0, dtype, rounded, how, softplus, seeded)
        made((out, start, by, slope), *words)
    else:
        _launch_bits(starts, size, 2, dtype, rounded, how, seeded)((out, start, by), *words)
    return out


_TRITON = {
    torch.float64: tl.float64,
    torch.float32: tl.float32,
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
}


def _fill_starts(out: Tensor, seed: Tensor, key: int, field: int, first: int, count: int, fold: int) -> None:
    total, (before, name) = out.numel(), Origin(key, field, 0, fold).words()
    launch(
        _starts,
        (-(-total // _BLOCK),),
        out,
        seed,
        total,
        count,
        first,
        before,
        name,
        INDEX=index_type(out.numel()),
        BLOCK=_BLOCK,
    )


register("scaled_noise", scaled_noise, fits)
register("Stream.normal", op("normal", _no_numbers, _fill_normal), fits)
register("Stream.uniform", op("uniform", _no_integers, _fill_uniform), fits)
register("Stream.sign", op("sign", _no_numbers, _fill_sign), fits)
register("stream_starts", op("stream_starts", _no_starts, _fill_starts), fits)
