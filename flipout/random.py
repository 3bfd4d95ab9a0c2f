"""Seed and counter in, replayable bits out.

Signs are bits of Philox4x32-10 (Salmon et al., 2011): a pure function of seed, Parameter, dimension, example and
feature, so any one of them can be made alone, on any device, in any order. Noise runs along SplitMix64 streams
(Steele et al., 2014), one for each seed, Parameter and base: as replayable, at a third of the cost per number.
Everything is int64 tensor arithmetic on the device of the seed: it compiles, vmaps and can be captured.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_ROUNDS = 10
_MULTIPLIER = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF
_BLOCK = 128  # bits in one Philox output
_CACHED = 2**17  # words at a time on a CPU

NOISE, OUTPUT_NOISE = 7, 6  # what a stream is for


def key_schedule(seed: Tensor) -> Tensor:
    """The (rounds, 2) round keys of a 64-bit seed."""
    key = torch.stack((seed & _WORD, (seed >> 32) & _WORD))
    round_ = torch.arange(_ROUNDS, device=seed.device)
    return (key + torch.stack((round_ * _WEYL[0], round_ * _WEYL[1]), 1)) & _WORD


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], keys: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four 32-bit words, held in int64, for each 4 × 32-bit counter."""
    c0, c1, c2, c3 = counter
    for key0, key1 in (key.unbind(0) for key in keys.unbind(0)):
        product0, product1 = c0 * _MULTIPLIER[0], c2 * _MULTIPLIER[1]
        c0 = ((product1 >> 32) ^ key0 ^ c1).bitwise_and_(_WORD)
        c2 = ((product0 >> 32) ^ key1 ^ c3).bitwise_and_(_WORD)
        c1, c3 = product1, product0
    return c0, c1 & _WORD, c2, c3 & _WORD


