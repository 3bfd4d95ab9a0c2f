"""Cases for the kernels that multiply, on drawn tensors."""

import torch
from hypothesis import strategies as st
from torch import Tensor

from flipout import Flipout, Gaussian
from flipout.backend import chosen
from flipout.ops.base import flip
from flipout.ops.linear import Linear
from tests.ops.triton.kernels import DEVICE

from .memory import NARROW, NEAR, Memory
from .rows import draw_signs, perturbations

# The kernels admit a device only for multiples of 8, and for rows that fill a block.
FANS_IN = st.sampled_from([1, 3, 8, 24, 70] if DEVICE.type == "cpu" else [8, 24, 72, 70])
FANS_OUT = st.sampled_from([1, 2, 6, 64, 130] if DEVICE.type == "cpu" else [64, 72, 136, 66])


def add_grouped_product(memory: Memory) -> None:
    draw, count, rows = memory.draw, memory.draw(st.integers(2, 9)), memory.draw(st.integers(1, 3))
    dtype, fan_in, fan_out, group = draw(NARROW), draw(FANS_IN), draw(FANS_OUT), draw(st.sampled_from([1, 2, 4]))
    perturbed = perturbations(memory, count, rows, dtype, Gaussian(0.3), group)

    @torch.no_grad()
    def make(x: Tensor, bias: Tensor | None, weight: Tensor, spread: Tensor, seed: Tensor) -> list[Tensor]:
        return [Flipout().product(Linear(fan_in, fan_out), x, bias, perturbed(weight, spread, seed))]

    x = memory.numbers(count * rows, fan_in, dtype=dtype, may_be_negated=True)
    weight = memory.numbers(fan_out, fan_in, dtype=dtype)
    bias = memory.numbers(fan_out, dtype=dtype) if draw(st.booleans()) else None
    memory.compare(make, x, bias, weight, memory.numbers(dtype=dtype), memory.seeds(), near=4 * NEAR[dtype])


def weighted_noise_sum(memory: Memory) -> None:
    draw, count = memory.draw, memory.draw(st.integers(1, 9))
    dtype, fan_in, fan_out, group = draw(NARROW), draw(FANS_IN), draw(FANS_OUT), draw(st.sampled_from([1, 2, 4]))
    perturbed = perturbations(memory, count, 1, dtype, Gaussian(0.3), group)

    def make(fitness: Tensor, weight: Tensor, spread: Tensor, seed: Tensor) -> list[Tensor]:
        return [Flipout().weighted(perturbed(weight, spread, seed), 1, fitness)]

    fitness, weight = memory.numbers(count, dtype=torch.float64), memory.numbers(fan_out, fan_in, dtype=dtype)
    memory.compare(make, fitness, weight, memory.numbers(dtype=dtype), memory.seeds(), near=4 * NEAR[dtype])


def fused_linear(memory: Memory) -> None:
    """x W̄ᵀ + r ∘ (x′ ΔŴᵀ) + bias, where x′ is contiguous, as a kernel makes it, and the rest has any layout."""
    draw, count, rows = memory.draw, memory.draw(st.integers(1, 4)), memory.draw(st.integers(1, 3))
    dtype, fan_in, fan_out = draw(NARROW), draw(FANS_IN), draw(FANS_OUT)
    more, signs, over = draw(st.sampled_from([(), (1,), (3,)])), draw_signs(memory, count), draw(st.integers(0, 1))

    def make(x: Tensor, mean: Tensor, delta: Tensor, bias: Tensor | None, seed: Tensor) -> list[Tensor]:
        kernel = chosen("fused_linear", x, signs, Linear(fan_in, fan_out), required=False)
        r, s = signs.over([(over, fan_out), (1 - over, fan_in)], seed, dtype)
        flipped = flip(x, s, -1)
        if kernel is not None:
            return [kernel(x, flipped, mean, delta, bias, signs, seed, over)]
        y = (x.double() @ mean.double().T) + flip(flipped.double() @ delta.double().T, r.double(), -1)
        return [(y if bias is None else y + bias.double()).to(dtype)]

    x = memory.numbers(count * rows, *more, fan_in, dtype=dtype, may_be_negated=True)
    mean, delta = (memory.numbers(fan_out, fan_in, dtype=dtype) for _ in range(2))
    bias = memory.numbers(fan_out, dtype=dtype) if draw(st.booleans()) else None
    memory.compare(make, x, mean, delta, bias, memory.seeds(), near=NEAR[dtype])


CASES = {
    "add_grouped_product": add_grouped_product,
    "weighted_noise_sum": weighted_noise_sum,
    "fused_linear": fused_linear,
}
