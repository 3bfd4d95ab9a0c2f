"""Noise: a pure function of seed, Parameter, base and element, along the streams of `bits`."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..backend import chosen
from .bits import CACHED, GAMMA, LOW, mix, mix_array, mix_number, named, on_cpu, places, steps, stream_name, wrap
from .signs import unpack

NOISE, OUTPUT_NOISE = 7, 6  # what a stream is for; signs are those below, by their dimension
KINDS = 0xBB67AE8584CAA73B - 2**64  # sets the words of normal, uniform and sign noise apart
FOLDS = 0x3C6EF372FE94F82B  # sets ranks apart


class Origin(NamedTuple):
    """Where the stream of one base starts, to be made of a seed by whoever makes the noise."""

    key: int
    field: int
    base: int
    fold: int

    def start(self, seed: Tensor) -> Tensor:
        return stream_starts(seed, self.key, self.field, self.base, 1, self.fold).squeeze(-1)

    @lru_cache(1024)  # noqa: B019 (what it keeps alive is a few numbers)
    def words(self) -> tuple[int, int]:
        """What is added to the seed before it is mixed, and after."""
        return wrap(self.fold * FOLDS), wrap(stream_name(self.key, self.field) + mix_number(self.base * GAMMA))


def stream_starts(seed: Tensor, key: int, field: int, first: int, count: int, fold: int = 0) -> Tensor:
    """(count,) starting points, one for each base (or example) `first` onward; `fold` sets a rank apart.

    start = mix(seed + fold) + name + mix(base · γ): base 0 of rank 0 starts where the Parameter's stream does.
    """
    kernel = chosen("stream_starts", seed)
    if kernel is not None:
        return kernel(seed, key, field, first, count, fold)
    if on_cpu(seed):
        before, after = Origin(key, field, 0, fold).words()
        bases = mix_array(places(count, first))
        return torch.from_numpy((bases + np.uint64((mix_number(int(seed) + before) + after) % 2**64)).view(np.int64))
    folded = seed + ((seed & 0 | fold) * FOLDS if torch.compiler.is_compiling() else wrap(fold * FOLDS))
    return named(mix(folded), key, field) + mix(steps(count, seed.device, first))


def normal_pairs(words: np.ndarray, real: torch.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Two normal numbers of each 64-bit word, by Box and Muller: the radius of its high half, the angle of its low."""
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
    """Standard noise for one tensor of `shape` per starting point, or only for the given flat `elements` of it.

    Each kind of noise has its own words; ask with another `part` for a second, independent array of the same kind.
    """

    start: Tensor
    shape: tuple[int, ...]
    dtype: torch.dtype
    elements: Tensor | None = None

    def normal(self, part: int = 0) -> Tensor:
        """N(0, 1) by Box and Muller: the first half are cosines of the words, the second half their sines."""
        if self.elements is not None:
            cosine, sine = self._box_muller(self._halves_at(3 * part))
            return torch.where(self.elements < self._half, cosine, sine)
        kernel = chosen("Stream.normal", self.start, self.dtype)
        if kernel is not None:
            return kernel(self.start, self.shape, self.dtype, part)
        return self._halves(self._box_muller(words) for words in self._words(self._half, 3 * part))

    def uniform(self, part: int = 0) -> Tensor:
        """32-bit integers, uniform over [0, 2³²), in int64."""
        if self.elements is not None:
            word = self._halves_at(3 * part + 1)
            return torch.where(self.elements < self._half, (word >> 32) & LOW, word & LOW)
        kernel = chosen("Stream.uniform", self.start)
        if kernel is not None:
            return kernel(self.start, self.shape, part)
        pairs = (((words >> 32) & LOW, words & LOW) for words in self._words(self._half, 3 * part + 1))
        return self._halves(pairs)

    def sign(self, part: int = 0) -> Tensor:
        """±1, one bit each."""
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
        if on_cpu(word):
            pair = (torch.from_numpy(made) for made in normal_pairs(word.contiguous().numpy(), real))
            return tuple(made.to(self.dtype) for made in pair)  # pyright: ignore[reportReturnType]
        unit = ((word >> 32) & LOW).to(real).mul_(2.0**-32).add_(2.0**-33)
        radius = unit.log_().mul_(-2).sqrt_()
        angle = word.bitwise_and_(LOW).to(real).mul_(math.tau / 2**32)
        return angle.cos().mul_(radius).to(self.dtype), angle.sin_().mul_(radius).to(self.dtype)

    @property
    def _half(self) -> int:
        return -(-math.prod(self.shape) // 2)

    def _halves_at(self, kind: int) -> Tensor:
        """The words that the elements share in two halves."""
        assert self.elements is not None
        return self._words_at(self.elements % self._half, kind)

    def _words_at(self, index: Tensor, kind: int) -> Tensor:
        return mix(self.start + wrap(kind * KINDS) + index * GAMMA)

    def _words(self, count: int, kind: int) -> list[Tensor]:
        """(*start.shape, some) each: the first `count` words, in pieces that stay in a CPU's cache."""
        if on_cpu(self.start):
            return self._words_of_numpy(count, wrap(kind * KINDS) % 2**64)
        origin = (self.start + wrap(kind * KINDS)).unsqueeze(-1)
        return [mix(origin + steps(max(count, 1), origin.device)[:count])]

    def _words_of_numpy(self, count: int, kind: int) -> list[Tensor]:
        origin = self.start.contiguous().numpy().view(np.uint64)[..., None] + np.uint64(kind)
        piece = max(CACHED // max(self.start.numel(), 1), 1)
        made = []
        for i in range(0, max(count, 1), piece):
            words = mix_array(origin + places(min(piece, count - i), i))
            made.append(torch.from_numpy(words.view(np.int64)))
        return made

    def _halves(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
        first, second = zip(*pairs, strict=True)
        flat = torch.cat((*first, *second), -1)
        return flat[..., : math.prod(self.shape)].reshape((*self.start.shape, *self.shape))
