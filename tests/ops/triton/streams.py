"""Noise along streams, by the kernels and by the definition."""

import torch
from torch import Tensor

from flipout.draws.noise import Stream
from tests.ops.triton.kernels import CLOSE, assert_same, both


def noise(start: Tensor, kind: str, shape: tuple[int, ...], dtype: torch.dtype, part: int = 0) -> Tensor:
    return getattr(Stream(start, shape, dtype), kind)(part)


def assert_noise(start: Tensor, kind: str, shape: tuple[int, ...], dtype: torch.dtype, part: int = 0) -> None:
    """Compare to the bit, or for normal noise to a few ulp."""
    expected, actual = both(lambda device: noise(start.to(device), kind, shape, dtype, part))
    assert_same(expected, actual, **(CLOSE[dtype] if kind == "normal" else {}))


def random_starts(*shape: int) -> Tensor:
    return torch.randint(-(2**63), 2**63 - 1, shape)
