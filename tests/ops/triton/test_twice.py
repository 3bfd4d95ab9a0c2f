"""Both products in one launch: x W̄ᵀ + r ∘ (x′ ΔŴᵀ) + bias, and its transposed form."""

from importlib import import_module

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import flipout
from flipout.perturbation import Signs
from tests.ops.triton.kernels import DEVICE, MARKS
from tests.ops.triton.populations import assert_trained

pytestmark = MARKS
twice = import_module("flipout.ops.triton.twice")  # where the kernels can be imported
SMALL = twice.Tile(16, 128, 16, 4, 2)


def exact(x: Tensor, flipped: Tensor, mean: Tensor, delta: Tensor, bias: Tensor | None, r: Tensor) -> Tensor:
    straight, turned = (a.double() @ w.double().T for a, w in ((x, mean), (flipped, delta)))
    y = straight + turned * r.double().repeat_interleave(len(x) // len(r), 0)
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
    """Parameters may lie in memory in other ways than ΔŴ does."""

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype)

    generator = torch.Generator().manual_seed(length * width)
    x, flipped = numbers(count * positions, length), numbers(count * positions, length)
    turned = (transposed != apart, transposed)
    mean, delta = (numbers(length, width).T if one else numbers(width, length) for one in turned)
    bias = numbers(2 * width)[::2] if biased and apart else numbers(width) if biased else None
    signs, seed = Signs(77, first, count, antithetic), torch.tensor(5, device=DEVICE)
    (r,) = signs.over([(over, width)], seed, dtype)
    made = twice.multiply_twice(x, flipped, mean, delta, bias, signs, seed, over, SMALL)
    truth = exact(x, flipped, mean, delta, bias, r)
    room = 2**-20 if dtype == torch.float32 and DEVICE.type == "cpu" else 2**-6
    torch.testing.assert_close(made.double(), truth, rtol=room, atol=room * length**0.5)


@pytest.mark.skipif(DEVICE.type == "cpu", reason="no CUDA device here; in the interpreter these sizes take minutes")
@pytest.mark.parametrize(("count", "fan_in", "fan_out"), [(8192, 512, 512), (300, 1024, 1000), (5, 88, 264)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_layers_of_real_sizes(count: int, fan_in: int, fan_out: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = flipout.perturb(nn.Linear(fan_in, fan_out), flipout.MeanField(std=0.02))
    assert_trained(model, torch.randn(count, fan_in), dtype)
