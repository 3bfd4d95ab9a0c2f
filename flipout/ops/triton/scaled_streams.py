"""Streams of noise times their spread, or the spread's softplus, in one launch. The noise alone is never written."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ...backend import register_kernel
from ...draws.noise import Origin
from .base import fits
from .paired_noise import pair_launch
from .sign_noise import sign_launch


def scaled_noise(
    start: Tensor,
    factor: Tensor,
    shape: Sequence[int],
    kind: str,
    rounded: torch.dtype,
    dtype: torch.dtype,
    origin: Origin | None = None,
    softplus: bool = False,
    slope: Tensor | None = None,
) -> Tensor:
    """Return factor ∘ noise, a tensor of `shape` for each starting point.

    Args:
        start: The starting points of the streams. With an `origin`, a single seed.
        factor: One number, or a tensor of the noise's shape or of the result's shape.
        shape: The shape of the noise of one stream.
        kind: "normal" or "sign".
        rounded: The dtype of the streams, to which the noise is rounded before it is scaled.
        dtype: The dtype of the result.
        origin: How the start of the one stream is made of the seed.
        softplus: Multiply by softplus(factor) instead.
        slope: Multiply by the derivative of softplus at `slope`, of the noise's shape, too. Normal noise only.
    """
    out = start.new_empty((*start.shape, *shape), dtype=dtype)
    if not out.numel():
        return out
    start, factors = start.contiguous(), factor.contiguous()
    starts, size = start.numel(), math.prod(shape)
    layout = 1 if factor.dim() == 0 else 2 if factor.numel() == size else 3
    seeded, words = origin is not None, (0, 0) if origin is None else origin.words()
    if kind == "normal":
        slope = None if slope is None else slope.contiguous()
        launch = pair_launch(starts, size, 0, dtype, rounded, layout, softplus, seeded)
        launch((out, start, factors, slope), *words)
    else:
        sign_launch(starts, size, 2, dtype, rounded, layout, seeded)((out, start, factors), *words)
    return out


register_kernel("scaled_noise", scaled_noise, fits)
