"""Draw the signs and the normal noise of many small Parameters in one vectorised call."""

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

FEW_NUMBERS = 2**17  # most numbers of a Parameter whose noise is drawn at once
FEW_SIGNS = 2**18  # most signs of one dimension, over all examples of a base
MOST = 2**22  # most numbers, and most signs, drawn at once; the rest of a large model is drawn where it is used
FILLED = 256  # a base with at least this many rows is multiplied faster alone than batched with others
_FEW_WORDS = 2**12  # up to this many words, all signs are looked up in one call
_KEPT = 16  # most pairs (examples, bases) for which a roster caches sign positions
_ALL = 2**64


@dataclass(frozen=True)
class Item:
    """A Parameter as a draw sees it."""

    key: int
    shape: tuple[int, ...]
    is_normal: bool  # its noise is normal and drawn here; other noise is drawn elsewhere
    over: tuple[tuple[int, int], ...]  # (dimension, features) of its signs


@dataclass(frozen=True)
class _Signs:
    """The positions of the random words of all signs, example by example, for one number of examples."""

    places: np.ndarray  # name + place · γ of every word
    bytes: np.ndarray  # indices of the bytes of an example that hold signs; each item starts a new byte
    columns: tuple[tuple[int, int, int, int], ...]  # key, dimension, first and last column


@dataclass(frozen=True)
class _Noise:
    """The positions of the random words of all normal noise."""

    places: np.ndarray
    words: tuple[tuple[int, tuple[int, ...], int, int], ...]  # key, shape, first and last word


class AtOnce(NamedTuple):
    signs: dict[tuple[int, int], Tensor]  # (examples, features) by key and dimension
    noise: dict[int, Tensor]  # normal noise by key: (*shape) of one base, (bases, *shape) of several
    base: int  # the first base
    first: int  # index of the first example
    bases: int  # number of bases of the examples, even if their noise was left out


@dataclass(eq=False)
class Roster:
    """The Parameters whose signs and noise are drawn together."""

    items: tuple[Item, ...]
    is_lasting: bool = False  # later draws use it again, so its caches are kept
    advice: dict[str, str] = field(default_factory=dict)  # by layer: what to write if it counts other examples
    signs: dict[tuple[int, int], _Signs] = field(default_factory=dict)  # by the numbers of examples and bases

    @cached_property
    def noise(self) -> _Noise:
        return _noise_of(self.items)

    def forget(self) -> None:
        """Clear the caches, which are rebuilt from `items` on demand.

        A draw that is kept for recomputation also keeps its roster, so the roster should be small.
        """
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
        """Draw the signs and noise that are small, in `real`, bit for bit as `signs` and `Stream.normal` do.

        Noise is drawn for the bases `base` onward. For several bases it is left out if it exceeds MOST numbers.
        """
        signs, noise = self.signs.get((examples, bases)), self.noise
        if signs is None:
            if len(self.signs) >= _KEPT:
                self.signs.clear()
            signs = self.signs[examples, bases] = _signs_of(self.items, examples, bases)
        cut, numbers = signs.places.size, noise.places.size
        drawn = 0 if bases > 1 and 2 * bases * numbers > MOST else bases
        words = np.empty(cut + drawn * numbers, np.uint64)
        np.add(signs.places, sign_start(sign_seed, first), out=words[:cut])
        start = mix_number(seed + fold * FOLDS)
        for i in range(drawn):
            begin = start + (mix_number((base + i) * GAMMA) if base + i else 0)
            np.add(noise.places, np.uint64(begin % _ALL), out=words[cut + i * numbers :][:numbers])
        mix_array(words)
        flipped = _unpacked(signs, words[:cut], examples, real) if cut else {}
        if not (noise.words and drawn):
            return AtOnce(flipped, {}, base, first, bases)
        normal = words[cut:].reshape(bases, numbers) if bases > 1 else words[cut:]
        return AtOnce(flipped, _normals(noise, normal, real), base, first, bases)


def _signs_of(items: tuple[Item, ...], examples: int, bases: int) -> _Signs:
    features: dict[tuple[int, int], int] = {}
    for item in items:
        for dim, count in item.over:  # the uses of a tied kernel may differ in channels, if they differ in groups
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
    positions = np.concatenate(parts, 1).ravel() if parts else np.empty(0, np.uint64)
    return _Signs(positions, np.concatenate(used), tuple(columns))


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
    # Unpack one dimension at a time, since rows that lie close together are read faster. Allocate once: glibc hands
    # many smaller blocks back to the system every time, and the page faults take as long as all products.
    signs_by_key, room = {}, np.empty(8 * examples * signs.bytes.size, signs_type(real))
    for key, dim, begin, end in signs.columns:
        byte, used = signs.bytes[begin // 8], -((begin - end) // 8)
        rows = taken_rows(codes[:, byte : byte + used], real, out=room[begin * examples :][: 8 * used * examples])
        signs_by_key[key, dim] = torch.from_numpy(rows[:, : end - begin])
    return signs_by_key


def _normals(noise: _Noise, words: np.ndarray, real: torch.dtype) -> dict[int, Tensor]:
    cosine, sine = normal_pairs(words, real)
    noise_by_key = {}
    for key, shape, begin, end in noise.words:
        numbers = np.concatenate((cosine[..., begin:end], sine[..., begin:end]), -1)[..., : math.prod(shape)]
        noise_by_key[key] = torch.from_numpy(numbers.reshape((*cosine.shape[:-1], *shape)))
    return noise_by_key
