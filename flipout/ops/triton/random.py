"""Signs in one launch: Philox4x32-10 in registers, its bits written as ±1 or as masks."""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import register
from ...random import BLOCK, MULTIPLIER, ROUNDS, WEYL, key_words, mask_type
from .base import fits, index_type, op
from .launch import launch

_BLOCKS = 16  # Philox outputs in one program
_ROUNDS, _BLOCK = tl.constexpr(ROUNDS), tl.constexpr(BLOCK)
_MULTIPLIER0, _MULTIPLIER1 = (tl.constexpr(number) for number in MULTIPLIER)
_WEYL0, _WEYL1 = (tl.constexpr(number) for number in WEYL)


@triton.jit
def philox(c0, c1, c2, c3, key0, key1):
    for _ in tl.static_range(_ROUNDS):
        high0, high1 = tl.umulhi(c0, _MULTIPLIER0), tl.umulhi(c2, _MULTIPLIER1)
        low0, low1 = c0 * _MULTIPLIER0, c2 * _MULTIPLIER1
        c0, c1, c2, c3 = high1 ^ c1 ^ key0, low1, high0 ^ c3 ^ key1, low0
        key0 += _WEYL0
        key1 += _WEYL1
    return c0, c1, c2, c3


@triton.jit(
    do_not_specialize=["total", "blocks", "features", "first", "count", "high", "low"],
    do_not_specialize_on_alignment=["keys"],
)
def _signs(
    out,
    keys,
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
    """128 signs from each of the `total` counters: `blocks` for each of the `count` examples of each schedule."""
    i = tl.program_id(0).to(INDEX) * BLOCKS + tl.arange(0, BLOCKS)
    inside = i < total
    row, block = i // blocks.to(INDEX), i % blocks.to(INDEX)
    schedule, example = row // count.to(INDEX), row % count.to(INDEX)
    key = keys + schedule * (2 * _ROUNDS)  # the first round's; the others follow from it
    key0 = tl.load(key, mask=inside, other=0).to(tl.uint32)
    key1 = tl.load(key + 1, mask=inside, other=0).to(tl.uint32)
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


@triton.jit(do_not_specialize_on_alignment=["seed"])
def _schedule(out, seed):
    round = tl.arange(0, 16)
    number = tl.load(seed + tl.program_id(0)).to(tl.uint64)
    line = out + (tl.program_id(0) * _ROUNDS + round) * 2
    for word in tl.static_range(2):
        key = (number >> (32 * word)).to(tl.uint32) + round.to(tl.uint32) * (_WEYL1 if word else _WEYL0)
        tl.store(line + word, key.to(tl.int64), mask=round < _ROUNDS)


def _no_keys(seed: Tensor) -> Tensor:
    return seed.new_empty((*seed.shape, ROUNDS, 2))


def _fill_keys(out: Tensor, seed: Tensor) -> None:
    launch(_schedule, (seed.numel(),), out, seed)


def _no_signs(
    keys: Tensor, key: int, dim: int, features: int, first: int, count: int, dtype: torch.dtype, masks: bool
) -> Tensor:
    return keys.new_empty((*keys.shape[:-2], count, features), dtype=mask_type(dtype) if masks else dtype)


def _fill_signs(
    out: Tensor,
    keys: Tensor,
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
        keys,
        total,
        blocks,
        features,
        first,
        count,
        high,
        low,
        MASKS=masks,
        INDEX=index_type(out),
        BLOCKS=_BLOCKS,
    )


register("key_schedule", op("key_schedule", _no_keys, _fill_keys), fits)
register("signs", op("signs", _no_signs, _fill_signs), fits)
