"""Both products of flipout in one launch, x W̄ᵀ + r ∘ (x′ ΔŴᵀ) + bias, and their form with transposed weights."""

from importlib import import_module

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import flipout
from flipout._perturbation import Signs
from tests.ops.triton.kernels import DEVICE, MARKS
from tests.ops.triton.populations import assert_trained

pytestmark = MARKS
fused_linear = import_module("flipout.ops.triton.fused_linear")
SMALL = fused_linear.LinearTile(16, 128, 16, 4, 2)


def exact(x: Tensor, flipped: Tensor, mean: Tensor, delta: Tensor, bias: Tensor | None, r: Tensor) -> Tensor:
    by_mean, by_noise = (a.double() @ w.double().T for a, w in ((x, mean), (flipped, delta)))
    y = by_mean + by_noise * r.double().repeat_interleave(len(x) // len(r), 0)
    return y if bias is None else y + bias.double()


@settings(max_examples=25, deadline=None)
@given(
    count=st.integers(1, 9),
    positions=st.integers(1, 5),
    length=st.integers(1, 70),
    width=st.integers(1, 300),
    first=st.sampled_from([0, 5, 2**31]),
    over=st.sampled_from([0, 1]),
    antithetic=st.booleans(),
    biased=st.booleans(),
    transposed=st.booleans(),
    apart=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
)
def test_any_shape(
    count: int,
    positions: int,
    length: int,
    width: int,
    first: int,
    over: int,
    antithetic: bool,
    biased: bool,
    transposed: bool,
    apart: bool,
    dtype: torch.dtype,
) -> None:
    """Also if a Parameter and its ΔŴ have different strides."""

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype)

    generator = torch.Generator().manual_seed(length * width)
    x, flipped = numbers(count * positions, length), numbers(count * positions, length)
    layouts = (transposed != apart, transposed)
    mean, delta = (numbers(length, width).T if is_turned else numbers(width, length) for is_turned in layouts)
    bias = numbers(2 * width)[::2] if biased and apart else numbers(width) if biased else None
    signs, seed = Signs(77, first, count, antithetic), torch.tensor(5, device=DEVICE)
    (r,) = signs.over([(over, width)], seed, dtype)
    actual = fused_linear.multiply_fused(x, flipped, mean, delta, bias, signs, seed, over, SMALL)
    truth = exact(x, flipped, mean, delta, bias, r)
    room = 2**-20 if dtype == torch.float32 and DEVICE.type == "cpu" else 2**-6
    torch.testing.assert_close(actual.double(), truth, rtol=room, atol=room * length**0.5)


@pytest.mark.skipif(DEVICE.type == "cpu", reason="needs a CUDA device; the interpreter takes minutes for these sizes")
@pytest.mark.parametrize(("count", "fan_in", "fan_out"), [(8192, 512, 512), (300, 1024, 1000), (5, 88, 264)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_layers_of_realistic_sizes(count: int, fan_in: int, fan_out: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = flipout.perturb(nn.Linear(fan_in, fan_out), flipout.MeanField(std=0.02))
    assert_trained(model, torch.randn(count, fan_in), dtype)
