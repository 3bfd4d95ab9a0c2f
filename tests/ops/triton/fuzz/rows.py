"""Cases for the kernels that flip, add to, sum or round rows of features, on drawn tensors."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from flipout import Flipout, Gaussian, Independent, LowRank, Rademacher, RankOne, Scheme
from flipout._perturbation import Part, Perturbation, Signs
from flipout.backend import chosen
from flipout.distributions.base import Distribution
from flipout.draws.draw import Draw
from flipout.ops.base import flip
from flipout.ops.linear import Linear
from flipout.ops.turned import Turned
from flipout.schemes.quantised import RowSigns, quantise, scale_of
from tests.ops.triton.kernels import DEVICE

from .memory import CHANNELS, FLOATS, NARROW, NEAR, Memory
from .noise import FIRSTS, KEY

FEATURES = st.sampled_from([1, 1, 2, 3, 7, 33, 128, 130])
HALF = st.sampled_from([torch.bfloat16, torch.float16])


def draw_shape(memory: Memory, count: int, rows: int) -> tuple[tuple[int, ...], int, dict[str, Any]]:
    """Draw a shape with `rows` rows for each example. Return it, the dimension of its features, and layout options.

    Features come last, or are channels in front of up to 3 other dimensions.
    """
    draw = memory.draw
    if draw(st.integers(0, 2)) == 0:
        more = draw(st.sampled_from([(), (), (1,), (4,), (2, 3), (0,)]))
        return (count * rows, *more, draw(FEATURES)), -1, {}
    places = draw(st.sampled_from([(2, 3), (1, 1), (5,), (1,), (), (3, 1), (1, 2, 3), (1, 1, 1)]))
    return (count * rows, draw(st.sampled_from([4, 1, 3, 9])), *places), 1, {"layouts": CHANNELS}


def draw_signs(memory: Memory, count: int) -> Signs:
    return Signs(KEY, memory.draw(FIRSTS), count, memory.draw(st.booleans()))


def flips(memory: Memory) -> None:
    """flip(x), y + flip(p), and flip(x) with the sum of x, where y and p may have other layouts than x."""
    draw, count = memory.draw, memory.draw(st.integers(1, 4))
    shape, dim, options = draw_shape(memory, count, draw(st.integers(1, 3)))
    dtype, over, signs = draw(FLOATS), draw(st.integers(0, 1)), draw_signs(memory, count)
    if draw(st.sampled_from([False] * 7 + [True])):
        signs = Signs(KEY, signs.first, count, signs.antithetic, Part(2, shape[dim], shape[dim] + 3))

    def make(x: Tensor, y: Tensor, p: Tensor, seed: Tensor) -> list[Tensor]:
        kernels = chosen("flips", x, signs, dim, required=False)
        if kernels is not None:
            flip_drawn, add_flipped, flip_and_sum = kernels
            flipped, added = flip_drawn(x, signs, seed, over, dim), add_flipped(y, p, signs, seed, over, dim)
            return [flipped, added, *flip_and_sum(x, signs, seed, over, dim)]
        (factors,) = signs.over([(over, shape[dim])], seed, dtype)
        flipped = flip(x, factors, dim)
        return [
            flipped,
            y + flip(p, factors, dim),
            flipped,
            x.movedim(dim, -1).flatten(0, -2).double().sum(0).to(dtype),
        ]

    x = memory.numbers(*shape, dtype=dtype, may_be_negated=True, **options)
    y, p = (memory.numbers(*shape, dtype=dtype, written=written, **options) for written in (True, False))
    memory.compare(make, x, y, p, memory.seeds(), near=NEAR[dtype])


def sum_rows(memory: Memory) -> None:
    shape, dim, options = draw_shape(memory, memory.draw(st.sampled_from([40, 5, 1, 0])), 1)
    dtype = memory.draw(FLOATS)

    def make(x: Tensor) -> list[Tensor]:
        kernel = chosen("sum_rows", x, dim, required=False)
        wide = x.movedim(dim, -1).flatten(0, -2)
        return [wide.double().sum(0).to(x.dtype) if kernel is None else kernel(x, dim)]

    memory.compare(make, memory.numbers(*shape, dtype=dtype, may_be_negated=True, **options), near=NEAR[dtype])


def perturbations(
    memory: Memory, count: int, rows: int, dtype: torch.dtype, distribution: Distribution, group: int | None = None
) -> Callable[[Tensor, Tensor, Tensor], Perturbation]:
    """Return a function of a Parameter, its spread and a seed that perturbs it for `count` examples of `rows` rows."""
    draw, first = memory.draw, memory.draw(FIRSTS)
    antithetic = draw(st.booleans())

    def perturb(parameter: Tensor, spread: Tensor, seed: Tensor) -> Perturbation:
        held = Draw(seed, first=first, rows=rows, group=group, antithetic=antithetic)
        return Perturbation(parameter, spread.abs(), distribution, held, KEY, first, count, dtype)

    return perturb


def add_vector(memory: Memory, flipout: bool) -> None:
    """A bias for each example, over any dimension, added to y in place."""
    draw, count, rows = memory.draw, memory.draw(st.integers(1, 5)), memory.draw(st.integers(1, 3))
    (shape, dim, options), dtype = draw_shape(memory, count, rows), draw(FLOATS if flipout else NARROW | FLOATS)
    if not flipout and draw(st.booleans()):  # the kernel admits matrices only
        shape, dim, options = (shape[0], shape[dim]), -1, {}
    group = draw(st.sampled_from([None, 1, 2, 3])) if flipout else None
    noise = Rademacher(0.3) if flipout and draw(st.booleans()) else Gaussian(0.3)
    scheme: Scheme = Flipout() if flipout else Independent()
    perturbed = perturbations(memory, count, rows, dtype, noise, group)
    size = draw(st.sampled_from([(), (), (shape[dim],)]))

    @torch.no_grad()
    def make(y: Tensor, bias: Tensor, spread: Tensor, seed: Tensor) -> list[Tensor]:
        return [scheme.add_vector(y, perturbed(bias, spread, seed), dim)]

    y = memory.numbers(*shape, dtype=dtype, written=True, **options)
    bias, spread = memory.numbers(shape[dim], dtype=dtype), memory.numbers(*size, dtype=dtype)
    memory.compare(make, y, bias, spread, memory.seeds(), near=4 * NEAR[dtype])


def add_rank_one(memory: Memory) -> None:
    draw, count, rows = memory.draw, memory.draw(st.integers(1, 5)), memory.draw(st.integers(1, 3))
    dtype, fan_in, fan_out = draw(FLOATS), draw(FEATURES), draw(st.sampled_from([0, 1, 2, 7, 33]))
    more = draw(st.sampled_from([(), (), (), (2,)]))
    perturbed = perturbations(memory, count, rows, dtype, Gaussian(0.3))

    @torch.no_grad()
    def make(x: Tensor, bias: Tensor | None, weight: Tensor, spread: Tensor, seed: Tensor) -> list[Tensor]:
        return [LowRank(1).product(Linear(fan_in, fan_out), x, bias, perturbed(weight, spread, seed))]

    x = memory.numbers(count * rows, *more, fan_in, dtype=dtype, may_be_negated=True)
    weight = memory.numbers(fan_out, fan_in, dtype=dtype)
    bias = memory.numbers(fan_out, dtype=dtype) if draw(st.booleans()) else None
    memory.compare(make, x, bias, weight, memory.numbers(dtype=dtype), memory.seeds(), near=4 * NEAR[dtype])


def rank_one_terms(memory: Memory) -> None:
    """Rows of tokens too, and weights that are stored (in, out)."""
    draw, count, rows = memory.draw, memory.draw(st.integers(1, 5)), memory.draw(st.integers(1, 3))
    dtype, fan_in, fan_out = draw(FLOATS), draw(FEATURES), draw(st.sampled_from([0, 1, 2, 7, 33, 130]))
    more, is_turned = draw(st.sampled_from([(), (), (2,), (2, 1)])), draw(st.booleans())
    perturbed = perturbations(memory, count, rows, dtype, Rademacher(0.3))
    op = Turned(fan_in, fan_out) if is_turned else Linear(fan_in, fan_out)

    @torch.no_grad()
    def make(x: Tensor, bias: Tensor | None, weight: Tensor, spread: Tensor, seed: Tensor) -> list[Tensor]:
        return [RankOne().product(op, x, bias, perturbed(weight, spread, seed))]

    x = memory.numbers(count * rows, *more, fan_in, dtype=dtype, may_be_negated=True)
    weight = memory.numbers(*((fan_in, fan_out) if is_turned else (fan_out, fan_in)), dtype=dtype)
    bias = memory.numbers(fan_out, dtype=dtype) if draw(st.booleans()) else None
    memory.compare(make, x, bias, weight, memory.numbers(dtype=dtype), memory.seeds(), near=4 * NEAR[dtype])


def quantised(memory: Memory) -> None:
    """Ask for a device's kernel: its `fits` never admits the interpreter, which rounds to FP8 differently."""
    draw, count = memory.draw, memory.draw(st.integers(1, 5))
    rows, features, dtype = draw(st.integers(1, 3)), draw(FEATURES), draw(HALF)
    signs, over = draw_signs(memory, count) if draw(st.booleans()) else None, draw(st.integers(0, 1))
    sides = draw(st.sampled_from([(True, True), (True, False), (False, True)]))

    def make(x: Tensor, seed: Tensor) -> list[Tensor | None]:
        scale = scale_of(x)
        rounded = quantise(x, scale, None if signs is None else RowSigns(signs, seed, over), *sides)
        pair = (rounded.matrix, rounded.transpose)
        return [scale, *(None if side is None else side.float() * scale for side in pair)]

    x, seed = memory.numbers(count * rows, features, dtype=dtype, may_be_negated=True), memory.seeds()
    with pytest.MonkeyPatch.context() as patch:
        if DEVICE.type == "cpu":
            kernels = import_module("flipout.ops.triton.fp8")
            patch.setattr(kernels, "INTERPRETED", False)
            patch.setattr(kernels, "capability", lambda device: (9, 0))
        # To a neighbour; the interpreter also lacks the carry into a power of two.
        memory.compare(make, x, seed, near=2.0**-8, rtol=0.5 if DEVICE.type == "cpu" else 0.125)


CASES = {
    "flips": flips,
    "sum_rows": sum_rows,
    "add_flipped_vectors": partial(add_vector, flipout=True),
    "add_normals": partial(add_vector, flipout=False),
    "add_rank_one": add_rank_one,
    "rank_one_terms": rank_one_terms,
    "quantise": quantised,
    "largest": quantised,
}
