"""What is small of a whole draw, made in one vectorised call: the signs and the normal noise of every Parameter."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .bits import GAMMA, mix_array, mix_number, places, stream_name
from .noise import FOLDS, NOISE, normal_pairs
from .signs import sign_places, sign_start, taken_rows

FEW_NUMBERS = 2**17  # of the noise of one Parameter
FEW_SIGNS = 2**18  # of one dimension, for all examples
MOST = 2**22  # numbers, and signs, that are made at once: the rest of a large model is made where it is used
_KEPT = 16  # layouts of a roster
_ALL = 2**64


@dataclass(frozen=True)
class Item:
    """A Parameter as a draw sees it."""

    key: int
    shape: tuple[int, ...]
    is_normal: bool  # its noise; else somebody else makes it
    over: tuple[tuple[int, int], ...]  # (dimension, features) of its signs


@dataclass(frozen=True)
class _Layout:
    """Where the words of all items stand: those of the signs first, example by example, then those of the noise."""

    places: np.ndarray  # name + place · γ of every word
    sign_words: int
    bytes: np.ndarray  # those of an example that have signs; each item begins a byte
    signs: tuple[tuple[int, int, int, int], ...]  # key, dimension, first and last column
    noise: tuple[tuple[int, tuple[int, ...], int, int], ...]  # key, shape, first and last word


class AtOnce(NamedTuple):
    signs: dict[tuple[int, int], Tensor]  # (examples, features) by key and dimension
    noise: dict[int, Tensor]  # that of the base by key, of the Parameter's shape
    base: int


@dataclass(eq=False)
class Roster:
    """The Parameters that draw together."""

    items: tuple[Item, ...]
    layouts: dict[int, _Layout] = field(default_factory=dict)

    def make(
        self, seed: int, sign_seed: int, fold: int, base: int, first: int, examples: int, real: torch.dtype
    ) -> AtOnce:
        """Make what is small of a draw, in `real`.

        They are to the bit what `signs` and `Stream.normal` make.
        """
        layout = self.layouts.get(examples)
        if layout is None:
            if len(self.layouts) >= _KEPT:
                self.layouts.clear()
            layout = self.layouts[examples] = _layout(self.items, examples)
        cut, start = layout.sign_words, mix_number(seed + fold * FOLDS)
        if sign_seed == seed and not (fold or base or first):
            words = layout.places + np.uint64(start % _ALL)
        else:
            words = layout.places.copy()
            words[:cut] += sign_start(sign_seed, first)
            words[cut:] += np.uint64((start + mix_number(base * GAMMA)) % _ALL)
        mix_array(words)
        signs = _signs(layout, words[:cut], examples, real) if cut else {}
        return AtOnce(signs, _normals(layout, words[cut:], real) if layout.noise else {}, base)


def _layout(items: tuple[Item, ...], examples: int) -> _Layout:
    parts, used, signs, word = [], [np.empty(0, np.int64)], [], 0
    named = {(item.key, dim): features for item in items for dim, features in item.over}
    for (key, dim), features in named.items():
        if examples * features > FEW_SIGNS or examples * (8 * sum(map(len, used)) + features) > MOST:
            continue
        parts.append(sign_places(key, dim, features, examples))
        column = 8 * sum(map(len, used))
        used.append(np.arange(8 * word, 8 * word - (-features // 8)))
        signs.append((key, dim, column, column + features))
        word += parts[-1].shape[1]
    words, noise, begin = [np.concatenate(parts, 1).ravel() if parts else np.empty(0, np.uint64)], [], 0
    for item in {item.key: item for item in items if item.is_normal}.values():  # tied Parameters once
        numbers = math.prod(item.shape)
        half = -(-numbers // 2)
        if 0 < numbers <= FEW_NUMBERS and 2 * begin + numbers <= MOST:
            words.append(places(half) + np.uint64(stream_name(item.key, NOISE) % _ALL))
            noise.append((item.key, item.shape, begin, begin + half))
            begin += half
    return _Layout(np.concatenate(words), words[0].size, np.concatenate(used), tuple(signs), tuple(noise))


def _signs(layout: _Layout, words: np.ndarray, examples: int, real: torch.dtype) -> dict[tuple[int, int], Tensor]:
    codes = words.view(np.uint8).reshape(examples, -1).take(layout.bytes, 1)
    flat = taken_rows(codes, real)
    return {(key, dim): torch.from_numpy(flat[:, begin:end]) for key, dim, begin, end in layout.signs}


def _normals(layout: _Layout, words: np.ndarray, real: torch.dtype) -> dict[int, Tensor]:
    cosine, sine = normal_pairs(words, real)
    return {
        key: torch.from_numpy(np.concatenate((cosine[begin:end], sine[begin:end]))[: math.prod(shape)].reshape(shape))
        for key, shape, begin, end in layout.noise
    }
