"""The product of flipout with its perturbation in FP8: x W̄ᵀ + r ∘ (Q(s ∘ x) Q(ΔŴ)ᵀ).

The product with the mean keeps its precision. Q scales a tensor so that its largest entry is the largest FP8 number,
and rounds. Rounding is odd, Q(−x) = −Q(x), so the flipped perturbation keeps its mean of zero. The backward pass also
rounds r ∘ dy.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._batched_gradients import one_at_a_time
from .._perturbation import Signs
from ..backend import ADA, capability, chosen, without_autocast
from ..draws.bits import is_transformed
from ..errors import InvalidArgument, Unsupported
from ..ops.base import flip, refuse_double_backward
from ..ops.linear import Linear
from .spec import Spec

FP8 = torch.float8_e4m3fn
_LARGEST = torch.finfo(FP8).max
_ALIGNED = 16  # torch multiplies FP8 matrices whose sizes are multiples of this


def check_dtype(dtype: torch.dtype | None) -> None:
    """Refuse a perturbation dtype other than FP8."""
    if dtype not in (None, FP8):
        raise InvalidArgument(
            f"Flipout(perturbation_dtype={dtype}): expected {FP8}, or None for the dtype of the layer."
        )


def refuse_transforms() -> None:
    """Refuse to run inside torch.func, torch.compile or forward-mode differentiation."""
    if is_transformed():
        raise Unsupported(
            f"Flipout(perturbation_dtype={FP8}) inside torch.func, torch.compile or forward-mode differentiation: its "
            "product has a hand-written backward pass, which they cannot trace. Use torch.autograd and "
            "flipout.capture, or leave perturbation_dtype out: flipout.using(model, scheme='flipout')."
        )


class Quantised(NamedTuple):
    """An FP8 matrix, its contiguous transpose (each None if not wanted), and the scale to multiply them with."""

    matrix: Tensor | None
    transpose: Tensor | None
    scale: Tensor


class RowSigns(NamedTuple):
    """The signs of a matrix's rows, which run over dimension `over` of the Parameter."""

    signs: Signs
    seed: Tensor
    over: int


def scale_of(x: Tensor) -> Tensor:
    """Return the FP8 scale of x, from its finite entries: an entry that is not finite must spoil only its own row."""
    kernel = chosen("largest", x, required=False)
    if kernel is not None:
        largest = kernel(x)
    else:
        largest = torch.linalg.vector_norm(torch.where(x.isfinite(), x, 0), torch.inf)
        largest = largest.to(torch.promote_types(x.dtype, torch.float32))
    return (largest / _LARGEST).clamp_min(torch.finfo(largest.dtype).tiny)


def quantise(
    x: Tensor, scale: Tensor, row_signs: RowSigns | None, needs_matrix: bool, needs_transpose: bool
) -> Quantised:
    """Return Q of the matrix x, after flipping its rows by their signs if there are any."""
    kernel = chosen("quantise", x, None if row_signs is None else row_signs.signs, required=False)
    if kernel is not None:
        matrix, transpose = kernel(x, scale, row_signs, needs_matrix, needs_transpose)
        return Quantised(matrix, transpose, scale)
    if row_signs is not None:
        (signs,) = row_signs.signs.over([(row_signs.over, x.shape[1])], row_signs.seed, x.dtype)
        x = flip(x, signs, -1)
    rounded = (x.to(scale.dtype) * scale.reciprocal()).to(FP8)
    return Quantised(rounded if needs_matrix else None, rounded.T.contiguous() if needs_transpose else None, scale)