def _counter(block: Tensor, index: Tensor, key: int, field: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A Parameter's 61-bit key fills the two words beside block and index."""
    high, low = ((key >> 32) << 3 | field) & _WORD, key & _WORD
    return block, index, torch.full_like(block, high), torch.full_like(block, low)


def sign_words(keys: Tensor, key: int, over: Sequence[tuple[int, int]], first: int, count: int) -> Sequence[Tensor]:
    """(count, words) for each (dimension, features) of Parameter `key`: packed signs of the examples `first` onward,
    32 in a word."""
    device = keys.device
    example = torch.arange(first, first + count, device=device).unsqueeze(1)
    fields = [_counter(torch.arange(-(-size // _BLOCK), device=device), example, key, dim) for dim, size in over]
    block, high, low = (torch.cat([field[i] for field in fields]) for i in (0, 2, 3))
    words = torch.stack(philox((block, example, high, low), keys), -1).flatten(1)
    return words.split([4 * len(field[0]) for field in fields], 1)


def unpack(words: Tensor, count: int, dtype: torch.dtype, bits: int = 32) -> Tensor:
    """The first `count` bits of the words in the last dimension, as signs: 0 → +1 and 1 → −1."""
    shift = torch.arange(0, bits, 8, device=words.device)
    codes = ((words.unsqueeze(-1) >> shift) & 0xFF).flatten(-2)[..., : -(-count // 8)]
    table = _constant(_table, dtype, words.device)
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


def sign_at(keys: Tensor, key: int, dim: int, example: Tensor, feature: Tensor, dtype: torch.dtype) -> Tensor:
    """Single signs, one for each (example, feature) pair after broadcasting."""
    words = torch.stack(philox(_counter(feature // _BLOCK, example, key, dim), keys))
    lane = (feature // 32 % 4).expand(words.shape[1:]).unsqueeze(0)
    bit = (words.gather(0, lane).squeeze(0) >> (feature % 32)) & 1
    return (1 - 2 * bit).to(dtype)


_CONSTANTS: dict[tuple, Tensor] = {}


def _constant(make: Callable[..., Tensor], *args: Any) -> Tensor:
    """make(*args), made once; but anew inside of a trace or a capture, which own what is made there."""
    if torch.compiler.is_compiling() or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
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


# Streams ---------------------------------------------------------------------------------------------------------


def wrap(number: int) -> int:
    """The 64-bit two's complement of an integer."""
    return (number + 2**63) % 2**64 - 2**63


_GAMMA, _APART = wrap(0x9E3779B97F4A7C15), 0x6A09E667F3BCC909
_MIX = (wrap(0xBF58476D1CE4E5B9), wrap(0x94D049BB133111EB))


def _splitmix(z: Tensor) -> Tensor:
    """SplitMix64's finaliser, in place; the masks make torch's arithmetic shifts logical."""
    z.bitwise_xor_((z >> 30).bitwise_and_(2**34 - 1)).mul_(_MIX[0])
    z.bitwise_xor_((z >> 27).bitwise_and_(2**37 - 1)).mul_(_MIX[1])
    return z.bitwise_xor_((z >> 31).bitwise_and_(2**33 - 1))


def stream_starts(seed: Tensor, key: int, field: int, first: int, count: int, fold: int = 0) -> Tensor:
    """(count,) starting points, one for each base (or example) `first` onward; `fold` sets a rank apart."""
    parameter = _splitmix(seed + wrap((key << 3 | field) * _APART))
    return _splitmix(_steps(count, seed.device, first + 1) + _splitmix(parameter + wrap(fold * _GAMMA)))


def _steps(count: int, device: torch.device, first: int = 0) -> Tensor:
    """(first + i) · γ. Without the `| 0`, inductor would fold the product into an index, which must not overflow."""
    return (torch.arange(first, first + count, device=device) | 0).mul_(_GAMMA)


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
        if self.elements is not None:
            cosine, sine = self._box_muller(self._words_at(2, 3 * part))
            return torch.where(self.elements % 2 == 0, cosine, sine).to(self.dtype)
        return self._paired(self._box_muller(words) for words in self._words(2, 3 * part))

    def uniform(self, part: int = 0) -> Tensor:
        """32-bit integers, uniform over [0, 2³²), in int64."""
        if self.elements is not None:
            word = self._words_at(2, 3 * part + 1)
            return torch.where(self.elements % 2 == 0, (word >> 32) & _WORD, word & _WORD)
        return self._paired(((words >> 32) & _WORD, words & _WORD) for words in self._words(2, 3 * part + 1))

    def sign(self, part: int = 0) -> Tensor:
        """±1, one bit each."""
        if self.elements is not None:
            return (1 - 2 * ((self._words_at(64, 3 * part + 2) >> self.elements % 64) & 1)).to(self.dtype)
        size = math.prod(self.shape)
        words = torch.cat(self._words(64, 3 * part + 2), -1)
        return unpack(words, size, self.dtype, bits=64).reshape(*self.start.shape, *self.shape)

    def _box_muller(self, word: Tensor) -> tuple[Tensor, Tensor]:
        real = torch.float64 if self.dtype == torch.float64 else torch.float32
        unit = (word >> 32).add_(2**31).to(real).mul_(2.0**-32).add_(2.0**-33)
        radius = unit.log_().mul_(-2).sqrt_()
        angle = word.bitwise_and_(_WORD).to(real).mul_(math.tau / 2**32)
        return angle.cos().mul_(radius).to(self.dtype), angle.sin_().mul_(radius).to(self.dtype)

    def _words_at(self, per_word: int, kind: int) -> Tensor:
        """The word of each of the elements."""
        assert self.elements is not None
        return _splitmix(self.start + wrap(kind * _APART) + self.elements // per_word * _GAMMA)

    def _words(self, per_word: int, kind: int) -> list[Tensor]:
        """(*start.shape, some) each: all words of the shape, in pieces that stay in a CPU's cache."""
        origin = (self.start + wrap(kind * _APART)).unsqueeze(-1)
        count = -(-math.prod(self.shape) // per_word)
        whole = origin.device.type != "cpu" or torch.compiler.is_compiling()
        piece = max(count if whole else _CACHED // max(self.start.numel(), 1), 1)
        steps = _steps(piece, origin.device) if whole else _constant(_steps, _CACHED, origin.device)
        return [
            _splitmix(steps[: min(piece, count - i)] + (origin + wrap(i * _GAMMA)))
            for i in range(0, max(count, 1), piece)
        ]

    def _paired(self, halves: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
        pieces = [torch.stack(pair, -1).flatten(-2) for pair in halves]
        flat = pieces[0] if len(pieces) == 1 else torch.cat(pieces, -1)
        return flat[..., : math.prod(self.shape)].reshape(*self.start.shape, *self.shape)
