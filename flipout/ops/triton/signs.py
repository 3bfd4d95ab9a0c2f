"""Signs from SplitMix64: the words in registers, and kernels that write them, or their bits as ±1 or as masks."""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import register_kernel
from ...draws.bits import stream_name
from ...draws.signs import PLACES, SIGNS, mask_type
from .base import fits, index_type, op
from .launching import launch
from .noise import STEP, splitmix

BLOCK = 2 * SIGNS  # signs that are made together, from two words
HALF = SIGNS // 2  # signs in half a word
_BLOCKS = 16  # such blocks in one program
_WORDS = 256  # words in one program
_BLOCK, _PLACES = tl.constexpr(BLOCK), tl.constexpr(PLACES)


@triton.jit
def sign_words(seed, name, example, block):
    """Return the 128 signs of a block of features of each example, as four 32-bit words. A bit of 1 means −1."""
    start = splitmix(seed.to(tl.uint64)) + name.to(tl.uint64)
    z = start + ((example.to(tl.uint64) << _PLACES) + 2 * block.to(tl.uint64)) * STEP
    first, second = splitmix(z), splitmix(z + STEP)
    return first.to(tl.uint32), (first >> 32).to(tl.uint32), second.to(tl.uint32), (second >> 32).to(tl.uint32)


@triton.jit
def half_words(seed, name, example, half):
    """Return the 32 signs of each half word of an example, numbered from its first feature on. A bit of 1 means −1."""
    start = splitmix(seed.to(tl.uint64)) + name.to(tl.uint64)
    z = splitmix(start + ((example.to(tl.uint64) << _PLACES) + (half // 2).to(tl.uint64)) * STEP)
    return tl.where(half % 2 != 0, z >> 32, z).to(tl.uint32)


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


register_kernel("signs", op("signs", _empty, _fill), fits)


@triton.jit(do_not_specialize=["total", "width", "split", "first", "name", "other_name"])
def _words(
    out_ptr,
    seed_ptr,
    total: tl.int64,
    width: tl.int64,
    split: tl.int64,
    first: tl.int64,
    name: tl.int64,
    other_name: tl.int64,
    WORDS: tl.constexpr,
):
    """out[n] = the words of example `first` + n: `split` words of the stream `name`, then those of `other_name`.

    out is (total / width, width). One program writes WORDS of them.
    """
    i = tl.program_id(0).to(tl.int64) * WORDS + tl.arange(0, WORDS)
    example, word = first.to(tl.int64) + i // width.to(tl.int64), i % width.to(tl.int64)
    is_other, place = word >= split, word - tl.where(word >= split, split, 0)
    start = splitmix(tl.load(seed_ptr).to(tl.uint64)) + tl.where(is_other, other_name, name).to(tl.uint64)
    z = splitmix(start + ((example.to(tl.uint64) << _PLACES) + place.to(tl.uint64)) * STEP)
    tl.store(out_ptr + i, z.to(tl.int64), mask=i < total)


def packed_signs(seed: Tensor, key: int, over: Sequence[tuple[int, int]], first: int, count: int) -> Tensor:
    """Return the words of the signs over one or two dimensions, (count, words), in one launch."""
    widths, names = [-(-size // SIGNS) for _, size in over], [stream_name(key, dim) for dim, _ in over]
    out = seed.new_empty(count, sum(widths))
    if out.numel():
        numbers = (out.numel(), sum(widths), widths[0], first, names[0], names[-1])
        launch(_words, (-(-out.numel() // _WORDS),), out, seed, *numbers, WORDS=_WORDS)
    return out


register_kernel("packed_signs", packed_signs, lambda seed, dims: fits(seed) and not seed.dim() and 1 <= dims <= 2)
