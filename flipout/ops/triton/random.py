"""Signs in one launch: Philox4x32-10 in registers, its bits written as ±1 or as masks."""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import register
from ...philox import BLOCK, MULTIPLIER, ROUNDS, WEYL
from ...random import key_words, mask_type
from .base import fits, index_type, op
from .launch import launch

_BLOCKS = 16  # Philox outputs in one program
_ROUNDS, _BLOCK = tl.constexpr(ROUNDS), tl.constexpr(BLOCK)
_MULTIPLIER0, _MULTIPLIER1 = (tl.constexpr(number) for number in MULTIPLIER)
_WEYL0, _WEYL1 = (tl.constexpr(number) for number in WEYL)


@triton.jit
def halved(seed):
    """Its two words, the keys of the first round; the others follow from them."""
    word = seed.to(tl.uint64)
    return word.to(tl.uint32), (word >> 32).to(tl.uint32)


@triton.jit
def philox(c0, c1, c2, c3, key0, key1):
    for _ in tl.static_range(_ROUNDS):
        high0, high1 = tl.umulhi(c0, _MULTIPLIER0), tl.umulhi(c2, _MULTIPLIER1)
        low0, low1 = c0 * _MULTIPLIER0, c2 * _MULTIPLIER1
        c0, c1, c2, c3 = high1 ^ c1 ^ key0, low1, high0 ^ c3 ^ key1, low0
        key0 += _WEYL0
        key1 += _WEYL1
    return c0, c1, c2, c3


@triton.jit
def philox_once(c0, c1, c2, c3, key0, key1):
    """The same, made once: the compiler would rather make words again for every layout that asks for their bits, but
    never repeats such a loop, since it might not end."""
    word0, word1, word2, word3, i = c0, c1, c2, c3, 0
    while i < 1:
        word0, word1, word2, word3 = philox(c0, c1, c2, c3, key0, key1)
        i += 1
    return word0, word1, word2, word3


@triton.jit(
    do_not_specialize=["total", "blocks", "features", "first", "count", "high", "low"],
    do_not_specialize_on_alignment=["seed"],
)
def _signs(
    out,
    seed,
    total: tl.int64,
    blocks: tl.int64,
    features: tl.int64,
    first: tl.int64,
    count: tl.int64,
    high: tl.int64,
    low: tl.int64,
    MASKS: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """128 signs from each of the `total` counters: `blocks` for each of the `count` examples of each seed."""
    i = tl.program_id(0).to(INDEX) * BLOCKS + tl.arange(0, BLOCKS)
    inside = i < total
    row, block = i // blocks.to(INDEX), i % blocks.to(INDEX)
    which, example = row // count.to(INDEX), row % count.to(INDEX)
    key0, key1 = halved(tl.load(seed + which, mask=inside, other=0))
    zero = tl.full((BLOCKS,), 0, tl.uint32)
    c1 = (first.to(tl.int64) + example).to(tl.uint32)
    c2, c3 = zero + high.to(tl.uint32), zero + low.to(tl.uint32)
    words = philox(block.to(tl.uint32), c1, c2, c3, key0, key1)
    kind: tl.constexpr = out.dtype.element_ty
    bit = tl.arange(0, 32)[None, :]
    line = (out + row * features.to(INDEX))[:, None]
    for word in tl.static_range(4):
        feature = (block * _BLOCK + word * 32)[:, None] + bit
        drawn = (words[word][:, None] >> bit.to(tl.uint32)) & 1
        sign = drawn.to(kind) << (kind.primitive_bitwidth - 1) if MASKS else 1 - 2 * drawn.to(tl.float32)
        tl.store(line + feature, sign, mask=inside[:, None] & (feature < features))


def _no_signs(
    seed: Tensor, key: int, dim: int, features: int, first: int, count: int, dtype: torch.dtype, masks: bool
) -> Tensor:
    return seed.new_empty((*seed.shape, count, features), dtype=mask_type(dtype) if masks else dtype)


def _fill_signs(
    out: Tensor,
    seed: Tensor,
    key: int,
    dim: int,
    features: int,
    first: int,
    count: int,
    dtype: torch.dtype,
    masks: bool,
) -> None:
    blocks, (high, low) = -(-features // BLOCK), key_words(key, dim)
    total = out.numel() // features * blocks
    launch(
        _signs,
        (-(-total // _BLOCKS),),
        out,
        seed,
        total,
        blocks,
        features,
        first,
        count,
        high,
        low,
        MASKS=masks,
        INDEX=index_type(out.numel()),
        BLOCKS=_BLOCKS,
    )


register("signs", op("signs", _no_signs, _fill_signs), fits)
