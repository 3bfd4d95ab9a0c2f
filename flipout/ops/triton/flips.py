"""Signs that are never written: made in registers where something is flipped or added."""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import register
from ...perturbation import Signs
from ...random import BLOCK, ROUNDS, key_words
from .base import fits, index_type
from .random import philox

_BLOCKS = 16  # Philox outputs in one program
_ROUNDS, _BLOCK = tl.constexpr(ROUNDS), tl.constexpr(BLOCK)


@triton.jit(do_not_specialize=["total", "first", "high", "low", "share", "skip"])
def _flipped(
    out,
    x,
    y,
    mean,
    keys,
    total,
    first: tl.int64,
    high: tl.int64,
    low: tl.int64,
    share,
    skip,
    FEATURES: tl.constexpr,
    POSITIONS: tl.constexpr,
    TIMES: tl.constexpr,
    NEGATE: tl.constexpr,
    REAL: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """±x, or y ± x, or y + mean ± x, for 128 features of one example from each of the `total` counters.

    `share` examples have one x, the first one `skip` less; POSITIONS of an example have one sign, and one x where TIMES
    is 0.
    """
    blocks: tl.constexpr = (FEATURES + _BLOCK - 1) // _BLOCK
    i = tl.program_id(0).to(INDEX) * BLOCKS + tl.arange(0, BLOCKS)
    inside = (i < total)[:, None]
    example, block = i // blocks, i % blocks
    key0, key1 = tl.load(keys).to(tl.uint32), tl.load(keys + 1).to(tl.uint32)
    zero = tl.full((BLOCKS,), 0, tl.uint32)
    c1 = (first.to(tl.int64) + example).to(tl.uint32)
    words = philox(
        block.to(tl.uint32), c1, zero + high.to(tl.uint32), zero + low.to(tl.uint32), zero + key0, zero + key1
    )
    line = (example * (POSITIONS * FEATURES))[:, None]
    source = ((example + skip) // share * ((POSITIONS if TIMES else 1) * FEATURES))[:, None]
    bit = tl.arange(0, 32)[None, :]
    for word in tl.static_range(4):
        feature = (block * _BLOCK + word * 32)[:, None] + bit
        there = inside & (feature < FEATURES)
        negative = ((words[word][:, None] >> bit.to(tl.uint32)) & 1) != NEGATE
        for position in range(0, POSITIONS):
            place = position * FEATURES + feature
            made = tl.load(x + source + (place if TIMES else feature), mask=there, other=0).to(REAL)
            made = tl.where(negative, -made, made)
            if mean is not None:
                made += tl.load(mean + feature, mask=there, other=0).to(REAL)
            if y is not None:
                made += tl.load(y + line + place, mask=there, other=0).to(REAL)
            tl.store(out + line + place, made, mask=there)


def flip_drawn(x: Tensor, signs: Signs, keys: Tensor, dim: int) -> Tensor:
    """x times its examples' signs of the Parameter's dimension `dim`, over the last dimension."""
    return _run(torch.empty_like(x), x, None, None, signs, keys, dim, 1, 0, True)


def add_flipped(y: Tensor, x: Tensor, signs: Signs, keys: Tensor, dim: int) -> Tensor:
    """y + flip(x), in the memory of y."""
    return _run(y, x, y, None, signs, keys, dim, 1, 0, True)


def add_vectors(y: Tensor, mean: Tensor, deltas: Tensor, signs: Signs, keys: Tensor, share: int, skip: int) -> Tensor:
    """y + mean + flip(δ), in the memory of y: `share` examples have one δ, the first ones `skip` less."""
    return _run(y, deltas.contiguous(), y, mean.contiguous(), signs, keys, 0, share, skip, False)


def _run(
    out: Tensor,
    x: Tensor,
    y: Tensor | None,
    mean: Tensor | None,
    signs: Signs,
    keys: Tensor,
    dim: int,
    share: int,
    skip: int,
    times: bool,
) -> Tensor:
    features, (high, low) = out.shape[-1], key_words(signs.key, dim)
    total = signs.count * -(-features // BLOCK)
    with torch.cuda.device_of(out):
        _flipped[(-(-total // _BLOCKS),)](
            out,
            x,
            y,
            mean,
            keys,
            total,
            signs.first,
            high,
            low,
            share,
            skip,
            FEATURES=features,
            POSITIONS=out.numel() // (signs.count * features),
            TIMES=times,
            NEGATE=int(signs.antithetic and dim == 0),
            REAL=tl.float64 if out.dtype == torch.float64 else tl.float32,
            INDEX=index_type(out),
            BLOCKS=_BLOCKS,
        )
    return out


def _fits(x: Tensor, signs: Signs, in_dim: int) -> bool:
    """Rows of features; the kernels are compiled for as many rows as an example has."""
    rows = x.dim() == 2 and in_dim == -1 and x.is_contiguous() and x.numel() > 0
    return rows and fits(x, x.dtype) and signs.part is None


for kernel in (flip_drawn, add_flipped, add_vectors):
    register(kernel.__name__, kernel, _fits)
