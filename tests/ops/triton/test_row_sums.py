"""Sums over rows by the kernel, against double precision."""

from importlib import import_module

import pytest
import torch

from flipout._perturbation import Signs
from tests.ops.triton.kernels import DEVICE, MARKS

row_sums, flips = (import_module(f"flipout.ops.triton.{name}") for name in ("row_sums", "flips"))
pytestmark = MARKS
ROOM = {torch.float64: 2.0**-45, torch.float32: 2.0**-18, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-6}


@pytest.mark.parametrize("dtype", ROOM, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (33, 128), (200, 130), (5, 4, 257), (2, 3, 8, 5)], ids=str)
def test_any_shape(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(len(shape))
    x = torch.randn(shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype)
    truth = x.double().flatten(0, -2).sum(0)
    torch.testing.assert_close(row_sums.sum_rows(x, -1).double(), truth, rtol=ROOM[dtype], atol=ROOM[dtype] * 8)


def test_channels_last() -> None:
    x = torch.randn(4, 6, 5, 3).to(DEVICE).to(memory_format=torch.channels_last)
    assert row_sums._fits(x, 1)
    assert not row_sums._fits(x.contiguous(), 1)
    torch.testing.assert_close(row_sums.sum_rows(x, 1), x.sum((0, 2, 3)))


@pytest.mark.skipif(DEVICE.type == "cpu", reason="needs a CUDA device; the interpreter takes minutes for these sizes")
@pytest.mark.parametrize("shape", [(8192, 512), (8192, 4096), (300, 10)], ids=str)
def test_realistic_sizes(shape: tuple[int, int]) -> None:
    x = torch.randn(shape, device=DEVICE, dtype=torch.bfloat16)
    truth = x.double().sum(0)
    torch.testing.assert_close(row_sums.sum_rows(x, -1).double(), truth, rtol=2.0**-7, atol=1e-3)


SHAPES = [(1, 1), (7, 3), (33, 128), (70, 130), (6, 4, 257), (2, 3, 8, 5)]


@pytest.mark.parametrize(
    ("shape", "dtype", "over", "antithetic"),
    [
        *((shape, dtype, 0, True) for shape in SHAPES for dtype in ROOM),
        ((34, 130), torch.float32, 0, False),
        ((34, 130), torch.float32, 1, True),
    ],
    ids=str,
)
def test_flipping_and_summing_at_once(shape: tuple[int, ...], dtype: torch.dtype, over: int, antithetic: bool) -> None:
    """The flipped rows are those of `flip_drawn` to the bit. Sums of few rows may come from tiles of another size."""
    x = torch.randn(shape, dtype=torch.float64).to(DEVICE, dtype)
    signs, seed = Signs(2**63 + 5, 2**32 - 2, shape[0], antithetic), torch.tensor(-3, device=DEVICE)
    flipped, total = row_sums.flip_and_sum(x, signs, seed, over, -1)
    assert torch.equal(flipped, flips.flip_drawn(x, signs, seed, over, -1))
    truth = x.double().flatten(0, -2).sum(0)
    torch.testing.assert_close(total.double(), truth, rtol=ROOM[dtype], atol=ROOM[dtype] * 8)
    assert shape == (1, 1) or not torch.equal(flipped, x)


def test_flipping_and_summing_channels_last() -> None:
    x = torch.randn(4, 6, 5, 3).to(DEVICE).to(memory_format=torch.channels_last)
    signs, seed = Signs(1, 0, 2, False), torch.tensor(7, device=DEVICE)
    flipped, total = row_sums.flip_and_sum(x, signs, seed, 0, 1)
    assert torch.equal(flipped, flips.flip_drawn(x, signs, seed, 0, 1))
    torch.testing.assert_close(total, x.sum((0, 2, 3)))
