"""Signs that are never written: made in registers where something is flipped or added."""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import register
from ...draws.bits import stream_name
from ...perturbation import Signs
from ..base import flip
from .base import fits, index_type, real_type, side_by_side
from .launch import Launch
from .signs import BLOCK, sign_words
from .sums import flip_and_sum

_BLOCKS = 16  # blocks of signs in one program
_BLOCK = tl.constexpr(BLOCK)


@triton.jit(do_not_specialize=["total", "positions", "first", "name", "share", "skip"])
def _flipped(
    out,
    x,
    y,
    mean,
    seed,
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
):
    """±x, or y ± x, or y + mean ± x, for 128 features of one row from each of the `total` blocks.

    `positions` rows are an example and have its signs. Where x is SHARED, `share` examples have one, the first one
    `skip` less; else each row has its own.
    """
    blocks: tl.constexpr = (FEATURES + _BLOCK - 1) // _BLOCK
    i = tl.program_id(0).to(INDEX) * BLOCKS + tl.arange(0, BLOCKS)
    inside = (i < total)[:, None]
    row, block = i // blocks, i % blocks
    example = row // positions
    words = sign_words(tl.load(seed), name, first.to(tl.int64) + example, block)
    line = (row * FEATURES)[:, None]
    source = ((example + skip) // share * FEATURES)[:, None] if SHARED else line
    bit = tl.arange(0, 32)[None, :]
    sums = ()  # all is loaded before any is stored: `out` may be y, so that the compiler would not
    for word in tl.static_range(4):
        feature = (block * _BLOCK + word * 32)[:, None] + bit
        there = inside & (feature < FEATURES)
        negative = ((words[word][:, None] >> bit.to(tl.uint32)) & 1) != NEGATE
        made = tl.load(x + source + feature, mask=there, other=0).to(REAL)
        made = tl.where(negative, -made, made)
        if mean is not None:
            made += tl.load(mean + feature, mask=there, other=0).to(REAL)
        if y is not None:
            made += tl.load(y + line + feature, mask=there, other=0).to(REAL)
        sums = sums + (made,)  # noqa: RUF005
    for word in tl.static_range(4):
        feature = (block * _BLOCK + word * 32)[:, None] + bit
        tl.store(out + line + feature, sums[word], mask=inside & (feature < FEATURES))


def flip_drawn(x: Tensor, signs: Signs, seed: Tensor, over: int, dim: int) -> Tensor:
    """x times its examples' signs of the Parameter's dimension `over`, along dimension `dim` of x."""
    return _run(torch.empty_like(x), x, None, None, signs, seed, over, dim)


def add_flipped(y: Tensor, x: Tensor, signs: Signs, seed: Tensor, over: int, dim: int) -> Tensor:
    """y + flip(x), in the memory of y where its features lie side by side."""
    if not side_by_side(y, dim):
        (made,) = signs.over([(over, x.shape[dim])], seed, x.dtype)
        return y + flip(x, made, dim)
    return _run(y, x if x.stride() == y.stride() else torch.empty_like(y).copy_(x), y, None, signs, seed, over, dim)


def add_vectors(
    y: Tensor, mean: Tensor, deltas: Tensor, signs: Signs, seed: Tensor, dim: int, share: int, skip: int
) -> Tensor:
    """y + mean + flip(δ) along dimension `dim`, in the memory of y: `share` examples have one δ, the first ones `skip`
    less."""
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
    made = _launch(out.shape, out.dtype, dim, signs.count, signs.antithetic and over == 0, share, skip)
    made((out, x, y, mean, seed), signs.first, stream_name(signs.key, over))
    return out


@lru_cache(1024)
def _launch(
    shape: torch.Size, dtype: torch.dtype, dim: int, count: int, negate: bool, share: int | None, skip: int
) -> Launch:
    features = shape[dim]
    rows = shape.numel() // features
    total = rows * -(-features // BLOCK)
    return Launch(
        _flipped,
        (-(-total // _BLOCKS),),
        total,
        rows // count,
        share or 1,
        skip,
        FEATURES=features,
        SHARED=share is not None,
        NEGATE=int(negate),
        REAL=real_type(dtype),
        INDEX=index_type(shape.numel()),
        BLOCKS=_BLOCKS,
    )


def _fits(x: Tensor, signs: Signs, dim: int) -> bool:
    whole = signs.part is None and signs.count > 0 and x.numel() > 0 and x.dim() > 1
    return whole and fits(x, x.dtype) and side_by_side(x, dim)


register("flips", (flip_drawn, add_flipped, flip_and_sum), _fits)
register("add_vectors", add_vectors, _fits)
