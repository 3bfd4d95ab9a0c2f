"""The paper: one ΔŴ for `group` examples, flipped for each of them by a rank-one sign matrix of its own."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..distributions.base import Distribution
from ..errors import AsymmetricDistribution, InvalidArgument
from ..ops.base import Op, add_flipped, flip
from ..perturbation import Perturbation, Signs
from .base import Scheme


class _Flipout(torch.autograd.Function):
    """y = apply(x, W̄) + r ∘ apply(s ∘ x, ΔŴ), keeping x, W̄ and ΔŴ; r and s are made again in backward."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, mean: Tensor, bias: Tensor | None, delta: Tensor, keys: Tensor, spec: "_Spec") -> Tensor:
        return spec.forward(x, mean, bias, delta, keys)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        x, mean, _, delta, keys, ctx.spec = inputs
        ctx.save_for_backward(x, mean, delta, keys)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, mean, delta, keys = ctx.saved_tensors
        op, lifted = ctx.spec.op, ctx.spec.lifted
        need_x, need_mean, need_bias, need_delta, *_ = ctx.needs_input_grad
        dx, dmean = op.gradients(grad, x, mean, (need_x, need_mean))
        ddelta = None
        if need_x or need_delta:
            s = ctx.spec.s(keys, x.dtype)
            flipped = flip(grad, ctx.spec.r(keys, grad.dtype), op.out_dim)
            dflipped, ddelta = lifted.gradients(flipped, flip(x, s, op.in_dim), delta, (need_x, need_delta))
            if need_x:
                dx = add_flipped(dx, dflipped, s, op.in_dim)
        return dx, dmean, op.bias_gradient(grad) if need_bias else None, ddelta, None, None


@dataclass(frozen=True)
class _Spec:
    """The op, its form for ΔŴ (batched where there are several bases), and whose signs."""

    op: Op
    lifted: Op
    signs: Signs

    def r(self, keys: Tensor, dtype: torch.dtype) -> Tensor:
        return self.signs.over(self.op.r_dim, self.op.out_features, keys, dtype)

    def s(self, keys: Tensor, dtype: torch.dtype) -> Tensor:
        return self.signs.over(self.op.s_dim, self.op.in_features, keys, dtype)

    def forward(self, x: Tensor, mean: Tensor, bias: Tensor | None, delta: Tensor, keys: Tensor) -> Tensor:
        y = self.op.apply(x, mean, bias)
        p = self.lifted.apply(flip(x, self.s(keys, x.dtype), self.op.in_dim), delta)
        return add_flipped(y, p, self.r(keys, p.dtype), self.op.out_dim)


@dataclass(frozen=True)
class Flipout(Scheme):
    """`group` examples share one ΔŴ (None: all of them). `reuse_signs` keeps the signs over mini-batches."""

    group: int | None = None
    reuse_signs: bool = False

    name = "flipout"

    def __post_init__(self) -> None:
        if self.group is not None and (not isinstance(self.group, int) or self.group < 1):
            raise InvalidArgument(f"Flipout(group={self.group!r}): expected a number of examples ≥ 1, or None for all.")

    def check(self, distribution: Distribution, what: str) -> None:
        if not distribution.symmetric:
            raise AsymmetricDistribution(
                f"{what}: flipout can never serve {distribution}: flipping signs keeps only a distribution that is "
                "symmetric about 0. Use DropConnect(p=0.5) or Gaussian noise, or scheme='shared' or 'independent'."
            )

    def product(self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation) -> Tensor:
        first, count, group = self._bases(p)
        keys = p.sign_keys(self.reuse_signs)
        if count == 1:
            return self._combine(_Spec(op, op, p.signs), x, bias, p.mean, p.delta(first), keys)
        # Whole groups only: pad the rows of the first and of the last one.
        rows = p.draw.rows
        before, after = (p.first - first * group) * rows, ((first + count) * group - p.first - p.examples) * rows
        whole = p.seen_by(first * group, count * group)
        spec = _Spec(op, op.batched(count), whole.signs)
        padded = F.pad(x, (*[0, 0] * (x.dim() - 1), before, after)) if before or after else x
        y = self._combine(spec, padded, bias, p.mean, p.deltas(first, count), keys)
        return y.narrow(0, before, x.shape[0])

    def vector(self, p: Perturbation) -> Tensor:
        keys = p.sign_keys(self.reuse_signs)
        r = p.signs.over(0, p.parameter.numel(), keys, p.dtype).view(p.examples, *p.parameter.shape)
        return p.mean + self._delta_of_each(p) * r

    def row_noise(self, p: Perturbation, row: Tensor, example: Tensor) -> Tensor:
        first, count, group = self._bases(p)
        keys, width = p.sign_keys(self.reuse_signs), p.parameter.shape[1]
        base = (example + p.first) // group if group else torch.zeros_like(example)
        r = p.signs.at(0, example, row, keys, p.dtype).unsqueeze(-1)
        s = p.signs.over(1, width, keys, p.dtype)[example]
        return p.delta_rows(row, base, first, count) * r * s

    def weights(self, p: Perturbation, groups: int | None) -> Tensor:
        if groups is None:
            return self.vector(p)
        keys, (d0, d1) = p.sign_keys(self.reuse_signs), p.parameter.shape[:2]
        over0 = p.signs.over(0, d0, keys, p.dtype).view(p.examples, groups, d0 // groups, 1)
        over1 = p.signs.over(1, groups * d1, keys, p.dtype).view(p.examples, groups, 1, d1)
        flips = (over0 * over1).view(p.examples, d0, d1, *[1] * (p.parameter.dim() - 2))
        return p.mean + self._delta_of_each(p) * flips

    def _combine(self, spec: _Spec, x: Tensor, bias: Tensor | None, mean: Tensor, delta: Tensor, keys: Tensor):
        if torch.compiler.is_compiling():
            return spec.forward(x, mean, bias, delta, keys)
        return _Flipout.apply(x, mean, bias, delta, keys, spec)

    def _bases(self, p: Perturbation) -> tuple[int, int, int]:
        """The first base of these examples, the number of bases, and the group size (0 for all)."""
        group = p.draw.group or self.group or 0
        if not group or not p.examples:
            return 0, 1, 0
        first = p.first // group
        return first, (p.first + p.examples - 1) // group - first + 1, group

    def _delta_of_each(self, p: Perturbation) -> Tensor:
        """(examples or 1, *shape)"""
        first, count, group = self._bases(p)
        deltas = p.deltas(first, count)
        if count == 1:
            return deltas
        index = torch.arange(p.first, p.first + p.examples, device=deltas.device) // group - first
        return deltas[index]
