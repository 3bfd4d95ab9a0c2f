"""Noise: a pure function of seed, Parameter, base and element, read from the streams of `bits`."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..backend import chosen
from .bits import (
    CACHED,
    GAMMA,
    LOW,
    add_stream_name,
    mix,
    mix_array,
    mix_number,
    places,
    steps,
    stream_name,
    uses_numpy,
    wrap,
)
from .signs import unpack

# Fields of stream names. Fields 0 and 1 are for signs over a dimension, TRAILING (2) for signs over several.
NOISE, OUTPUT_NOISE, COEFFICIENTS = 7, 6, 5
KINDS = 0xBB67AE8584CAA73B - 2**64  # separates the words of normal, uniform and sign noise
FOLDS = 0x3C6EF372FE94F82B  # separates data-parallel ranks


class Origin(NamedTuple):
    """Identifies the noise stream of one base. Together with a seed it gives the starting point of the stream."""

    key: int
    field: int
    base: int
    fold: int

    def start(self, seed: Tensor) -> Tensor:
        """Return the starting point of the stream, of the seed's shape."""
        return stream_starts(seed, self.key, self.field, self.base, 1, self.fold).squeeze(-1)

    @lru_cache(1024)  # noqa: B019 (it keeps only a few numbers alive)
    def words(self) -> tuple[int, int]:
        """Return the numbers to add to the seed before and after mixing it."""
        return wrap(self.fold * FOLDS), wrap(stream_name(self.key, self.field) + mix_number(self.base * GAMMA))


def stream_starts(seed: Tensor, key: int, field: int, first: int, count: int, fold: int = 0) -> Tensor:
    """Return (count,) starting points, one for each base (or example) `first` onward. `fold` separates ranks.

    start = mix(seed + fold) + name + mix(base · γ), so base 0 of rank 0 starts where the Parameter's stream starts.
    """
    kernel = chosen("stream_starts", seed)
    if kernel is not None:
        return kernel(seed, key, field, first, count, fold)
    if uses_numpy(seed):
        before, after = Origin(key, field, 0, fold).words()
        bases = mix_array(places(count, first))
        return torch.from_numpy((bases + np.uint64((mix_number(int(seed) + before) + after) % 2**64)).view(np.int64))
    folded = seed + ((seed & 0 | fold) * FOLDS if torch.compiler.is_compiling() else wrap(fold * FOLDS))
    return add_stream_name(mix(folded), key, field) + mix(steps(count, seed.device, first))


def normal_pairs(words: np.ndarray, real: torch.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Return two normal numbers for each 64-bit word, by Box–Muller: radius from its high half, angle from its low."""
    halves, kind = words.view(np.uint32), np.float64 if real == torch.float64 else np.float32
    angle, radius = halves[..., 0::2].astype(kind), halves[..., 1::2].astype(kind)
    radius *= kind(2.0**-32)
    radius += kind(2.0**-33)
    np.log(radius, out=radius)
    radius *= kind(-2)
    np.sqrt(radius, out=radius)
    angle *= kind(math.tau / 2**32)
    cosine = np.cos(angle)
    cosine *= radius
    np.sin(angle, out=angle)
    angle *= radius
    return cosine, angle


@dataclass(frozen=True)
class Stream:
    """Standard noise: a tensor of `shape` for each starting point, or only the flat indices `elements` of that tensor.

    The three kinds of noise are independent of each other. Another `part` gives a further independent array of a kind.
    """

    start: Tensor
    shape: tuple[int, ...]
    dtype: torch.dtype
    elements: Tensor | None = None

    def normal(self, part: int = 0) -> Tensor:
        """Return N(0, 1) noise, by Box–Muller: the first half of the elements are cosines, the second half sines."""
        if self.elements is not None:
            cosine, sine = self._box_muller(self._halves_at(3 * part))
            return torch.where(self.elements < self._half, cosine, sine)
        kernel = chosen("Stream.normal", self.start, self.dtype)
        if kernel is not None:
            return kernel(self.start, self.shape, self.dtype, part)
        return self._halves(self._box_muller(words) for words in self._words(self._half, 3 * part))

    def uniform(self, part: int = 0) -> Tensor:
        """Return integers uniform over [0, 2³²), as int64."""
        if self.elements is not None:
            word = self._halves_at(3 * part + 1)
            return torch.where(self.elements < self._half, (word >> 32) & LOW, word & LOW)
        kernel = chosen("Stream.uniform", self.start)
        if kernel is not None:
            return kernel(self.start, self.shape, part)
        pairs = (((words >> 32) & LOW, words & LOW) for words in self._words(self._half, 3 * part + 1))
        return self._halves(pairs)

    def sign(self, part: int = 0) -> Tensor:
        """Return ±1 with equal probability."""
        if self.elements is not None:
            word = self._words_at(self.elements // 64, 3 * part + 2)
            return (1 - 2 * ((word >> self.elements % 64) & 1)).to(self.dtype)
        kernel = chosen("Stream.sign", self.start, self.dtype)
        if kernel is not None:
            return kernel(self.start, self.shape, self.dtype, part)
        size = math.prod(self.shape)
        words = torch.cat(self._words(-(-size // 64), 3 * part + 2), -1)
        return unpack(words, size, self.dtype).reshape((*self.start.shape, *self.shape))

    def _box_muller(self, word: Tensor) -> tuple[Tensor, Tensor]:
        real = torch.float64 if self.dtype == torch.float64 else torch.float32
        if uses_numpy(word):
            pair = (torch.from_numpy(half) for half in normal_pairs(word.contiguous().numpy(), real))
            return tuple(half.to(self.dtype) for half in pair)  # pyright: ignore[reportReturnType]
        unit = ((word >> 32) & LOW).to(real).mul_(2.0**-32).add_(2.0**-33)
        radius = unit.log_().mul_(-2).sqrt_()
        angle = word.bitwise_and_(LOW).to(real).mul_(math.tau / 2**32)
        return angle.cos().mul_(radius).to(self.dtype), angle.sin_().mul_(radius).to(self.dtype)

    @property
    def _half(self) -> int:
        return -(-math.prod(self.shape) // 2)

    def _halves_at(self, kind: int) -> Tensor:
        """Return the words of `elements`. Element i and element i + half use the same word."""
        assert self.elements is not None
        return self._words_at(self.elements % self._half, kind)

    def _words_at(self, index: Tensor, kind: int) -> Tensor:
        return mix(self.start + wrap(kind * KINDS) + index * GAMMA)

    def _words(self, count: int, kind: int) -> list[Tensor]:
        """Return the first `count` words as pieces of shape (*start.shape, n), small enough for a CPU's cache."""
        if uses_numpy(self.start):
            return self._numpy_words(count, wrap(kind * KINDS) % 2**64)
        origin = (self.start + wrap(kind * KINDS)).unsqueeze(-1)
        return [mix(origin + steps(max(count, 1), origin.device)[:count])]

    def _numpy_words(self, count: int, kind: int) -> list[Tensor]:
        origin = self.start.contiguous().numpy().view(np.uint64)[..., None] + np.uint64(kind)
        piece = max(CACHED // max(self.start.numel(), 1), 1)
        pieces = []
        for i in range(0, max(count, 1), piece):
            words = mix_array(origin + places(min(piece, count - i), i))
            pieces.append(torch.from_numpy(words.view(np.int64)))
        return pieces

    def _halves(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
        """Join the pieces of both halves into the stream's shape."""
        first, second = zip(*pairs, strict=True)
        flat = torch.cat((*first, *second), -1)
        return flat[..., : math.prod(self.shape)].reshape((*self.start.shape, *self.shape))
