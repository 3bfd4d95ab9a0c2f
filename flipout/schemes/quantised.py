"""The product of flipout with its perturbation in FP8: x W̄ᵀ + r ∘ (Q(s ∘ x) Q(ΔŴ)ᵀ), the mean as exact as without.

Q scales a tensor so that its largest number is the largest of FP8, and rounds. Rounding is odd, Q(−x) = −Q(x), so what
signs flip keeps its mean of zero. The backward pass rounds r ∘ dy as well.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._batched_gradients import one_at_a_time
from ..backend import ADA, capability, chosen, without_autocast
from ..draws.bits import is_transformed
from ..errors import InvalidArgument, Unsupported
from ..ops.base import flip, refuse_double_backward
from ..ops.linear import Linear
from ..perturbation import Signs
from .spec import Spec

FP8 = torch.float8_e4m3fn
_LARGEST = torch.finfo(FP8).max
_ALIGNED = 16


def check_dtype(dtype: torch.dtype | None) -> None:
    if dtype not in (None, FP8):
        raise InvalidArgument(
            f"Flipout(perturbation_dtype={dtype}): expected {FP8}, or None for the dtype of all the rest."
        )


def refuse_transforms() -> None:
    if is_transformed():
        raise Unsupported(
            f"Flipout(perturbation_dtype={FP8}) inside of torch.func, torch.compile or forward-mode differentiation: "
            "its product has its backward pass written out, which they cannot see through. Use torch.autograd and "
            "flipout.capture, or leave perturbation_dtype out: flipout.using(model, scheme='flipout')."
        )


class Quantised(NamedTuple):
    """A matrix in FP8 and what it is to be multiplied with; its transpose in memory of its own. Either may be left."""

    straight: Tensor | None
    turned: Tensor | None
    scale: Tensor


class RowSigns(NamedTuple):
    """Signs over the Parameter's dimension `over`."""

    signs: Signs
    seed: Tensor
    over: int


def scale_of(x: Tensor) -> Tensor:
    """What is not finite spoils its own row, and not the scale of all."""
    kernel = chosen("largest", x, required=False)
    if kernel is not None:
        largest = kernel(x)
    else:
        largest = torch.linalg.vector_norm(torch.where(x.isfinite(), x, 0), torch.inf)
        largest = largest.to(torch.promote_types(x.dtype, torch.float32))
    return (largest / _LARGEST).clamp_min(torch.finfo(largest.dtype).tiny)


def quantise(x: Tensor, scale: Tensor, whose: RowSigns | None, straight: bool, turned: bool) -> Quantised:
    """Q of the matrix x, flipped where its rows have signs."""
    kernel = chosen("quantise", x, None if whose is None else whose.signs, required=False)
    if kernel is not None:
        made = kernel(x, scale, whose, straight, turned)
        return Quantised(made[0], made[1], scale)
    if whose is not None:
        (signs,) = whose.signs.over([(whose.over, x.shape[1])], whose.seed, x.dtype)
        x = flip(x, signs, -1)
    rounded = (x.to(scale.dtype) * scale.reciprocal()).to(FP8)
    return Quantised(rounded if straight else None, rounded.T.contiguous() if turned else None, scale)


def multiply(left: Tensor | None, right: Tensor | None, scales: tuple[Tensor, Tensor], dtype: torch.dtype) -> Tensor:
    """left · rightᵀ of FP8 matrices, both with the summands last, times their scales."""
    assert left is not None
    assert right is not None
    made = torch.bfloat16 if dtype == torch.bfloat16 else torch.promote_types(dtype, torch.float32)
    aligned = not any(size % _ALIGNED for size in (*left.shape, *right.shape))
    if aligned and made != torch.float64 and capability(left.device) >= ADA:
        # What fast sums round is far below what FP8 itself has rounded.
        return torch._scaled_mm(left, right.T, *scales, out_dtype=made, use_fast_accum=True).to(dtype)
    wide = torch.promote_types(made, torch.float32)
    return ((left.to(made) @ right.to(made).T).to(wide) * (scales[0] * scales[1])).to(dtype)


def serves(spec: Spec) -> bool:
    return isinstance(spec.op, Linear) and spec.delta_op is spec.op


class QuantisedProduct(torch.autograd.Function):
    """Keeps x, W̄ and Q(ΔŴ) for backward: half of what the product keeps without."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mean: Tensor, bias: Tensor | None, delta: Tensor, seed: Tensor, spec: Spec
    ) -> Tensor:
        op = spec.op
        rows = x.reshape(-1, op.in_features)
        own = quantise(rows, scale_of(rows), RowSigns(spec.signs, seed, op.s_dim), True, False)
        noise = quantise(delta, scale_of(delta), None, True, True)
        ctx.spec, ctx.dtype = spec, delta.dtype
        ctx.save_for_backward(x, mean, noise.turned, noise.scale, own.scale, seed)
        p = multiply(own.straight, noise.straight, (own.scale, noise.scale), x.dtype)
        y = op.apply(x, mean, bias)
        return _added(y, p.view(y.shape), spec, seed, op.r_dim)

    @staticmethod
    @one_at_a_time
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        refuse_double_backward("The product of flipout in FP8", "Leave perturbation_dtype out")
        with without_autocast(grads[0].device.type):
            return QuantisedProduct._backward(ctx, *grads)

    @staticmethod
    def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, turned, scale, x_scale, seed = ctx.saved_tensors
        spec, op = ctx.spec, ctx.spec.op
        need_x, need_mean, need_bias, need_delta, *_ = ctx.needs_input_grad
        dx, dmean = op.gradients(grad, x, mean, (need_x, need_mean))
        dbias = spec.bias_gradient(grad) if need_bias else None
        if not (need_x or need_delta):
            return None, dmean, dbias, None, None, None
        rows, whose = grad.reshape(-1, op.out_features), RowSigns(spec.signs, seed, op.r_dim)
        own = quantise(rows, scale_of(rows), whose, bool(need_x), bool(need_delta))
        ddelta = None
        if own.straight is not None:
            dp = multiply(own.straight, turned, (own.scale, scale), x.dtype)
            dx = _added(dx, dp.view(x.shape), spec, seed, op.s_dim)
        if own.turned is not None:
            given = quantise(x.reshape(-1, op.in_features), x_scale, RowSigns(spec.signs, seed, op.s_dim), False, True)
            ddelta = multiply(own.turned, given.turned, (own.scale, given.scale), ctx.dtype)
        return dx, dmean, dbias, ddelta, None, None


def _added(y: Tensor, p: Tensor, spec: Spec, seed: Tensor, over: int) -> Tensor:
    kernels = spec.kernels((y, -1))
    if kernels is not None:
        return kernels[1](y, p, spec.signs, seed, over, -1)
    (signs,) = spec.signs.over([(over, y.shape[-1])], seed, y.dtype)
    return y + flip(p, signs, -1)
