"""ΔŴ as one node of a compiled graph, in each direction.

torch.compile would trace the bit arithmetic and the Box–Muller transform of every Parameter, and would keep the noise,
which is as large as the weights, for the backward pass. As a custom op, ΔŴ is computed by the kernel or by numpy, and
the backward pass draws the noise again from its seed.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..draws.noise import Origin
from .base import Distribution, Kind
from .dropconnect import Rademacher
from .gaussian import Gaussian
from .scaled import ScaledNoise, sample

# Any distribution of the same kind draws the same standard noise.
_BY_KIND: dict[str, Distribution] = {"normal": Gaussian(1.0), "sign": Rademacher(1.0)}


def delta(scaled: ScaledNoise, kind: Kind, factor: Tensor, start: Tensor, dtype: torch.dtype) -> Tensor:
    """Return `sample(scaled, factor, start, dtype)` as one node of the graph."""
    origin = (0, 0, 0, 0) if scaled.origin is None else tuple(scaled.origin)
    shape, is_seeded = list(scaled.shape), scaled.origin is not None
    return scaled_noise(factor, start, shape, kind, scaled.noise_dtype, dtype, scaled.softplus, is_seeded, *origin)


def _scaled(
    shape: Sequence[int], kind: str, noise_dtype: torch.dtype, softplus: bool, is_seeded: bool, origin: tuple[int, ...]
) -> ScaledNoise:
    return ScaledNoise(_BY_KIND[kind], tuple(shape), noise_dtype, Origin(*origin) if is_seeded else None, softplus)


@torch.library.custom_op("flipout::scaled_noise", mutates_args=())
def scaled_noise(
    factor: Tensor,
    start: Tensor,
    shape: Sequence[int],
    kind: str,
    noise_dtype: torch.dtype,
    dtype: torch.dtype,
    softplus: bool,
    is_seeded: bool,
    key: int,
    field: int,
    base: int,
    fold: int,
) -> Tensor:
    """Return factor ∘ noise, or softplus(factor) ∘ noise. If `is_seeded`, `start` is a seed."""
    scaled = _scaled(shape, kind, noise_dtype, softplus, is_seeded, (key, field, base, fold))
    return sample(scaled, factor, start, dtype).contiguous()


@scaled_noise.register_fake
def _(
    factor: Tensor,
    start: Tensor,
    shape: Sequence[int],
    kind: str,
    noise_dtype: torch.dtype,
    dtype: torch.dtype,
    *_: Any,
) -> Tensor:
    return factor.new_empty((*start.shape, *shape), dtype=dtype)


@torch.library.custom_op("flipout::scaled_noise_gradient", mutates_args=())
def scaled_noise_gradient(
    grad: Tensor,
    factor: Tensor,
    start: Tensor,
    shape: Sequence[int],
    kind: str,
    noise_dtype: torch.dtype,
    softplus: bool,
    is_seeded: bool,
    key: int,
    field: int,
    base: int,
    fold: int,
) -> Tensor:
    """Return the gradient of the factor, given the gradient of ΔŴ. The noise is drawn again."""
    scaled = _scaled(shape, kind, noise_dtype, softplus, is_seeded, (key, field, base, fold))
    with torch.no_grad():
        return scaled.gradient(grad, start, factor if softplus else None, factor.shape).contiguous()


@scaled_noise_gradient.register_fake
def _(
    grad: Tensor, factor: Tensor, start: Tensor, shape: Sequence[int], kind: str, noise_dtype: torch.dtype, *_: Any
) -> Tensor:
    return factor.new_empty(factor.shape, dtype=noise_dtype)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    factor, start, shape, kind, noise_dtype, _, *rest = inputs
    ctx.save_for_backward(factor, start)
    ctx.rest = shape, kind, noise_dtype, *rest


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    factor, start = ctx.saved_tensors
    needs_grad = ctx.needs_input_grad[0]
    gradient = scaled_noise_gradient(grad.contiguous(), factor, start, *ctx.rest) if needs_grad else None
    return gradient, *[None] * 11


scaled_noise.register_autograd(_backward, setup_context=_save)
