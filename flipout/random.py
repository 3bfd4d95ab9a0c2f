"""Seed and counter in, replayable bits out.

Signs are bits of Philox4x32-10 (Salmon et al., 2011): a pure function of seed, Parameter, dimension, example and
feature, so any one of them can be made alone, on any device, in any order. Noise runs along SplitMix64 streams
(Steele et al., 2014), one for each seed, Parameter and base: as replayable, at a third of the cost per number.
Everything is int64 tensor arithmetic on the device of the seed: it compiles, vmaps and can be captured.
"""

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

_ROUNDS = 10
_MULTIPLIER = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF
_BLOCK = 128  # bits in one Philox output
_CACHED = 2**17  # words at a time on a CPU
_FEW = 2**13
Array = Any  # a tensor, or numpy's array

NOISE, OUTPUT_NOISE = 7, 6  # what a stream is for


def key_schedule(seed: Tensor) -> Tensor:
    """The (rounds, 2) round keys of a 64-bit seed."""
    return (torch.stack((seed, seed >> 32)) + _constant(_weyl, seed.device)).bitwise_and_(_WORD)


def _weyl(device: torch.device) -> Tensor:
    rounds = torch.arange(_ROUNDS, device=device)
    return torch.stack((rounds * _WEYL[0], rounds * _WEYL[1]), 1)


def philox(counter: tuple[Array, Array, Array, Array], keys: Array) -> tuple[Array, Array, Array, Array]:
    """Four 32-bit words, held in int64, for each 4 × 32-bit counter: tensors, or all of them numpy's arrays."""
    broadcast = np.broadcast_arrays if isinstance(keys, np.ndarray) else torch.broadcast_tensors
    c0, c1, c2, c3 = broadcast(*counter)
    key = keys.reshape(-1)
    key = key if isinstance(key, np.ndarray) else key.unbind(0)
    for i in range(0, 2 * _ROUNDS, 2):
        product0, product1 = c0 * _MULTIPLIER[0], c2 * _MULTIPLIER[1]
        c0, c2 = (product1 >> 32) ^ key[i], (product0 >> 32) ^ key[i + 1]
        c0 ^= c1
        c2 ^= c3
        c0 &= _WORD
        c2 &= _WORD
        c1, c3 = product1, product0
    return c0, c1 & _WORD, c2, c3 & _WORD


def _few(count: int, tensor: Tensor) -> bool:
    """Whether numpy is the faster of the two: its calls cost half of torch's, but it has one thread."""
    return count <= _FEW and tensor.device.type == "cpu" and type(tensor) is Tensor and not transformed()


def _key_words(block: Tensor, key: int, dim: int) -> tuple[Tensor, Tensor]:
    """A Parameter's 61-bit key, and a dimension, fill the two words beside block and example."""
    high, low = ((key >> 32) << 3 | dim) & _WORD, key & _WORD
    return torch.full_like(block, high), torch.full_like(block, low)


