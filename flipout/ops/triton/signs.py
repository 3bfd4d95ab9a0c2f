"""Signs in one launch: words of SplitMix64 in registers, their bits written as ±1 or as masks."""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import register
from ...draws.signs import PLACES, SIGNS, mask_type
from .base import fits, index_type, op
from .launch import launch
from .noise import STEP, splitmix

BLOCK = 2 * SIGNS  # signs that are made together, in two words
_BLOCKS = 16  # such blocks in one program
_BLOCK, _PLACES = tl.constexpr(BLOCK), tl.constexpr(PLACES)


@triton.jit
def sign_words(seed, name, example, block):
    """The 128 signs of a block of features of an example, as four words of 32 bits."""
    start = splitmix(seed.to(tl.uint64)) + name.to(tl.uint64)
    z = start + ((example.to(tl.uint64) << _PLACES) + 2 * block.to(tl.uint64)) * STEP
    first, second = splitmix(z), splitmix(z + STEP)
    return first.to(tl.uint32), (first >> 32).to(tl.uint32), second.to(tl.uint32), (second >> 32).to(tl.uint32)


@triton.jit
def sign_words_once(seed, name, example, block):
    """The same, made once: the compiler would rather make words again for every layout that asks for their bits, but
    never repeats such a loop, since it might not end."""
    nothing = example.to(tl.uint32)
    word0, word1, word2, word3, i = nothing, nothing, nothing, nothing, 0
    while i < 1:
        word0, word1, word2, word3 = sign_words(seed, name, example, block)
        i += 1
    return word0, word1, word2, word3


@triton.jit(
    do_not_specialize=["total", "blocks", "features", "first", "count", "name"],
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
    name: tl.int64,
    MASKS: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """128 signs from each of the `total` blocks: `blocks` for each of the `count` examples of each seed."""
    i = tl.program_id(0).to(INDEX) * BLOCKS + tl.arange(0, BLOCKS)
    inside = i < total
    row, block = i // blocks.to(INDEX), i % blocks.to(INDEX)
    which, example = row // count.to(INDEX), row % count.to(INDEX)
    numbers = tl.load(seed + which, mask=inside, other=0)
    words = sign_words(numbers, name, first.to(tl.int64) + example, block)
    kind: tl.constexpr = out.dtype.element_ty
    bit = tl.arange(0, 32)[None, :]
    line = (out + row * features.to(INDEX))[:, None]
    for word in tl.static_range(4):
        feature = (block * _BLOCK + word * 32)[:, None] + bit
        drawn = (words[word][:, None] >> bit.to(tl.uint32)) & 1
        sign = drawn.to(kind) << (kind.primitive_bitwidth - 1) if MASKS else 1 - 2 * drawn.to(tl.float32)
        tl.store(line + feature, sign, mask=inside[:, None] & (feature < features))


def _no_signs(
    seed: Tensor, name: int, features: int, first: int, count: int, dtype: torch.dtype, masks: bool
) -> Tensor:
    return seed.new_empty((*seed.shape, count, features), dtype=mask_type(dtype) if masks else dtype)


def _fill_signs(
    out: Tensor,
    seed: Tensor,
    name: int,
    features: int,
    first: int,
    count: int,
    dtype: torch.dtype,
    masks: bool,
) -> None:
    blocks = -(-features // BLOCK)
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
        name,
        MASKS=masks,
        INDEX=index_type(out.numel()),
        BLOCKS=_BLOCKS,
    )


register("signs", op("signs", _no_signs, _fill_signs), fits)
