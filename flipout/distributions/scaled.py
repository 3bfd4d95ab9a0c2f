"""ΔŴ = spread ∘ noise and its gradient, with the noise drawn again in backward."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .._batched_gradients import one_at_a_time
from ..backend import chosen
from ..draws.bits import is_transformed
from ..draws.noise import Origin, Stream
from ..draws.opaque import is_only_compiling
from .base import Distribution, Kind


class ScaledNoise(NamedTuple):
    """The product of a factor and noise. The factor is the spread, or the gradient of ΔŴ in backward."""

    distribution: Distribution
    shape: tuple[int, ...]
    noise_dtype: torch.dtype  # the noise is rounded to it before the product
    origin: Origin | None = None  # if set, `start` arguments are seeds, and the stream starts at origin.start(seed)
    softplus: bool = False  # the spread is softplus(source), and the source is passed instead of the spread

    @property
    def kind(self) -> Kind | None:
        """The method of `Stream` that gives this noise, or None if the distribution computes its own."""
        return getattr(type(self.distribution).noise, "kind", lambda _: None)(self.distribution)

    def kernel(self, start: Tensor, factor: Tensor, **options: Any) -> Callable[[torch.dtype], Tensor] | None:
        """Return a function dtype → factor ∘ noise that runs a kernel, or None if no kernel fits."""
        kind = self.kind
        if kind is None or (factor.shape not in (self.shape, ()) and factor.shape != (*start.shape, *self.shape)):
            return None
        if kind != "normal" and (options.get("softplus") or options.get("slope") is not None):
            return None
        kernel = chosen("scaled_noise", start, self.noise_dtype, required=False)
        return kernel and (
            lambda dtype: kernel(start, factor, self.shape, kind, self.noise_dtype, dtype, self.origin, **options)
        )

    def delta(self, factor: Tensor, start: Tensor, dtype: torch.dtype) -> Tensor | None:
        """Return ΔŴ from the spread or its source if a kernel computes it, else None."""
        kernel = self.kernel(start, factor, softplus=self.softplus)
        return None if kernel is None else kernel(dtype)

    def gradient(
        self, grad: Tensor, start: Tensor, source: Tensor | None, size: torch.Size, noise: Tensor | None = None
    ) -> Tensor:
        """Return the gradient of the spread, or of its source, of shape `size`.

        Args:
            grad: The gradient of ΔŴ.
            start: Starting points of the noise, or seeds if `origin` is set.
            source: The tensor whose softplus is the spread; None to differentiate with respect to the spread.
            size: The shape of the spread or the source.
            noise: The noise if it was kept; None to draw it again.
        """
        draws_again = noise is None and not torch.is_grad_enabled()
        kernel = self.kernel(start, grad, slope=source) if draws_again else None
        if kernel is not None:
            product = kernel(self.noise_dtype)
        else:
            product = grad.to(self.noise_dtype) * (self.noise(start) if noise is None else noise)
            product = product if source is None else product * source.sigmoid()
        return product if product.shape == size else product.sum_to_size(size)

    def noise(self, start: Tensor) -> Tensor:
        """Return the noise before it is scaled by the spread."""
        at = start if self.origin is None else self.origin.start(start)
        return self.distribution.noise(Stream(at, self.shape, self.noise_dtype))


class _ReplayedNoise(torch.autograd.Function):
    """spread ∘ noise. It keeps the starting points of the streams for backward, and draws the noise again there.

    On a CPU it keeps the noise itself: drawing it there costs as much as a matrix product.
    """

    @staticmethod
    def forward(ctx: Any, spread: Tensor, start: Tensor, scaled: ScaledNoise, dtype: torch.dtype) -> Tensor:
        ctx.scaled, ctx.size = scaled, spread.shape
        fused = scaled.delta(spread, start, dtype)
        if fused is not None:
            ctx.save_for_backward(start, None)
            return fused
        noise = scaled.noise(start)
        ctx.save_for_backward(start, noise if start.device.type == "cpu" else None)
        return (spread * noise).to(dtype)

    @staticmethod
    @one_at_a_time
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        start, noise = ctx.saved_tensors
        return ctx.scaled.gradient(grads[0], start, None, ctx.size, noise), None, None, None


class _SoftplusNoise(torch.autograd.Function):
    """softplus(source) ∘ noise. A kernel computes each direction in one pass and never stores the spread."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, start: Tensor, scaled: ScaledNoise, dtype: torch.dtype) -> Tensor:
        ctx.scaled = scaled
        ctx.save_for_backward(source, start)
        fused = scaled.delta(source, start, dtype)
        return (F.softplus(source) * scaled.noise(start)).to(dtype) if fused is None else fused

    @staticmethod
    @one_at_a_time
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        source, start = ctx.saved_tensors
        return ctx.scaled.gradient(grads[0], start, source, source.shape), None, None, None


def is_spread_fused(source: Tensor | None, shape: torch.Size) -> bool:
    """Return True if the spread will be computed together with the noise, so that it need not be computed before.

    A kernel does that, and so does a compiled graph, where ΔŴ is one node.
    """
    if source is None or source.shape != shape or source.dtype == torch.float64:
        return False
    if is_transformed():
        return is_only_compiling()
    return chosen("scaled_noise", source, source.dtype, required=False) is not None


def sample(scaled: ScaledNoise, factor: Tensor, start: Tensor, dtype: torch.dtype) -> Tensor:
    """Return ΔŴ in `dtype` for each starting point, or for each seed if `scaled.origin` is set.

    Args:
        scaled: The noise, and how it is multiplied by the factor.
        factor: The spread, or its source if `scaled.softplus`.
        start: Starting points of the noise, or seeds if `scaled.origin` is set.
        dtype: The dtype of ΔŴ.
    """
    kind = scaled.kind
    if kind is not None and is_only_compiling():
        from .opaque import delta

        return delta(scaled, kind, factor, start, dtype)
    if scaled.softplus:
        return _SoftplusNoise.apply(factor, start, scaled, dtype)  # pyright: ignore[reportReturnType]
    if factor.requires_grad and not is_transformed():
        return _ReplayedNoise.apply(factor, start, scaled, dtype)  # pyright: ignore[reportReturnType]
    fused = None if is_transformed() else scaled.delta(factor, start, dtype)
    return (factor * scaled.noise(start)).to(dtype) if fused is None else fused
