"""Seed and counter in, replayable numbers out: noise.

Noise runs along SplitMix64 streams (Steele et al., 2014), one for each seed, Parameter and base: as replayable as the
Philox signs, at a third of the cost per number.
"""

import math
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .backend import chosen
from .philox import WORD
from .random import constant, few, transformed, unpack, wrap

NOISE, OUTPUT_NOISE = 7, 6  # what a stream is for
_CACHED = 2**17  # words at a time on a CPU
GAMMA, APART = wrap(0x9E3779B97F4A7C15), 0x6A09E667F3BCC909
MIX = (wrap(0xBF58476D1CE4E5B9), wrap(0x94D049BB133111EB))
_STAGES = ((30, MIX[0]), (27, MIX[1]), (31, 1))
Array = Any  # a tensor, or numpy's array


class _Scratch(threading.local):
    """Room for one piece of words per thread: fresh memory costs a CPU more than the arithmetic on it."""

    words: Tensor | None = None


_scratch = _Scratch()


def _shifted(z: Array, shift: int) -> Array:
    """z >> shift, to be used up before the next call."""
    if isinstance(z, np.ndarray) or z.device.type != "cpu" or z.numel() > _CACHED or transformed():
        return z >> shift
    if _scratch.words is None:
        with torch.inference_mode(False):
            _scratch.words = torch.empty(_CACHED, dtype=torch.int64, device="cpu")
    return torch.bitwise_right_shift(z, shift, out=_scratch.words[: z.numel()].view(z.shape))


def _splitmix(z: Array) -> Array:
    """SplitMix64's finaliser, in place; the masks make arithmetic shifts logical."""
    for shift, multiplier in _STAGES:
        high = _shifted(z, shift)
        high &= 2 ** (64 - shift) - 1
        z ^= high
        if multiplier != 1:
            z *= multiplier
    return z


class Origin(NamedTuple):
    """Where the stream of one base starts, to be made of a seed by whoever makes the noise."""

    key: int
    field: int
    base: int
    fold: int

    def start(self, seed: Tensor) -> Tensor:
        return stream_starts(seed, self.key, self.field, self.base, 1, self.fold).squeeze(-1)

    @lru_cache(1024)  # noqa: B019 (what it keeps alive is a few numbers)
    def words(self) -> tuple[int, int, int]:
        """What is added to the seed and to what is mixed of it, in turn."""
        return wrap((self.key << 3 | self.field) * APART), wrap(self.fold * GAMMA), wrap((self.base + 1) * GAMMA)


def stream_starts(seed: Tensor, key: int, field: int, first: int, count: int, fold: int = 0) -> Tensor:
    """(count,) starting points, one for each base (or example) `first` onward; `fold` sets a rank apart."""
    kernel = chosen("stream_starts", seed)
    if kernel is not None:
        return kernel(seed, key, field, first, count, fold)
    if count == 1 and few(count, seed):
        named, apart, step = Origin(key, field, first, fold).words()
        return torch.tensor([wrap(_mixed(_mixed(_mixed(int(seed) + named) + apart) + step))], device=seed.device)
    steps = _steps(count, seed.device, first + 1)
    if torch.compiler.is_compiling():
        # Integers may be symbols there, and products of symbols are indices, which must not overflow: tensors wrap.
        none = seed & 0
        named, apart = ((none | key) << 3 | field) * APART, (none | fold) * GAMMA
    else:
        named, apart, _ = Origin(key, field, first, fold).words()
    return _splitmix(steps + _splitmix(_splitmix(seed + named) + apart))


def _mixed(z: int) -> int:
    """`_splitmix` of one number."""
    for shift, multiplier in _STAGES:
        z &= 2**64 - 1
        z = (z ^ z >> shift) * multiplier
    return z


def _steps(count: int, device: torch.device, first: int = 0) -> Tensor:
    """(first + i) · γ. Without the `| 0`, inductor would fold the product into an index, which must not overflow."""
    return (torch.arange(first, first + count, device=device) | 0).mul_(GAMMA)


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
            return torch.where(self.elements < self._half, (word >> 32) & WORD, word & WORD)
        kernel = chosen("Stream.uniform", self.start)
        if kernel is not None:
            return kernel(self.start, self.shape, part)
        pairs = (((words >> 32) & WORD, words & WORD) for words in self._words(self._half, 3 * part + 1))
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
        return unpack(words, size, self.dtype, bits=64).reshape((*self.start.shape, *self.shape))

    def _box_muller(self, word: Tensor) -> tuple[Tensor, Tensor]:
        real = torch.float64 if self.dtype == torch.float64 else torch.float32
        unit = _shifted(word, 32).add_(2**31).to(real).mul_(2.0**-32).add_(2.0**-33)
        radius = unit.log_().mul_(-2).sqrt_()
        angle = word.bitwise_and_(WORD).to(real).mul_(math.tau / 2**32)
        return angle.cos().mul_(radius).to(self.dtype), angle.sin_().mul_(radius).to(self.dtype)

    @property
    def _half(self) -> int:
        return -(-math.prod(self.shape) // 2)

    def _halves_at(self, kind: int) -> Tensor:
        """The words that the elements share in two halves."""
        assert self.elements is not None
        return self._words_at(self.elements % self._half, kind)

    def _words_at(self, index: Tensor, kind: int) -> Tensor:
        return _splitmix(self.start + wrap(kind * APART) + index * GAMMA)

    def _words(self, count: int, kind: int) -> list[Tensor]:
        """(*start.shape, some) each: the first `count` words, in pieces that stay in a CPU's cache."""
        if few(self.start.numel() * count, self.start):
            steps = constant(_steps, _CACHED, self.start.device)[:count].numpy()
            words = _splitmix(steps + (self.start.numpy().reshape(-1, 1) + wrap(kind * APART)))
            return [torch.from_numpy(words.reshape(*self.start.shape, count))]
        origin = (self.start + wrap(kind * APART)).unsqueeze(-1)
        whole = origin.device.type != "cpu" or torch.compiler.is_compiling()
        piece = max(count if whole else _CACHED // max(self.start.numel(), 1), 1)
        steps = _steps(piece, origin.device) if whole else constant(_steps, _CACHED, origin.device)
        return [
            _splitmix(steps[: min(piece, count - i)] + (origin + wrap(i * GAMMA)))
            for i in range(0, max(count, 1), piece)
        ]

    def _halves(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
        first, second = zip(*pairs, strict=True)
        flat = torch.cat((*first, *second), -1)
        return flat[..., : math.prod(self.shape)].reshape((*self.start.shape, *self.shape))
