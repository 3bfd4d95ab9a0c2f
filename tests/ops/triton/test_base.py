"""Which tensors kernels take, and the types they compute in."""

from importlib import import_module

import pytest
import torch

from tests.ops.triton.kernels import MARKS

base = import_module("flipout.ops.triton.base")
tl = pytest.importorskip("triton.language")
pytestmark = MARKS


def test_types() -> None:
    assert base.real_type(torch.bfloat16, torch.float32) is tl.float32
    assert base.real_type(torch.float32, torch.float64) is tl.float64
    assert base.index_type(2**30 - 1) is tl.int32
    assert base.index_type(2**30) is tl.int64


def test_features_are_adjacent_in_rows_and_in_channels_last() -> None:
    x = torch.zeros(2, 3, 4, 4)
    assert base.has_adjacent_features(x, -1)
    assert not base.has_adjacent_features(x, 1)
    assert base.has_adjacent_features(x.to(memory_format=torch.channels_last), 1)
    assert not base.has_adjacent_features(torch.zeros(3, dtype=torch.complex64).conj().imag, -1)  # a negative bit


def test_only_floats_fit() -> None:
    x = torch.zeros(3)
    assert base.fits(x, torch.bfloat16) == (base.INTERPRETED or x.is_cuda)
    assert not base.fits(x, torch.int32)
