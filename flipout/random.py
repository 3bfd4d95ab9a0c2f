"""Seed and counter in, replayable bits out.

Signs are bits of Philox4x32-10 (Salmon et al., 2011): a pure function of seed, Parameter, dimension, example and
feature, so any one of them can be made alone, on any device, in any order. Noise runs along SplitMix64 streams
(Steele et al., 2014) whose starting points are Philox outputs: as replayable, at a third of the cost per number.
Everything is int64 tensor arithmetic on the device of the seed: it compiles, vmaps and can be captured.
"""

import functools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

_ROUNDS = 10
_MULTIPLIER = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF
_BLOCK = 128  # bits in one Philox output

# The dimension field of a counter holds the dimension whose signs are made, or one of these.
NOISE, OUTPUT_NOISE = 7, 6


def key_schedule(seed: Tensor) -> Tensor:
    """The (rounds, 2) round keys of a 64-bit seed."""
    key = torch.stack((seed & _WORD, (seed >> 32) & _WORD))
    round_ = torch.arange(_ROUNDS, device=seed.device)
    return (key + torch.stack((round_ * _WEYL[0], round_ * _WEYL[1]), 1)) & _WORD


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], keys: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four 32-bit words, held in int64, for each 4 × 32-bit counter."""
    c0, c1, c2, c3 = torch.broadcast_tensors(*counter)
    even, odd = torch.stack((c0, c2)), torch.stack((c1, c3))
    pair = (2, *[1] * (even.dim() - 1))
    index = torch.arange(2, device=even.device).view(pair)
    multiplier = index * (_MULTIPLIER[1] - _MULTIPLIER[0]) + _MULTIPLIER[0]
    for key in keys.view(_ROUNDS, *pair).unbind(0):
        product = (even * multiplier).flip(0)
        even, odd = ((product >> 32) ^ odd ^ key) & _WORD, product
    c0, c2 = even.unbind(0)
    c1, c3 = (odd & _WORD).unbind(0)
    return c0, c1, c2, c3


def _counter(block: Tensor, index: Tensor, key: int, field: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A Parameter's 61-bit key fills the two words beside block and index."""
    high, low = ((key >> 32) << 3 | field) & _WORD, key & _WORD
    return block, index, torch.full_like(block, high), torch.full_like(block, low)


def signs(keys: Tensor, key: int, dim: int, first: int, count: int, features: int, dtype: torch.dtype) -> Tensor:
    """(count, features) of ±1: the signs of examples `first` onward over dimension `dim` of Parameter `key`."""
    device = keys.device
    blocks = -(-features // _BLOCK)
    example = torch.arange(first, first + count, device=device).unsqueeze(1)
    words = philox(_counter(torch.arange(blocks, device=device), example, key, dim), keys)
    return _expand(torch.stack(words, -1).flatten(1), 32, features, dtype)


def sign_at(keys: Tensor, key: int, dim: int, example: Tensor, feature: Tensor, dtype: torch.dtype) -> Tensor:
    """Single signs, one for each (example, feature) pair after broadcasting."""
    words = torch.stack(philox(_counter(feature // _BLOCK, example, key, dim), keys))
    lane = (feature // 32 % 4).expand(words.shape[1:]).unsqueeze(0)
    bit = (words.gather(0, lane).squeeze(0) >> (feature % 32)) & 1
    return (1 - 2 * bit).to(dtype)


@functools.cache
def _cached_table(dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return _table(dtype, device)


def _table(dtype: torch.dtype, device: torch.device) -> Tensor:
    """(256, 8): a byte's eight bits as signs, 0 → +1 and 1 → −1."""
    bits = torch.arange(256, device=device).unsqueeze(1) >> torch.arange(8, device=device)
    return (1 - 2 * (bits & 1)).to(dtype)


def _expand(words: Tensor, bits: int, count: int, dtype: torch.dtype) -> Tensor:
    """The first `count` bits of the last dimension's words, as signs."""
    shift = torch.arange(0, bits, 8, device=words.device)
    code = ((words.unsqueeze(-1) >> shift) & 0xFF).flatten(-2)[..., : -(-count // 8)]
    plain = type(words) is Tensor and not torch.compiler.is_compiling()
    table = (_cached_table if plain else _table)(dtype, words.device)
    return table.index_select(0, code.flatten()).view(*code.shape[:-1], -1)[..., :count]


# Streams ---------------------------------------------------------------------------------------------------------

_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_MIX = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)


def _splitmix(z: Tensor) -> Tensor:
    z = (z ^ ((z >> 30) & (2**34 - 1))) * _MIX[0]
    z = (z ^ ((z >> 27) & (2**37 - 1))) * _MIX[1]
    return z ^ ((z >> 31) & (2**33 - 1))


def stream_starts(keys: Tensor, key: int, field: int, first: int, count: int, fold: int = 0) -> Tensor:
    """(count,) starting points, one for each base (or example) `first` onward; `fold` sets a rank apart."""
    index = torch.arange(first, first + count, device=keys.device)
    high, low, *_ = philox(_counter(torch.full_like(index, fold), index, key, field), keys)
    return high << 32 | low


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
        """N(0, 1) by Box and Muller: elements 2i and 2i + 1 are the cosine and the sine of word i."""
        word = self._words(2, 3 * part)
        real = torch.float64 if self.dtype == torch.float64 else torch.float32
        unit = ((word >> 32) + 2**31).to(real) * 2.0**-32 + 2.0**-33
        radius = (unit.log() * -2).sqrt()
        angle = (word & _WORD).to(real) * (math.tau / 2**32)
        if self.elements is not None:
            return torch.where(self.elements % 2 == 0, angle.cos(), angle.sin()).mul(radius).to(self.dtype)
        return self._shaped(torch.stack((radius * angle.cos(), radius * angle.sin()), -1).to(self.dtype))

    def uniform(self, part: int = 0) -> Tensor:
        """32-bit integers, uniform over [0, 2³²), in int64."""
        word = self._words(2, 3 * part + 1)
        high, low = (word >> 32) & _WORD, word & _WORD
        if self.elements is not None:
            return torch.where(self.elements % 2 == 0, high, low)
        return self._shaped(torch.stack((high, low), -1))

    def sign(self, part: int = 0) -> Tensor:
        """±1, one bit each."""
        word = self._words(64, 3 * part + 2)
        if self.elements is not None:
            return (1 - 2 * ((word >> self.elements % 64) & 1)).to(self.dtype)
        return _expand(word, 64, math.prod(self.shape), self.dtype).view(*self.start.shape, *self.shape)

    def _words(self, per_word: int, kind: int) -> Tensor:
        origin = self.start + kind * 0x6A09E667F3BCC909
        if self.elements is not None:
            return _splitmix(origin + self.elements // per_word * _GAMMA)
        count = -(-math.prod(self.shape) // per_word)
        return _splitmix(origin.unsqueeze(-1) + torch.arange(count, device=origin.device) * _GAMMA)

    def _shaped(self, pairs: Tensor) -> Tensor:
        return pairs.flatten(-2)[..., : math.prod(self.shape)].reshape(*self.start.shape, *self.shape)
