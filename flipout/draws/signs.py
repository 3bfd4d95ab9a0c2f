"""Signs: a pure function of seed, Parameter, dimension, example and feature, 64 of them in a word.

Everything is int64 tensor arithmetic on the device of the seed: it compiles, vmaps and can be captured.
"""

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache

import numpy as np
import torch
from torch import Tensor

from ..backend import chosen
from .bits import GAMMA, constant, mix, mix_array, mix_number, named, on_cpu, steps, stream_name

SIGNS = 64  # in a word
_KEPT = 2**19  # signs whose places are kept, of which 64 have a word
PLACES = 24  # bits for the word of an example; the example's number stands above them


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
            yield [kernel(seed, stream_name(key, dim), size, first + i, length, dtype, masks) for dim, size in over]
        return
    form = sign_masks if masks else unpack
    made = sign_words(seed, key, over, first, count)
    for i in runs:
        yield [form(part[i : i + some], size, dtype) for part, (_, size) in zip(made, over, strict=True)]


def sign_start(seed: int, first: int) -> np.uint64:
    """What the places of the first examples are added to, to be those of the examples `first` onward."""
    return np.uint64((mix_number(seed) + (first << PLACES) * GAMMA) % 2**64)


def sign_places(key: int, dim: int, features: int, count: int) -> np.ndarray:
    """(count, words): name + place · γ of the words of the first examples."""
    keep = count * features <= _KEPT
    return (_kept_places if keep else _places)(key, dim, features, count)


def _places(key: int, dim: int, features: int, count: int) -> np.ndarray:
    example = np.arange(count, dtype=np.uint64)[:, None] << np.uint64(PLACES)
    word = np.arange(-(-features // SIGNS), dtype=np.uint64)
    places = (example | word) * np.uint64(GAMMA % 2**64) + np.uint64(stream_name(key, dim) % 2**64)
    places.setflags(write=False)
    return places


_kept_places = lru_cache(64)(_places)  # 4 MiB at most


def sign_words(seed: Tensor, key: int, over: Sequence[tuple[int, int]], first: int, count: int) -> Sequence[Tensor]:
    """(count, words) for each (dimension, features) of Parameter `key`: packed signs of the examples `first` onward."""
    if on_cpu(seed):
        start = sign_start(int(seed), first)
        words = (mix_array(sign_places(key, dim, size, count) + start) for dim, size in over)
        return [torch.from_numpy(made.view(np.int64)) for made in words]
    example = (torch.arange(first, first + count, device=seed.device) << PLACES).mul_(GAMMA).unsqueeze(1)
    start = mix(seed.clone())
    return [mix(named(start, key, dim) + example + steps(-(-size // SIGNS), seed.device)) for dim, size in over]


def unpack(words: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """The first `count` bits of the words in the last dimension, as signs: 0 → +1 and 1 → −1."""
    return _looked_up(words, count, dtype, is_mask=False)


def sign_masks(words: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """The same signs as the sign bits of integers as wide as `dtype`: to flip a number, xor its bits with one."""
    return _looked_up(words, count, mask_type(dtype), is_mask=True)


def _looked_up(words: Tensor, count: int, dtype: torch.dtype, *, is_mask: bool) -> Tensor:
    """(…, count): the eight numbers of a byte, for every byte of the words."""
    used = -(-count // 8)
    if on_cpu(words):
        return taken(words.contiguous().numpy().view(np.uint8)[..., :used], dtype, is_mask=is_mask)[..., :count]
    shift = torch.arange(0, SIGNS, 8, device=words.device)
    codes = ((words.unsqueeze(-1) >> shift) & 0xFF).flatten(-2)[..., :used]
    table = constant(_table, dtype, is_mask, words.device)
    return table.index_select(0, codes.flatten()).view(*codes.shape[:-1], 8 * used)[..., :count]


def taken(codes: np.ndarray, dtype: torch.dtype, *, is_mask: bool = False) -> Tensor:
    """(…, 8 · bytes): the signs, or their masks, of the bytes in the last dimension."""
    made = torch.from_numpy(taken_rows(codes, dtype, is_mask))
    return made.view(dtype) if dtype.itemsize == 2 else made  # numpy has no bfloat16


def taken_rows(
    codes: np.ndarray, dtype: torch.dtype, is_mask: bool = False, out: np.ndarray | None = None
) -> np.ndarray:
    """The same as numpy's array, in the memory of `out` where that is given."""
    if out is not None:
        out = out.reshape(*codes.shape, 8)
    # Every byte is in the table; "wrap" spares the look whether it is.
    made = _array(dtype, is_mask).take(codes, 0, out, "wrap")
    return made.reshape(*codes.shape[:-1], 8 * codes.shape[-1])


def signs_type(dtype: torch.dtype) -> np.dtype:
    """The type of the arrays in which `taken_rows` has signs."""
    return _array(dtype, False).dtype


@cache
def _array(dtype: torch.dtype, is_mask: bool) -> np.ndarray:
    """`_table` by numpy alone, since what torch makes inside of a transform belongs to that."""
    bits = (np.arange(256)[:, None] >> np.arange(8)) & 1
    if is_mask:
        return (bits * torch.iinfo(dtype).min).astype(f"int{8 * dtype.itemsize}")
    signs = (1 - 2 * bits).astype(np.float64 if dtype == torch.float64 else np.float32)
    if dtype == torch.bfloat16:
        return (signs.view(np.uint32) >> 16).astype(np.uint16).view(np.int16)
    return signs.astype(np.float16).view(np.int16) if dtype == torch.float16 else signs


def _table(dtype: torch.dtype, is_mask: bool, device: torch.device) -> Tensor:
    """(256, 8): a byte's eight bits as signs, 0 → +1 and 1 → −1; or as sign bits."""
    bits = (torch.arange(256, device=device).unsqueeze(1) >> torch.arange(8, device=device)) & 1
    return (bits * torch.iinfo(dtype).min if is_mask else 1 - 2 * bits).to(dtype)


def mask_type(dtype: torch.dtype) -> torch.dtype:
    return {2: torch.int16, 8: torch.int64}.get(dtype.itemsize, torch.int32)


def sign_at(seed: Tensor, key: int, dim: int, example: Tensor, feature: Tensor, dtype: torch.dtype) -> Tensor:
    """Single signs, one for each (example, feature) pair after broadcasting."""
    place = (example << PLACES) + feature // SIGNS
    word = mix(place.mul_(GAMMA) + named(mix(seed.clone()), key, dim))
    return (1 - 2 * ((word >> feature % SIGNS) & 1)).to(dtype)
