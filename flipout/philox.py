"""Philox4x32-10 (Salmon et al., 2011): four words of 32 bits for each counter of four, under a key of two."""

import numpy as np
import torch
from torch import Tensor

ROUNDS = 10
MULTIPLIER = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
WORD = 0xFFFFFFFF
BLOCK = 128  # bits in one output
Counter = tuple[Tensor, Tensor, Tensor, Tensor]

_WEYL = np.arange(ROUNDS, dtype=np.uint64)[:, None] * np.array(WEYL, np.uint64)
_MULTIPLIER, _LOW, _HALF = np.array(MULTIPLIER, np.uint64)[:, None, None], np.uint64(WORD), np.uint64(32)


def philox(counter: Counter, keys: Tensor) -> Counter:
    """Words held in int64, under the (rounds, 2) keys of a seed."""
    c0, c1, c2, c3 = torch.broadcast_tensors(*counter)
    key = keys.reshape(-1).unbind(0)
    for i in range(0, 2 * ROUNDS, 2):
        product0, product1 = c0 * MULTIPLIER[0], c2 * MULTIPLIER[1]
        c0, c2 = (product1 >> 32) ^ key[i], (product0 >> 32) ^ key[i + 1]
        c0 ^= c1
        c2 ^= c3
        c0 &= WORD
        c2 &= WORD
        c1, c3 = product1, product0
    return c0, c1 & WORD, c2, c3 & WORD


def philox_of_few(blocks: np.ndarray, first: int, count: int, seed: int) -> np.ndarray:
    """(count, blocks, 4) words for the examples `first` onward, where small calls are what takes the time: numpy's, for
    two words at once. `blocks` has the other three words of each counter."""
    keys = (np.array([[seed & WORD, seed >> 32 & WORD]], np.uint64) + _WEYL & _LOW)[..., None, None]
    even, odd = (np.empty((2, count, blocks.shape[1]), np.uint64) for _ in range(2))
    even[0], even[1], odd[1] = blocks
    odd[0] = np.arange(first, first + count, dtype=np.uint64)[:, None]
    for key in keys:
        product = (even * _MULTIPLIER)[::-1]
        even = product >> _HALF
        even ^= odd
        even ^= key
        odd = product & _LOW
    words = np.empty((count, blocks.shape[1], 4), "<u4")
    words[..., ::2], words[..., 1::2] = even.transpose(1, 2, 0), odd.transpose(1, 2, 0)
    return words
