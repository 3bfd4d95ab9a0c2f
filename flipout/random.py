"""Seed and counter in, replayable bits out: signs.

Signs are bits of Philox: a pure function of seed, Parameter, dimension, example and
feature, so any one of them can be made alone, on any device, in any order. Everything is int64 tensor arithmetic on the
device of the seed: it compiles, vmaps and can be captured.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .backend import chosen
from .philox import BLOCK, ROUNDS, WEYL, WORD, philox, philox_of_few

_FEW = 2**13


def key_schedule(seed: Tensor) -> Tensor:
    """The (rounds, 2) round keys of a 64-bit seed."""
    return (torch.stack((seed, seed >> 32)) + constant(_weyl, seed.device)).bitwise_and_(WORD)


def _weyl(device: torch.device) -> Tensor:
    rounds = torch.arange(ROUNDS, device=device)
    return torch.stack((rounds * WEYL[0], rounds * WEYL[1]), 1)


def few(count: int, tensor: Tensor) -> bool:
    """Whether numpy is the faster of the two: its calls cost half of torch's, but it has one thread."""
    return count <= _FEW and tensor.device.type == "cpu" and type(tensor) is Tensor and not transformed()


def key_words(key: int, dim: int) -> tuple[int, int]:
    """A Parameter's 61-bit key, and a dimension, fill the two words beside block and example."""
    return ((key >> 32) << 3 | dim) & WORD, key & WORD


