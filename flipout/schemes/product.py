"""The product of flipout with its backward pass."""

from typing import Any

import torch
from torch import Tensor

from .._batched_gradients import one_at_a_time
from ..backend import chosen, is_autocast_on, without_autocast
from ..distributions.scaled import ScaledNoise, sample
from .spec import Spec


class FlippedProduct(torch.autograd.Function):
    """The definition, keeping x, W̄ and ΔŴ for backward; r and s are made again there.

    Where it is told how the noise is `scaled`, it is given the spread, or its source, in place of ΔŴ.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        mean: Tensor,
        bias: Tensor | None,
        given: Tensor,
        seed: Tensor,
        spec: Spec,
        start: Tensor | None = None,
        scaled: ScaledNoise | None = None,
    ) -> Tensor:
        op, delta_op = spec.op, spec.delta_op
        formed = spec.forms(x)
        kernels = None if formed else spec.kernels((x, op.in_dim))
        twice = None if kernels is None else chosen("multiply_twice", x, spec.signs, delta_op, required=False)
        # The product with the mean comes first: a device is at it while the noise is only prepared.
        y = None if kernels is None or twice is not None else op.apply(x, mean, bias)
        delta, source = given, None
        if scaled is not None:
            assert start is not None
            source = given if scaled.softplus else None
            delta = scaled.delta(given, start, x.dtype)
            assert delta is not None  # a kernel was found
        ctx.spec, ctx.scaled = spec, scaled
        ctx.save_for_backward(x, mean, delta, seed, None if source is None else start, source)
        if kernels is None:
            return (spec.formed if formed else spec.by_pieces)(x, mean, bias, delta, seed)
        flip_drawn, add_flipped, _ = kernels
        flipped = flip_drawn(x, spec.signs, seed, op.s_dim, op.in_dim)
        if twice is not None:
            return twice(x, flipped, mean, delta, bias, spec.signs, seed, op.r_dim)
        assert y is not None
        return add_flipped(y, delta_op.apply(flipped, delta), spec.signs, seed, op.r_dim, op.out_dim)

    @staticmethod
    @one_at_a_time
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        kind = grad.device.type
        if not is_autocast_on(kind):
            return FlippedProduct._backward(ctx, grad)
        with without_autocast(kind):
            return FlippedProduct._backward(ctx, grad)

    @staticmethod
    def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, delta, seed, start, source = ctx.saved_tensors
        spec, scaled = ctx.spec, ctx.scaled
        need_x, need_mean, need_bias, need_given, *_ = ctx.needs_input_grad
        if source is not None and torch.is_grad_enabled():
            delta = sample(scaled, source, start, delta.dtype)
        needs = (need_x, need_mean, need_bias, need_given)
        dx, dmean, dbias, ddelta = spec.gradients(grad, x, mean, delta, seed, needs)
        dgiven = ddelta
        if source is not None and ddelta is not None:
            dgiven = scaled.gradient(ddelta, start, source, source.shape)
        return dx, dmean, dbias, dgiven, None, None, None, None