def sign_words(keys: Tensor, key: int, over: Sequence[tuple[int, int]], first: int, count: int) -> Sequence[Tensor]:
    """(count, words) for each (dimension, features) of Parameter `key`: packed signs of the examples `first` onward,
    32 in a word."""
    blocks = tuple((dim, -(-size // _BLOCK)) for dim, size in over)
    example = torch.arange(first, first + count, device=keys.device).unsqueeze(1)
    block, high, low = _constant(_blocks, key, blocks, keys.device).unbind(0)
    if _few(count * len(block), keys):
        counter = block.numpy(), example.numpy(), high.numpy(), low.numpy()
        words = torch.from_numpy(np.stack(philox(counter, keys.numpy()), -1)).flatten(1)
    else:
        words = torch.stack(philox((block, example, high, low), keys), -1).flatten(1)
    return words.split([4 * count for _, count in blocks], 1)


def _blocks(key: int, blocks: tuple[tuple[int, int], ...], device: torch.device) -> Tensor:
    """(3, blocks): the words of the counters beside the example, for `count` blocks of each dimension."""
    parts = []
    for dim, count in blocks:
        block = torch.arange(count, device=device)
        parts.append(torch.stack((block, *_key_words(block, key, dim))))
    return torch.cat(parts, 1)


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
    block = feature // _BLOCK
    words = torch.stack(philox((block, example, *_key_words(block, key, dim)), keys))
    lane = (feature // 32 % 4).expand(words.shape[1:]).unsqueeze(0)
    bit = (words.gather(0, lane).squeeze(0) >> (feature % 32)) & 1
    return (1 - 2 * bit).to(dtype)


def transformed() -> bool:
    """Inside torch.compile or torch.func, which see through plain tensor code and own what is made there."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


_CONSTANTS: dict[tuple, Tensor] = {}


def _constant(make: Callable[..., Tensor], *args: Any) -> Tensor:
    """make(*args), made once; but anew inside of a trace or a capture, which own what is made there."""
    capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    if transformed() or capturing:
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
            _scratch.words = torch.empty(_CACHED, dtype=torch.int64)
    return torch.bitwise_right_shift(z, shift, out=_scratch.words[: z.numel()].view(z.shape))


def _splitmix(z: Array) -> Array:
    """SplitMix64's finaliser, in place; the masks make arithmetic shifts logical."""
    for shift, multiplier in ((30, _MIX[0]), (27, _MIX[1]), (31, None)):
        high = _shifted(z, shift)
        high &= 2 ** (64 - shift) - 1
        z ^= high
        if multiplier is not None:
            z *= multiplier
    return z


def stream_starts(seed: Tensor, key: int, field: int, first: int, count: int, fold: int = 0) -> Tensor:
    """(count,) starting points, one for each base (or example) `first` onward; `fold` sets a rank apart."""
    steps = _steps(count, seed.device, first + 1)
    if _few(count, seed):
        return torch.from_numpy(_stream_starts(seed.numpy().reshape(1), steps.numpy(), key, field, fold))
    return _stream_starts(seed, steps, key, field, fold)


def _stream_starts(seed: Array, steps: Array, key: int, field: int, fold: int) -> Array:
    parameter = _splitmix(seed + wrap((key << 3 | field) * _APART))
    return _splitmix(steps + _splitmix(parameter + wrap(fold * _GAMMA)))


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
        """N(0, 1) by Box and Muller: the first half are cosines of the words, the second half their sines."""
        if self.elements is not None:
            cosine, sine = self._box_muller(self._halves_at(3 * part))
            return torch.where(self.elements < self._half, cosine, sine)
        return self._halves(self._box_muller(words) for words in self._words(self._half, 3 * part))

    def uniform(self, part: int = 0) -> Tensor:
        """32-bit integers, uniform over [0, 2³²), in int64."""
        if self.elements is not None:
            word = self._halves_at(3 * part + 1)
            return torch.where(self.elements < self._half, (word >> 32) & _WORD, word & _WORD)
        pairs = (((words >> 32) & _WORD, words & _WORD) for words in self._words(self._half, 3 * part + 1))
        return self._halves(pairs)

    def sign(self, part: int = 0) -> Tensor:
        """±1, one bit each."""
        if self.elements is not None:
            word = self._words_at(self.elements // 64, 3 * part + 2)
            return (1 - 2 * ((word >> self.elements % 64) & 1)).to(self.dtype)
        size = math.prod(self.shape)
        words = torch.cat(self._words(-(-size // 64), 3 * part + 2), -1)
        return unpack(words, size, self.dtype, bits=64).reshape(*self.start.shape, *self.shape)

    def _box_muller(self, word: Tensor) -> tuple[Tensor, Tensor]:
        real = torch.float64 if self.dtype == torch.float64 else torch.float32
        unit = _shifted(word, 32).add_(2**31).to(real).mul_(2.0**-32).add_(2.0**-33)
        radius = unit.log_().mul_(-2).sqrt_()
        angle = word.bitwise_and_(_WORD).to(real).mul_(math.tau / 2**32)
        return angle.cos().mul_(radius).to(self.dtype), angle.sin_().mul_(radius).to(self.dtype)

    @property
    def _half(self) -> int:
        return -(-math.prod(self.shape) // 2)

    def _halves_at(self, kind: int) -> Tensor:
        """The words that the elements share in two halves."""
        assert self.elements is not None
        return self._words_at(self.elements % self._half, kind)

    def _words_at(self, index: Tensor, kind: int) -> Tensor:
        return _splitmix(self.start + wrap(kind * _APART) + index * _GAMMA)

    def _words(self, count: int, kind: int) -> list[Tensor]:
        """(*start.shape, some) each: the first `count` words, in pieces that stay in a CPU's cache."""
        origin = (self.start + wrap(kind * _APART)).unsqueeze(-1)
        whole = origin.device.type != "cpu" or torch.compiler.is_compiling()
        piece = max(count if whole else _CACHED // max(self.start.numel(), 1), 1)
        steps = _steps(piece, origin.device) if whole else _constant(_steps, _CACHED, origin.device)
        return [
            _splitmix(steps[: min(piece, count - i)] + (origin + wrap(i * _GAMMA)))
            for i in range(0, max(count, 1), piece)
        ]

    def _halves(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
        first, second = zip(*pairs, strict=True)
        flat = torch.cat((*first, *second), -1)
        return flat[..., : math.prod(self.shape)].reshape(*self.start.shape, *self.shape)
