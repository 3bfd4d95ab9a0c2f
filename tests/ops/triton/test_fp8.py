"""FP8 by kernels is FP8 by the definition: straight and transposed, with signs and without."""

from importlib import import_module

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from flipout._perturbation import Signs
from flipout.backend import choosing
from flipout.schemes.quantised import FP8, RowSigns, quantise, scale_of
from tests.ops.triton.kernels import DEVICE, MARKS

kernels = import_module("flipout.ops.triton.fp8")
pytestmark = MARKS
HALF = (torch.bfloat16, torch.float16)


def numbers(*shape: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).mul(3).to(DEVICE, dtype)


def assert_quantised(x: Tensor, whose: RowSigns | None) -> None:
    scale = kernels.largest(x) / torch.finfo(FP8).max
    straight, turned = kernels.quantise(x, scale, whose, True, True)
    assert turned.is_contiguous()
    assert torch.equal(turned.view(torch.uint8), straight.T.contiguous().view(torch.uint8))
    only_straight, nothing = kernels.quantise(x, scale, whose, True, False)
    assert nothing is None
    assert torch.equal(only_straight.view(torch.uint8), straight.view(torch.uint8))
    nothing, only_turned = kernels.quantise(x, scale, whose, False, True)
    assert nothing is None
    assert torch.equal(only_turned.view(torch.uint8), turned.view(torch.uint8))
    with choosing("eager"):
        assert torch.equal(scale, scale_of(x))
        expected = quantise(x, scale, whose, True, False).matrix
    assert expected is not None
    actual, truth = straight.float(), expected.float()
    if DEVICE.type == "cuda":
        assert torch.equal(actual, truth)
    else:  # the interpreter rounds differently: to a neighbour, and without the carry into a power of two
        share = torch.where(truth.frexp().mantissa.abs() == 0.5, 0.5, 0.125)
        assert ((actual - truth).abs() <= (truth.abs() * share).clamp_min(2.0**-9)).all()
        assert (actual.sign() * truth.sign() >= 0).all()


@given(
    count=st.integers(1, 9),
    positions=st.integers(1, 20),
    features=st.integers(1, 70) | st.sampled_from([128, 129, 300]),
    first=st.sampled_from([0, 5, 2**31]),
    over=st.sampled_from([0, 1]),
    antithetic=st.booleans(),
    dtype=st.sampled_from(HALF),
)
def test_any_shape_under_signs(
    count: int, positions: int, features: int, first: int, over: int, antithetic: bool, dtype: torch.dtype
) -> None:
    signs, seed = Signs(77, first, count, antithetic), torch.tensor(5, device=DEVICE)
    assert_quantised(numbers(count * positions, features, dtype=dtype), RowSigns(signs, seed, over))


@given(rows=st.integers(1, 200), features=st.integers(1, 300), dtype=st.sampled_from(HALF))
def test_any_shape_without_signs(rows: int, features: int, dtype: torch.dtype) -> None:
    assert_quantised(numbers(rows, features, dtype=dtype), None)


@pytest.mark.parametrize("size", [1, 2047, 2048, 2048 * 8 + 1, 40_000])
@pytest.mark.parametrize("dtype", [*HALF, torch.float32], ids=str)
def test_the_largest_finite_number(size: int, dtype: torch.dtype) -> None:
    x = numbers(size, dtype=dtype)
    assert kernels.largest(x) == x.float().abs().max()
    x[size // 2] = torch.nan
    x[-1] = -torch.inf
    assert kernels.largest(x) == torch.where(x.isfinite(), x, 0).float().abs().max()


@pytest.mark.skipif(DEVICE.type == "cpu", reason="needs a CUDA device; the interpreter takes minutes for these sizes")
@pytest.mark.parametrize("shape", [(8192, 4096), (4096, 4096), (1000, 1234)], ids=str)
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_realistic_sizes(shape: tuple[int, int], dtype: torch.dtype) -> None:
    signs, seed = Signs(77, 0, shape[0], False), torch.tensor(5, device=DEVICE)
    assert_quantised(numbers(*shape, dtype=dtype), RowSigns(signs, seed, 1))
    assert_quantised(numbers(*shape, dtype=dtype), None)