def multiply_fp8(
    left: Tensor | None, right: Tensor | None, scales: tuple[Tensor, Tensor], dtype: torch.dtype
) -> Tensor:
    """Return left · rightᵀ of FP8 matrices, times both scales."""
    assert left is not None
    assert right is not None
    product_dtype = torch.bfloat16 if dtype == torch.bfloat16 else torch.promote_types(dtype, torch.float32)
    is_aligned = not any(size % _ALIGNED for size in (*left.shape, *right.shape))
    if is_aligned and product_dtype != torch.float64 and capability(left.device) >= ADA:
        # The rounding error of fast accumulation is far below that of FP8 itself.
        return torch._scaled_mm(left, right.T, *scales, out_dtype=product_dtype, use_fast_accum=True).to(dtype)
    scale_dtype = torch.promote_types(product_dtype, torch.float32)
    product = (left.to(product_dtype) @ right.to(product_dtype).T).to(scale_dtype)
    return (product * (scales[0] * scales[1])).to(dtype)


def serves_fp8(spec: Spec) -> bool:
    """Return True if the product can be computed in FP8: a matrix with one ΔŴ for the whole batch."""
    return isinstance(spec.op, Linear) and spec.delta_op is spec.op


class QuantisedProduct(torch.autograd.Function):
    """The product in FP8. It keeps x, W̄ and Q(ΔŴ) for backward."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mean: Tensor, bias: Tensor | None, delta: Tensor, seed: Tensor, spec: Spec
    ) -> Tensor:
        op = spec.op
        rows = x.reshape(-1, op.in_features)
        inputs = quantise(rows, scale_of(rows), RowSigns(spec.signs, seed, op.s_dim), True, False)
        noise = quantise(delta, scale_of(delta), None, True, True)
        ctx.spec, ctx.dtype = spec, delta.dtype
        ctx.save_for_backward(x, mean, noise.transpose, noise.scale, inputs.scale, seed)
        p = multiply_fp8(inputs.matrix, noise.matrix, (inputs.scale, noise.scale), x.dtype)
        y = op.apply(x, mean, bias)
        return _add_flipped(y, p.view(y.shape), spec, seed, op.r_dim)

    @staticmethod
    @one_at_a_time
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        refuse_double_backward("The product of flipout in FP8", "Leave perturbation_dtype out")
        with without_autocast(grads[0].device.type):
            return QuantisedProduct._backward(ctx, *grads)

    @staticmethod
    def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, noise_transpose, noise_scale, x_scale, seed = ctx.saved_tensors
        spec, op = ctx.spec, ctx.spec.op
        need_x, need_mean, need_bias, need_delta, *_ = ctx.needs_input_grad
        dx, dmean = op.gradients(grad, x, mean, (need_x, need_mean))
        dbias = spec.bias_gradient(grad) if need_bias else None
        if not (need_x or need_delta):
            return None, dmean, dbias, None, None, None
        rows, row_signs = grad.reshape(-1, op.out_features), RowSigns(spec.signs, seed, op.r_dim)
        grads = quantise(rows, scale_of(rows), row_signs, bool(need_x), bool(need_delta))
        ddelta = None
        if grads.matrix is not None:
            dp = multiply_fp8(grads.matrix, noise_transpose, (grads.scale, noise_scale), x.dtype)
            dx = _add_flipped(dx, dp.view(x.shape), spec, seed, op.s_dim)
        if grads.transpose is not None:
            row_signs = RowSigns(spec.signs, seed, op.s_dim)
            inputs = quantise(x.reshape(-1, op.in_features), x_scale, row_signs, False, True)
            ddelta = multiply_fp8(grads.transpose, inputs.transpose, (grads.scale, inputs.scale), ctx.dtype)
        return dx, dmean, dbias, ddelta, None, None


def _add_flipped(y: Tensor, p: Tensor, spec: Spec, seed: Tensor, over: int) -> Tensor:
    """Return y plus p, flipped over its last dimension."""
    kernels = spec.kernels((y, -1))
    if kernels is not None:
        return kernels[1](y, p, spec.signs, seed, over, -1)
    (signs,) = spec.signs.over([(over, y.shape[-1])], seed, y.dtype)
    return y + flip(p, signs, -1)
