"""Signs: a pure function of seed, Parameter, dimension, example and feature. A word holds 64 of them.

The code is int64 tensor arithmetic on the device of the seed, so it can be compiled, vmapped and captured.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache

import numpy as np
import torch
from torch import Tensor

from ..backend import chosen
from .bits import GAMMA, add_stream_name, constant, mix, mix_array, mix_number, steps, stream_name, uses_numpy
from .opaque import drawn_signs, is_only_compiling, packed_signs

SIGNS = 64  # signs in a word
_KEPT = 2**19  # places are cached for at most this many signs
TRAILING = 2  # field of the signs over all dimensions but the first of a kernel, its positions included
PLACES = 24  # low bits of a place, which number the words of an example; the bits above number the example


def sign_batches(
    seed: Tensor,
    key: int,
    over: Sequence[tuple[int, int]],
    first: int,
    count: int,
    dtype: torch.dtype,
    masks: bool = False,
    batch_rows: int | None = None,
) -> Iterator[list[Tensor]]:
    """Yield the signs of Parameter `key`, `batch_rows` examples at a time.

    Eagerly, all words are computed at once, but they are unpacked only as the signs are asked for.

    Args:
        seed: The seed of the signs.
        key: The key of the Parameter.
        over: Pairs (dimension, features) of the Parameter.
        first: The number of the first example.
        count: How many examples there are.
        dtype: The dtype of the signs, or of the numbers that the masks flip.
        masks: Whether to yield sign masks instead of ±1.
        batch_rows: Examples at a time; None for all.

    Yields:
        For each pair of `over`, a tensor of shape (batch_rows, features).
    """
    batch_rows = max(count if batch_rows is None else batch_rows, 1)
    starts = range(0, max(count, 1), batch_rows)
    if is_only_compiling() and not masks and batch_rows >= count and seed.dim() == 0:
        yield drawn_signs(seed, key, [dim for dim, _ in over], [size for _, size in over], first, count, dtype)
        return
    kernel = chosen("signs", seed, dtype)
    if kernel is not None:
        for i in starts:
            length = min(batch_rows, count - i)
            yield [kernel(seed, stream_name(key, dim), size, first + i, length, dtype, masks) for dim, size in over]
        return
    unpacked = sign_masks if masks else unpack
    words = sign_words(seed, key, over, first, count)
    for i in starts:
        yield [unpacked(packed[i : i + batch_rows], size, dtype) for packed, (_, size) in zip(words, over, strict=True)]


def matrix_dims(shape: Sequence[int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return (dimension, features) of the two sign vectors of a Parameter that is seen as a matrix (d0, all others).

    A matrix has the signs of its two dimensions. A kernel has positions too, which signs over channels alone do not
    tell apart: its channels and positions together have a field of their own.
    """
    return (0, shape[0]), (1 if len(shape) == 2 else TRAILING, math.prod(shape[1:]))


def sign_start(seed: int, first: int) -> np.uint64:
    """Return the number to add to the places of examples 0 onward, to get the words of the examples `first` onward."""
    return np.uint64((mix_number(seed) + (first << PLACES) * GAMMA) % 2**64)


def sign_places(key: int, dim: int, features: int, count: int) -> np.ndarray:
    """Return name + place · γ for the words of examples 0 onward, of shape (count, words)."""
    is_cached = count * features <= _KEPT
    return (_cached_places if is_cached else _places)(key, dim, features, count)


