"""Signs from SplitMix64: the words in registers, and a kernel that writes their bits as ±1 or as masks."""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import register
from ...draws.signs import PLACES, SIGNS, mask_type
from .base import fits, index_type, op
from .launching import launch
from .noise import STEP, splitmix

BLOCK = 2 * SIGNS  # signs that are made together, from two words
_BLOCKS = 16  # such blocks in one program
_BLOCK, _PLACES = tl.constexpr(BLOCK), tl.constexpr(PLACES)


@triton.jit
def sign_words(seed, name, example, block):
    """Return the 128 signs of a block of features of each example, as four 32-bit words. A bit of 1 means −1."""
    start = splitmix(seed.to(tl.uint64)) + name.to(tl.uint64)
    z = start + ((example.to(tl.uint64) << _PLACES) + 2 * block.to(tl.uint64)) * STEP
    first, second = splitmix(z), splitmix(z + STEP)
    return first.to(tl.uint32), (first >> 32).to(tl.uint32), second.to(tl.uint32), (second >> 32).to(tl.uint32)


@triton.jit
def _sign_words_once(seed, name, example, block):
    """Return `sign_words`, computed once.

    The compiler would rather compute the words again for every layout that asks for their bits. It never repeats a
    loop like this one, since the loop might not end.
    """
    zero = example.to(tl.uint32)
    word0, word1, word2, word3, i = zero, zero, zero, zero, 0
    while i < 1:
        word0, word1, word2, word3 = sign_words(seed, name, example, block)
        i += 1
    return word0, word1, word2, word3


@triton.jit
def is_negative(example, begin, name, seed_ptr, COLUMNS: tl.constexpr, ONCE: tl.constexpr = False):
    """Return which signs of these examples are −1, for COLUMNS features from `begin` on, a multiple of 128.

    ONCE computes the words only once, for kernels that use the signs in two layouts.
    """
    seed, column = tl.load(seed_ptr), tl.arange(0, COLUMNS)
    word = tl.full((example.shape[0], COLUMNS), 0, tl.uint32)
    for i in tl.static_range(COLUMNS // _BLOCK):
        block = begin // _BLOCK + i
        words = _sign_words_once(seed, name, example, block) if ONCE else sign_words(seed, name, example, block)
        for part in tl.static_range(4):
            word = tl.where((column // 32 == 4 * i + part)[None, :], words[part][:, None], word)
    return ((word >> (column % 32).to(tl.uint32)[None, :]) & 1) != 0


@triton.jit(
    do_not_specialize=["total", "blocks", "features", "first", "count", "name"],
    do_not_specialize_on_alignment=["seed_ptr"],
)
def _signs(
    out_ptr,
    seed_ptr,
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
    """out[i, n, j] = sign j of example `first` + n under seed i, as ±1 or, with MASKS, as a sign bit.

    out is (seeds, count, features). A row has `blocks` blocks of 128 signs, and all rows together have `total`. One
    program writes BLOCKS of them.
    """
    i = tl.program_id(0).to(INDEX) * BLOCKS + tl.arange(0, BLOCKS)
    is_inside = i < total
    row, block = i // blocks.to(INDEX), i % blocks.to(INDEX)
    which, example = row // count.to(INDEX), row % count.to(INDEX)
    seed = tl.load(seed_ptr + which, mask=is_inside, other=0)
    words = sign_words(seed, name, first.to(tl.int64) + example, block)
    kind: tl.constexpr = out_ptr.dtype.element_ty
    bit = tl.arange(0, 32)[None, :]
    row_ptr = (out_ptr + row * features.to(INDEX))[:, None]
    for word in tl.static_range(4):
        feature = (block * _BLOCK + word * 32)[:, None] + bit
        drawn = (words[word][:, None] >> bit.to(tl.uint32)) & 1
        sign = drawn.to(kind) << (kind.primitive_bitwidth - 1) if MASKS else 1 - 2 * drawn.to(tl.float32)
        tl.store(row_ptr + feature, sign, mask=is_inside[:, None] & (feature < features))


def _empty(seed: Tensor, name: int, features: int, first: int, count: int, dtype: torch.dtype, masks: bool) -> Tensor:
    return seed.new_empty((*seed.shape, count, features), dtype=mask_type(dtype) if masks else dtype)


def _fill(
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


register("signs", op("signs", _empty, _fill), fits)
