"""What is small of a whole draw, made in one vectorised call: the signs and the normal noise of every Parameter."""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .bits import GAMMA, mix_array, mix_number, places, stream_name
from .noise import FOLDS, NOISE, normal_pairs
from .signs import sign_places, sign_start, signs_type, taken_rows

FEW_NUMBERS = 2**17  # of the noise of one Parameter
FEW_SIGNS = 2**18  # of one dimension, for all examples of a base
MOST = 2**22  # numbers, and signs, that are made at once: the rest of a large model is made where it is used
FILLED = 256  # rows of a base from which on its product is faster alone than batched with others
_FEW_WORDS = 2**12  # whose signs are looked up in one call
_KEPT = 16  # numbers of examples that a roster is prepared for
_ALL = 2**64


@dataclass(frozen=True)
class Item:
    """A Parameter as a draw sees it."""

    key: int
    shape: tuple[int, ...]
    is_normal: bool  # its noise; else somebody else makes it
    over: tuple[tuple[int, int], ...]  # (dimension, features) of its signs


@dataclass(frozen=True)
class _Signs:
    """Where the words of all signs stand, example by example, for one number of examples."""

    places: np.ndarray  # name + place · γ of every word
    bytes: np.ndarray  # those of an example that have signs; each item begins a byte
    columns: tuple[tuple[int, int, int, int], ...]  # key, dimension, first and last column


@dataclass(frozen=True)
class _Noise:
    """The same of all noise."""

    places: np.ndarray
    words: tuple[tuple[int, tuple[int, ...], int, int], ...]  # key, shape, first and last word


class AtOnce(NamedTuple):
    signs: dict[tuple[int, int], Tensor]  # (examples, features) by key and dimension
    noise: dict[int, Tensor]  # normal noise by key, in the Parameter's shape; of several bases (bases, *shape)
    base: int  # the first one
    bases: int = 1


@dataclass(eq=False)
class Roster:
    """The Parameters that draw together."""

    items: tuple[Item, ...]
    is_lasting: bool = False  # somebody keeps it for later draws
    signs: dict[tuple[int, int], _Signs] = field(default_factory=dict)  # by the numbers of examples and bases

    @cached_property
    def noise(self) -> _Noise:
        return _noise_of(self.items)

    def forget(self) -> None:
        """Keep only what the rest can be made of again: draws that are remembered keep their roster."""
        self.signs.clear()
        self.__dict__.pop("noise", None)

    def make(
        self,
        seed: int,
        sign_seed: int,
        fold: int,
        base: int,
        first: int,
        examples: int,
        real: torch.dtype,
        bases: int = 1,
    ) -> AtOnce:
        """Make what is small of a draw, in `real`: to the bit what `signs` and `Stream.normal` make."""
        signs, noise = self.signs.get((examples, bases)), self.noise
        if signs is None:
            if len(self.signs) >= _KEPT:
                self.signs.clear()
            signs = self.signs[examples, bases] = _signs_of(self.items, examples, bases)
        cut, numbers = signs.places.size, noise.places.size
        words = np.empty(cut + bases * numbers, np.uint64)
        np.add(signs.places, sign_start(sign_seed, first), out=words[:cut])
        start = mix_number(seed + fold * FOLDS)
        for i in range(bases):
            begin = start + (mix_number((base + i) * GAMMA) if base + i else 0)
            np.add(noise.places, np.uint64(begin % _ALL), out=words[cut + i * numbers :][:numbers])
        mix_array(words)
        flipped = _unpacked(signs, words[:cut], examples, real) if cut else {}
        normal = words[cut:].reshape(bases, numbers) if bases > 1 else words[cut:]
        return AtOnce(flipped, _normals(noise, normal, real) if noise.words else {}, base, bases)

    def fits(self, bases: int) -> bool:
        """Return True if the noise of so many bases is small enough to be made at once."""
        return 2 * bases * self.noise.places.size <= MOST


def _signs_of(items: tuple[Item, ...], examples: int, bases: int) -> _Signs:
    features: dict[tuple[int, int], int] = {}
    for item in items:
        for dim, count in item.over:  # tied kernels may have several numbers of channels, by their groups
            features[item.key, dim] = max(count, features.get((item.key, dim), 0))
    parts, used, columns, word = [], [np.empty(0, np.int64)], [], 0
    for (key, dim), count in features.items():
        column = 8 * sum(map(len, used))
        if examples * count > FEW_SIGNS * bases or examples * (column + count) > MOST:
            continue
        parts.append(sign_places(key, dim, count, examples))
        used.append(np.arange(8 * word, 8 * word - (-count // 8)))
        columns.append((key, dim, column, column + count))
        word += parts[-1].shape[1]
    places = np.concatenate(parts, 1).ravel() if parts else np.empty(0, np.uint64)
    return _Signs(places, np.concatenate(used), tuple(columns))


def _noise_of(items: tuple[Item, ...]) -> _Noise:
    parts, words, begin = [np.empty(0, np.uint64)], [], 0
    for item in {item.key: item for item in items if item.is_normal}.values():  # tied Parameters once
        numbers = math.prod(item.shape)
        half = -(-numbers // 2)
        if 0 < numbers <= FEW_NUMBERS and 2 * begin + numbers <= MOST:
            parts.append(places(half) + np.uint64(stream_name(item.key, NOISE) % _ALL))
            words.append((item.key, item.shape, begin, begin + half))
            begin += half
    return _Noise(np.concatenate(parts), tuple(words))


def _unpacked(signs: _Signs, words: np.ndarray, examples: int, real: torch.dtype) -> dict[tuple[int, int], Tensor]:
    codes = words.view(np.uint8).reshape(examples, -1)
    if words.size <= _FEW_WORDS:
        flat = taken_rows(codes.take(signs.bytes, 1), real)
        return {(key, dim): torch.from_numpy(flat[:, begin:end]) for key, dim, begin, end in signs.columns}
    # Each dimension by itself, since rows that lie close together are read faster. All in one allocation: of many
    # smaller ones glibc gives the memory back every time, and page faults take as long as all products.
    made, room = {}, np.empty(8 * examples * signs.bytes.size, signs_type(real))
    for key, dim, begin, end in signs.columns:
        byte, used = signs.bytes[begin // 8], -((begin - end) // 8)
        rows = taken_rows(codes[:, byte : byte + used], real, out=room[begin * examples :][: 8 * used * examples])
        made[key, dim] = torch.from_numpy(rows[:, : end - begin])
    return made


def _normals(noise: _Noise, words: np.ndarray, real: torch.dtype) -> dict[int, Tensor]:
    cosine, sine = normal_pairs(words, real)
    made = {}
    for key, shape, begin, end in noise.words:
        numbers = np.concatenate((cosine[..., begin:end], sine[..., begin:end]), -1)[..., : math.prod(shape)]
        made[key] = torch.from_numpy(numbers.reshape(*cosine.shape[:-1], *shape))
    return made