def _places(key: int, dim: int, features: int, count: int) -> np.ndarray:
    example = np.arange(count, dtype=np.uint64)[:, None] << np.uint64(PLACES)
    word = np.arange(-(-features // SIGNS), dtype=np.uint64)
    places = (example | word) * np.uint64(GAMMA % 2**64) + np.uint64(stream_name(key, dim) % 2**64)
    places.setflags(write=False)
    return places


_cached_places = lru_cache(64)(_places)  # at most 4 MiB


def sign_words(seed: Tensor, key: int, over: Sequence[tuple[int, int]], first: int, count: int) -> Sequence[Tensor]:
    """Return the packed signs of the examples `first` onward: (count, words) for each (dimension, features)."""
    if uses_numpy(seed):
        start = sign_start(int(seed), first)
        words = (mix_array(sign_places(key, dim, size, count) + start) for dim, size in over)
        return [torch.from_numpy(packed.view(np.int64)) for packed in words]
    example = (torch.arange(first, first + count, device=seed.device) << PLACES).mul_(GAMMA).unsqueeze(1)
    start = mix(seed.clone())
    return [
        mix(add_stream_name(start, key, dim) + example + steps(-(-size // SIGNS), seed.device)) for dim, size in over
    ]


def packed_words(seed: Tensor, key: int, over: Sequence[tuple[int, int]], first: int, count: int) -> Tensor:
    """Return the words over all dimensions side by side, as 32-bit integers: (count, 2 · words)."""
    kernel = chosen("packed_signs", seed, len(over), required=False)
    if kernel is None:
        packed = torch.cat(list(sign_words(seed, key, over, first, count)), 1)
    else:
        packed = kernel(seed, key, over, first, count)
    return packed.view(torch.int32)


def fused_signs(
    seed: Tensor, key: int, over: Sequence[tuple[int, int]], first: int, count: int, dtype: torch.dtype
) -> list[Tensor]:
    """Return `signs` in a compiled graph as bits and the arithmetic that unpacks them.

    The compiler does this arithmetic where it reads a sign, inside the kernel that needs it. So a sign is read as one
    bit and never written. That pays where each sign is used once or twice.
    """
    words = packed_signs(seed, key, [dim for dim, _ in over], [size for _, size in over], first, count)
    widths = [-(-size // SIGNS) * (SIGNS // 32) for _, size in over]
    bit = torch.arange(32, dtype=torch.int32, device=seed.device)
    return [
        (1 - 2 * ((part.unsqueeze(-1) >> bit) & 1).flatten(-2).narrow(-1, 0, size)).to(dtype)
        for part, (_, size) in zip(words.split(widths, 1), over, strict=True)
    ]


def unpack(words: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """Return the first `count` bits of the words in the last dimension as signs: 0 → +1 and 1 → −1."""
    return _look_up(words, count, dtype, is_mask=False)


def sign_masks(words: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """Return the signs as sign bits of integers as wide as `dtype`. Xor flips a number with such a mask."""
    return _look_up(words, count, mask_type(dtype), is_mask=True)


def _look_up(words: Tensor, count: int, dtype: torch.dtype, *, is_mask: bool) -> Tensor:
    """Return (…, count) signs or masks: every byte of the words is looked up in a table of eight signs per byte."""
    used = -(-count // 8)
    if uses_numpy(words):
        codes = words.contiguous().numpy().view(np.uint8)[..., :used]
        return taken(codes, dtype, is_mask=is_mask)[..., :count]
    shift = torch.arange(0, SIGNS, 8, device=words.device)
    codes = ((words.unsqueeze(-1) >> shift) & 0xFF).flatten(-2)[..., :used]
    table = constant(_table, dtype, is_mask, words.device)
    return table.index_select(0, codes.flatten()).view(*codes.shape[:-1], 8 * used)[..., :count]


def taken(codes: np.ndarray, dtype: torch.dtype, *, is_mask: bool = False) -> Tensor:
    """Return the signs, or their masks, of the bytes in the last dimension, of shape (…, 8 · bytes)."""
    signs = torch.from_numpy(taken_rows(codes, dtype, is_mask))
    return signs.view(dtype) if dtype.itemsize == 2 else signs  # numpy has no bfloat16


def taken_rows(
    codes: np.ndarray, dtype: torch.dtype, is_mask: bool = False, out: np.ndarray | None = None
) -> np.ndarray:
    """Return `taken` as a numpy array, in the memory of `out` if it is given."""
    if out is not None:
        out = out.reshape(*codes.shape, 8)
    # Every byte is in the table, so "wrap" only skips the bounds check.
    found = _array(dtype, is_mask).take(codes, 0, out, "wrap")
    return found.reshape(*codes.shape[:-1], 8 * codes.shape[-1])


def signs_type(dtype: torch.dtype) -> np.dtype:
    """Return the dtype of the arrays that `taken_rows` returns for signs."""
    return _array(dtype, False).dtype


@cache
def _array(dtype: torch.dtype, is_mask: bool) -> np.ndarray:
    """Return `_table` as a numpy array. A tensor made inside a torch transform could not be cached."""
    bits = (np.arange(256)[:, None] >> np.arange(8)) & 1
    if is_mask:
        return (bits * torch.iinfo(dtype).min).astype(f"int{8 * dtype.itemsize}")
    signs = (1 - 2 * bits).astype(np.float64 if dtype == torch.float64 else np.float32)
    if dtype == torch.bfloat16:
        return (signs.view(np.uint32) >> 16).astype(np.uint16).view(np.int16)
    return signs.astype(np.float16).view(np.int16) if dtype == torch.float16 else signs


def _table(dtype: torch.dtype, is_mask: bool, device: torch.device) -> Tensor:
    """Return (256, 8): the eight bits of each byte as signs, 0 → +1 and 1 → −1, or as sign bits."""
    bits = (torch.arange(256, device=device).unsqueeze(1) >> torch.arange(8, device=device)) & 1
    return (bits * torch.iinfo(dtype).min if is_mask else 1 - 2 * bits).to(dtype)


def mask_type(dtype: torch.dtype) -> torch.dtype:
    """Return the integer dtype that is as wide as `dtype`."""
    return {2: torch.int16, 8: torch.int64}.get(dtype.itemsize, torch.int32)


def sign_at(seed: Tensor, key: int, dim: int, example: Tensor, feature: Tensor, dtype: torch.dtype) -> Tensor:
    """Return single signs, one for each (example, feature) pair after broadcasting."""
    place = (example << PLACES) + feature // SIGNS
    word = mix(place.mul_(GAMMA) + add_stream_name(mix(seed.clone()), key, dim))
    return (1 - 2 * ((word >> feature % SIGNS) & 1)).to(dtype)