def signs(
    seed: Tensor,
    key: int,
    over: Sequence[tuple[int, int]],
    first: int,
    count: int,
    dtype: torch.dtype,
    masks: bool = False,
    some: int | None = None,
) -> Iterator[list[Tensor]]:
    """(some, features) for each (dimension, features) of Parameter `key`, for `some` of the examples after the other:
    ±1 in `dtype`, or sign masks for it. Eager, their words are made at once, but unpacked only as they are asked for.
    """
    some = max(count if some is None else some, 1)
    runs = range(0, max(count, 1), some)
    kernel = chosen("signs", seed, dtype)
    if kernel is not None:
        for i in runs:
            length = min(some, count - i)
            yield [kernel(seed, key, dim, size, first + i, length, dtype, masks) for dim, size in over]
        return
    if few(count * sum(-(-size // BLOCK) for _, size in over), seed):
        made, form = sign_bits(int(seed), key, tuple(over), first, count), bit_masks if masks else bit_signs
    else:
        made, form = sign_words(seed, key, over, first, count), sign_masks if masks else unpack
    for i in runs:
        yield [form(one[i : i + some], size, dtype) for one, (_, size) in zip(made, over, strict=True)]


def sign_bits(seed: int, key: int, over: tuple[tuple[int, int], ...], first: int, count: int) -> list[Tensor]:
    """(count, features) of 0 and 1 for each (dimension, features): `sign_words` of few examples, a bit in a byte."""
    words, made, start = _few_words(seed, key, over, first, count), [], 0
    for _, size in over:
        end = start + -(-size // BLOCK) * BLOCK // 8
        made.append(torch.from_numpy(np.unpackbits(words[:, start:end], 1, size, "little")))
        start = end
    return made


@lru_cache(16)  # the backward pass asks again, which takes 2 MiB at most
def _few_words(seed: int, key: int, over: tuple[tuple[int, int], ...], first: int, count: int) -> np.ndarray:
    """(count, bytes) of packed signs."""
    blocks = _few_blocks(key, over)
    words = philox_of_few(blocks, first, count, seed)
    words.setflags(write=False)
    return words.reshape(count, 4 * blocks.shape[1]).view(np.uint8)


@lru_cache(1024)
def _few_blocks(key: int, over: tuple[tuple[int, int], ...]) -> np.ndarray:
    blocks = tuple((dim, -(-size // BLOCK)) for dim, size in over)
    return _blocks(key, blocks, torch.device("cpu")).numpy().astype(np.uint64)


def sign_words(seed: Tensor, key: int, over: Sequence[tuple[int, int]], first: int, count: int) -> Sequence[Tensor]:
    """(count, words) for each (dimension, features) of Parameter `key`: packed signs of the examples `first` onward,
    32 in a word."""
    blocks = tuple((dim, -(-size // BLOCK)) for dim, size in over)
    example = torch.arange(first, first + count, device=seed.device).unsqueeze(1)
    block, high, low = constant(_blocks, key, blocks, seed.device).unbind(0)
    words = torch.stack(philox((block, example, high, low), key_schedule(seed)), -1).flatten(1)
    return words.split([4 * count for _, count in blocks], 1)


def _blocks(key: int, blocks: tuple[tuple[int, int], ...], device: torch.device) -> Tensor:
    """(3, blocks): the words of the counters beside the example, for `count` blocks of each dimension."""
    parts = []
    for dim, count in blocks:
        block = torch.arange(count, device=device)
        parts.append(torch.stack((block, *(torch.full_like(block, word) for word in key_words(key, dim)))))
    return torch.cat(parts, 1)


def unpack(words: Tensor, count: int, dtype: torch.dtype, bits: int = 32) -> Tensor:
    """The first `count` bits of the words in the last dimension, as signs: 0 → +1 and 1 → −1."""
    shift = torch.arange(0, bits, 8, device=words.device)
    codes = ((words.unsqueeze(-1) >> shift) & 0xFF).flatten(-2)[..., : -(-count // 8)]
    table = constant(_table, dtype, words.device)
    return table.index_select(0, codes.flatten()).view(*codes.shape[:-1], 8 * codes.shape[-1])[..., :count]


def sign_masks(words: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """The same signs as the sign bits of integers as wide as `dtype`: to flip a number, xor its bits with one."""
    wide = torch.int64 if dtype.itemsize == 8 else torch.int32
    bits = 8 * wide.itemsize
    shift = torch.arange(bits - 1, bits - 33, -1, dtype=wide, device=words.device)
    mask = (words.to(wide).unsqueeze(-1) << shift).flatten(-2)[..., :count]
    if dtype.itemsize == 2:
        return (mask >> 16).to(torch.int16).bitwise_and_(-(2**15))
    return mask.bitwise_and_(-(2 ** (bits - 1)))


def bit_signs(bits: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """`unpack` of what is unpacked already."""
    return bits.to(dtype).mul_(-2).add_(1)


def bit_masks(bits: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """`sign_masks` of the same."""
    kind = mask_type(dtype)
    return bits.to(kind).mul_(torch.iinfo(kind).min)


def mask_type(dtype: torch.dtype) -> torch.dtype:
    return {2: torch.int16, 8: torch.int64}.get(dtype.itemsize, torch.int32)


def sign_at(seed: Tensor, key: int, dim: int, example: Tensor, feature: Tensor, dtype: torch.dtype) -> Tensor:
    """Single signs, one for each (example, feature) pair after broadcasting."""
    block = feature // BLOCK
    high, low = (torch.full_like(block, word) for word in key_words(key, dim))
    words = torch.stack(philox((block, example, high, low), key_schedule(seed)))
    lane = (feature // 32 % 4).expand(words.shape[1:]).unsqueeze(0)
    bit = (words.gather(0, lane).squeeze(0) >> (feature % 32)) & 1
    return (1 - 2 * bit).to(dtype)


def transformed() -> bool:
    """Inside torch.compile, torch.func or forward-mode differentiation, which see through plain tensor code and own
    what is made there."""
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch.autograd.forward_ad._current_level >= 0
    )


def recorded() -> bool:
    """Inside of a trace or a capture, which own what is made there."""
    return transformed() or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


_CONSTANTS: dict[tuple, Tensor] = {}


def constant(make: Callable[..., Tensor], *args: Any) -> Tensor:
    """make(*args), made once; but anew inside of a trace or a capture."""
    if recorded():
        return make(*args)
    made = _CONSTANTS.get((make, *args))
    if made is None:
        with torch.inference_mode(False):
            made = make(*args)
        if type(made) is Tensor:
            _CONSTANTS[make, *args] = made
    return made


def _table(dtype: torch.dtype, device: torch.device) -> Tensor:
    """(256, 8): a byte's eight bits as signs, 0 → +1 and 1 → −1."""
    bits = torch.arange(256, device=device).unsqueeze(1) >> torch.arange(8, device=device)
    return (1 - 2 * (bits & 1)).to(dtype)


def wrap(number: int) -> int:
    """The 64-bit two's complement of an integer."""
    return (number + 2**63) % 2**64 - 2**63
