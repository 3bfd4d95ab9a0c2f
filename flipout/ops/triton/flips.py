"""Flip tensors with signs that are made in registers and never written."""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..._perturbation import Signs
from ...backend import register_kernel
from ...draws.bits import stream_name
from ..base import flip
from .base import fits, has_adjacent_features, index_type, real_type
from .launching import Launch
from .row_sums import flip_and_sum
from .signs import BLOCK, sign_words

_LANES = 1024  # numbers of a program
_BLOCK = tl.constexpr(BLOCK)


@triton.jit(do_not_specialize=["total", "positions", "first", "name", "share", "skip"])
def _flipped(
    out_ptr,
    x_ptr,
    y_ptr,
    mean_ptr,
    seed_ptr,
    first: tl.int64,
    name: tl.int64,
    total,
    positions,
    share,
    skip,
    FEATURES: tl.constexpr,
    SHARED: tl.constexpr,
    NEGATE: tl.constexpr,
    REAL: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCKS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """out = ± x, or y ± x, or y + mean ± x, with the signs of each row's example.

    out and y are (rows, FEATURES), mean is (FEATURES,). `positions` rows belong to one example. x is (rows, FEATURES),
    or, if SHARED, has one row for every `share` examples, with `skip` examples missing from the first group. A row has
    several blocks of 128 features, and all rows together have `total`. One program does BLOCKS of them, WIDTH features
    of each: 128, or fewer if a row has fewer.
    """
    row_blocks: tl.constexpr = (FEATURES + _BLOCK - 1) // _BLOCK
    i = tl.program_id(0).to(INDEX) * BLOCKS + tl.arange(0, BLOCKS)
    is_inside = (i < total)[:, None]
    row, block = i // row_blocks, i % row_blocks
    example = row // positions
    words = sign_words(tl.load(seed_ptr), name, first.to(tl.int64) + example, block)
    # All 128 features at a time: in four parts of 32, with y in the place of the output, the compiler's order of loads
    # and stores took 0.12 ms for 8192 × 4096 in bfloat16 on an H200, where this takes the 0.053 of torch.add.
    place = tl.arange(0, WIDTH)[None, :]
    last: tl.constexpr = (WIDTH + 31) // 32 - 1
    word = words[last][:, None]
    for part in tl.static_range(last):
        word = tl.where(place // 32 == part, words[part][:, None], word)
    is_flipped = ((word >> (place % 32).to(tl.uint32)) & 1) != NEGATE
    feature = block[:, None] * _BLOCK + place
    line = (row * FEATURES)[:, None]
    source = ((example + skip) // share * FEATURES)[:, None] if SHARED else line
    is_there = is_inside & (feature < FEATURES)
    value = tl.load(x_ptr + source + feature, mask=is_there, other=0).to(REAL)
    value = tl.where(is_flipped, -value, value)
    if mean_ptr is not None:
        value += tl.load(mean_ptr + feature, mask=is_there, other=0).to(REAL)
    if y_ptr is not None:
        value += tl.load(y_ptr + line + feature, mask=is_there, other=0).to(REAL)
    tl.store(out_ptr + line + feature, value, mask=is_there)


def flip_drawn(x: Tensor, signs: Signs, seed: Tensor, over: int, dim: int) -> Tensor:
    """Return x times its examples' signs of the Parameter's dimension `over`, along dimension `dim` of x."""
    return _run(torch.empty_like(x), x, None, None, signs, seed, over, dim)


def add_flipped(y: Tensor, x: Tensor, signs: Signs, seed: Tensor, over: int, dim: int) -> Tensor:
    """Return y + flip(x), in the memory of y if its features are adjacent there."""
    if not has_adjacent_features(y, dim):
        (factors,) = signs.over([(over, x.shape[dim])], seed, x.dtype)
        return y + flip(x, factors, dim)
    return _run(y, x if x.stride() == y.stride() else torch.empty_like(y).copy_(x), y, None, signs, seed, over, dim)


def add_flipped_vectors(
    y: Tensor, mean: Tensor, deltas: Tensor, signs: Signs, seed: Tensor, dim: int, share: int, skip: int
) -> Tensor:
    """Return y + mean + flip(δ) along dimension `dim`, in the memory of y.

    `share` examples have one δ; the first δ has `skip` examples fewer.
    """
    return _run(y, deltas.contiguous(), y, mean.contiguous(), signs, seed, 0, dim, share, skip)


def _run(
    out: Tensor,
    x: Tensor,
    y: Tensor | None,
    mean: Tensor | None,
    signs: Signs,
    seed: Tensor,
    over: int,
    dim: int,
    share: int | None = None,
    skip: int = 0,
) -> Tensor:
    launch = _launch(out.shape, out.dtype, dim, signs.count, signs.antithetic and over == 0, share, skip)
    launch((out, x, y, mean, seed), signs.first, stream_name(signs.key, over))
    return out


@lru_cache(1024)
def _launch(
    shape: torch.Size, dtype: torch.dtype, dim: int, count: int, negate: bool, share: int | None, skip: int
) -> Launch:
    features = shape[dim]
    rows = shape.numel() // features
    total = rows * -(-features // BLOCK)
    width = min(int(triton.next_power_of_2(features)), BLOCK)
    blocks = _LANES // width
    return Launch(
        _flipped,
        (-(-total // blocks),),
        total,
        rows // count,
        share or 1,
        skip,
        FEATURES=features,
        SHARED=share is not None,
        NEGATE=int(negate),
        REAL=real_type(dtype),
        INDEX=index_type(shape.numel()),
        BLOCKS=blocks,
        WIDTH=width,
    )


def _fits(x: Tensor, signs: Signs, dim: int) -> bool:
    """Admit tensors with adjacent features, since the kernel walks memory as rows, under the signs of entire
    Parameters, since it counts features from 0."""
    is_entire = signs.part is None and signs.count > 0 and x.numel() > 0 and x.dim() > 1
    return is_entire and fits(x, x.dtype) and has_adjacent_features(x, dim)


register_kernel("flips", (flip_drawn, add_flipped, flip_and_sum), _fits)
register_kernel("add_flipped_vectors", add_flipped_vectors, _fits)
