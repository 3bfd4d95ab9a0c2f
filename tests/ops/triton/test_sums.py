"""Sums over rows, by the kernel and in double precision."""

from importlib import import_module

import pytest
import torch

from tests.ops.triton.kernels import DEVICE, MARKS

sums = import_module("flipout.ops.triton.sums")
pytestmark = MARKS
ROOM = {torch.float64: 2.0**-45, torch.float32: 2.0**-18, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-6}


@pytest.mark.parametrize("dtype", ROOM, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (33, 128), (200, 130), (5, 4, 257), (2, 3, 8, 5)], ids=str)
def test_any_shape(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(len(shape))
    x = torch.randn(shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype)
    truth = x.double().flatten(0, -2).sum(0)
    torch.testing.assert_close(sums.sum_rows(x, -1).double(), truth, rtol=ROOM[dtype], atol=ROOM[dtype] * 8)


def test_channels_that_come_last() -> None:
    x = torch.randn(4, 6, 5, 3).to(DEVICE).to(memory_format=torch.channels_last)
    assert sums._fits(x, 1)
    assert not sums._fits(x.contiguous(), 1)
    torch.testing.assert_close(sums.sum_rows(x, 1), x.sum((0, 2, 3)))


@pytest.mark.skipif(DEVICE.type == "cpu", reason="no CUDA device here; in the interpreter these sizes take minutes")
@pytest.mark.parametrize("shape", [(8192, 512), (8192, 4096), (300, 10)], ids=str)
def test_real_sizes(shape: tuple[int, int]) -> None:
    x = torch.randn(shape, device=DEVICE, dtype=torch.bfloat16)
    truth = x.double().sum(0)
    torch.testing.assert_close(sums.sum_rows(x, -1).double(), truth, rtol=2.0**-7, atol=1e-3)
