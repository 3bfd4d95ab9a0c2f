"""The paper: one ΔŴ for `group` examples, flipped for each of them by a rank-one sign matrix of its own."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..backend import chosen
from ..distributions.base import Distribution
from ..draw import runs
from ..errors import AsymmetricDistribution, InvalidArgument
from ..ops.base import Flipped, Op, apply_once, flip, put_flipped
from ..perturbation import Perturbation, Signs
from ..random import transformed
from .base import Product, Scheme, added, at_once, wide


@dataclass(frozen=True)
class _Spec:
    """The op, its form for ΔŴ (batched where there are several bases), and whose signs."""

    op: Op
    lifted: Op
    signs: Signs

    @property
    def dims(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (self.op.r_dim, self.op.out_features), (self.op.s_dim, self.op.in_features)

    def forward(self, x: Tensor, mean: Tensor, bias: Tensor | None, delta: Tensor, keys: Tensor) -> Tensor:
        """The definition: apply(x, W̄) + r ∘ apply(s ∘ x, ΔŴ)."""
        return self.flipped(mean, bias, delta, keys, x.dtype)(x)

    def flipped(self, mean: Tensor, bias: Tensor | None, delta: Tensor, keys: Tensor, dtype: torch.dtype) -> Flipped:
        r, s = self.signs.over(self.dims, keys, dtype)
        return Flipped(self.op, self.lifted, mean, delta, r, s, bias)

    def forms(self, x: Tensor) -> bool:
        """Whether many rows of x share a weight, so that it is formed for less than a second product. Half precision
        would round ΔŴ away beside W̄."""
        least, count = self.op.formed_from, self.signs.count
        if least is None or not x.numel() or x.device.type != "cpu" or x.itemsize < 4:
            return False
        return x.numel() >= least * count * self.op.in_features and x[0].is_contiguous()

    def formed(self, x: Tensor, mean: Tensor, bias: Tensor | None, delta: Tensor, keys: Tensor) -> Tensor:
        """The same by batched(x, W̄ + ΔŴ ∘ r sᵀ): a few examples' weights at a time, which stay in a CPU's cache."""
        count, deltas = self.signs.count, delta.view(-1, 1, *mean.shape)
        group, rows, some = count // len(deltas), x.shape[0] // count, max(_CACHED // 4 // max(mean.numel(), 1), 1)
        r, s = self.signs.over(self.dims, keys, x.dtype)
        r, s = r.unsqueeze(-1), s.unsqueeze(-2)
        y = x.new_empty(*x.shape[:-1], self.op.out_features)
        room = mean.new_empty(min(some, count), *mean.shape)
        for first, length in runs(0, count, some, group):
            own, bases = slice(first, first + length), max(length // group, 1)
            weight, of = room[:length], (bases, length // bases)
            torch.mul(deltas[first // group :][:bases], s[own].unflatten(0, of), out=weight.unflatten(0, of))
            torch.addcmul(mean, weight, r[own], out=weight)
            piece = slice(first * rows, (first + length) * rows)
            self.op.batched(length).put(y[piece], x[piece], weight)
        return y if bias is None else y.add_(bias)

    def pieces(self, x: Tensor, keys: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Rows with their r and s: on a CPU a few examples at a time, so that what is flipped stays in its cache."""
        count = self.signs.count
        rows = x.shape[0] // count if count else 1
        some = count
        if x.device.type == "cpu" and self.lifted is self.op:
            some = max(_CACHED // max(rows * x[:1].numel(), 1), 1)
        masks = not torch.is_grad_enabled()  # bits cannot be differentiated, as a double backward would
        for i, (r, s) in enumerate(self.signs.runs(self.dims, keys, x.dtype, some, masks)):
            yield slice(i * some * rows, (i + 1) * some * rows), r, s


_CACHED = 2**20  # numbers


class _Flipout(torch.autograd.Function):
    """The definition, keeping x, W̄ and ΔŴ for backward; r and s are made again there."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mean: Tensor, bias: Tensor | None, delta: Tensor, keys: Tensor, spec: _Spec
    ) -> Tensor:
        ctx.spec = spec
        ctx.save_for_backward(x, mean, delta, keys)
        if spec.forms(x):
            return spec.formed(x, mean, bias, delta, keys)
        op, lifted = spec.op, spec.lifted
        y = torch.empty(0)
        for rows, r, s in spec.pieces(x, keys):
            p = lifted.apply(flip(x[rows], s, op.in_dim), delta)
            some = apply_once(op, x[rows], mean, bias)
            if rows.start == 0:
                own = p if some.stride(0) == 0 else some
                whole = own is some and len(some) == len(x)
                y = some if whole else own.new_empty_strided((len(x), *own.shape[1:]), own.stride())
            put_flipped(y[rows], some, p, r, op.out_dim)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        kind = grad.device.type
        if not torch.is_autocast_enabled(kind):
            return _Flipout._backward(ctx, grad)
        with torch.autocast(kind, enabled=False):
            return _Flipout._backward(ctx, grad)

    @staticmethod
    def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, delta, keys = ctx.saved_tensors
        spec, op, lifted = ctx.spec, ctx.spec.op, ctx.spec.lifted
        need_x, need_mean, need_bias, need_delta, *_ = ctx.needs_input_grad
        dbias = op.bias_gradient(grad) if need_bias else None
        if not (need_x or need_delta):
            return None, op.gradients(grad, x, mean, (False, need_mean))[1], dbias, None, None, None
        dx = torch.empty_like(x) if need_x else None
        dmean = ddelta = None
        for rows, r, s in spec.pieces(x, keys):
            some, dm = op.gradients(grad[rows], x[rows], mean, (need_x, need_mean))
            flipped = flip(grad[rows], r, op.out_dim)
            dp, dd = lifted.gradients(flipped, flip(x[rows], s, op.in_dim), delta, (need_x, need_delta))
            if dx is not None:
                put_flipped(dx[rows], some, dp, s, op.in_dim)
            dmean, ddelta = _sum(dmean, dm), _sum(ddelta, dd)
        dmean, ddelta = (None if sum_ is None else sum_.to(x.dtype) for sum_ in (dmean, ddelta))
        return dx, dmean, dbias, ddelta, None, None


def _sum(total: Tensor | None, piece: Tensor | None) -> Tensor | None:
    """A running sum that half precision does not round at every piece."""
    if total is None or piece is None:
        return piece
    return total.to(torch.promote_types(total.dtype, torch.float32)) + piece


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
                "symmetric about 0. Use DropConnect(p=0.5) or Gaussian noise, or scheme='shared' or 'independent'. (A "
                "distribution of your own that is symmetric says so: symmetric = True in its class.)"
            )

    def product(self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation) -> Tensor:
        made = None if torch.is_grad_enabled() or transformed() else self._by_kernels(op, x, bias, p)
        if made is not None:
            return made
        spec, delta, whole = self._spread_over(op, p)
        keys = p.sign_keys(self.reuse_signs)
        return whole(x, lambda padded: self._combine(spec, padded, bias, p.mean, delta, keys))

    def bound(self, op: Op, bias: Tensor | None, p: Perturbation) -> Product:
        spec, delta, whole = self._spread_over(op, p)
        flipped = spec.flipped(p.mean, bias, delta, p.sign_keys(self.reuse_signs), p.dtype)
        return flipped if spec.lifted is op else lambda x: whole(x, flipped)

    def vector(self, p: Perturbation) -> Tensor:
        keys = p.sign_keys(self.reuse_signs)
        (r,) = p.signs.over([(0, p.parameter.numel())], keys, p.dtype)
        return p.mean + self._delta_of_each(p) * r.reshape(p.examples, *p.parameter.shape)

    def add_vector(self, y: Tensor, p: Perturbation, dim: int) -> Tensor:
        fixed = torch.is_grad_enabled() or transformed()
        kernel = None if fixed else chosen("add_vectors", y, p.signs, dim, required=False)
        if kernel is None:
            return added(y, self.vector(p), dim)
        first, count, group = self._bases(p)
        share, skip = group or p.examples, p.first - first * group if group else 0
        return kernel(y, p.mean, p.deltas(first, count), p.signs, p.sign_keys(self.reuse_signs), share, skip)

    def row_noise(self, p: Perturbation, row: Tensor, example: Tensor) -> Tensor:
        first, count, group = self._bases(p)
        keys, width = p.sign_keys(self.reuse_signs), p.parameter.shape[1]
        base = (example + p.first) // group if group else torch.zeros_like(example)
        r = p.signs.at(0, example, row, keys, p.dtype).unsqueeze(-1)
        (s,) = p.signs.over([(1, width)], keys, p.dtype)
        return p.delta_rows(row, base, first, count) * r * s[example]

    def weights(self, p: Perturbation, groups: int | None) -> Tensor:
        if groups is None:
            return self.vector(p)
        keys, (d0, d1) = p.sign_keys(self.reuse_signs), p.parameter.shape[:2]
        over0, over1 = p.signs.over([(0, d0), (1, groups * d1)], keys, p.dtype)
        over0, over1 = over0.unflatten(1, (groups, -1)).unsqueeze(-1), over1.unflatten(1, (groups, -1)).unsqueeze(2)
        flips = (over0 * over1).view(p.examples, d0, d1, *[1] * (p.parameter.dim() - 2))
        return p.mean + self._delta_of_each(p) * flips

    def weighted(self, p: Perturbation, groups: int | None, coefficients: Tensor) -> Tensor:
        """Σ over the bases of ΔŴ ∘ Rᵀ diag(F) S."""
        coefficients = wide(coefficients, p)
        if groups == 1 and p.parameter.dim() == 2:
            kernel, *about = self._kernel("weighted_groups", p.parameter, p, None, 1)
            if kernel is not None:
                dtype = torch.float16 if p.dtype.itemsize == 2 else p.dtype
                signs = p.signs.over(list(enumerate(p.parameter.shape)), p.sign_keys(self.reuse_signs), dtype)
                return kernel(*signs, coefficients, p.dtype, *about)
        total = torch.zeros_like(p.parameter, dtype=coefficients.dtype)
        group = self._bases(p)[2]
        shared, signs = group or p.examples, total.numel()
        if groups is not None:
            signs = total.shape[0] + groups * total.shape[1]
        room, base = at_once(total), max(total.numel() + shared * signs, 1)
        most = room // base * shared if base <= room else min(room // max(signs, 1), shared)
        for start, count in runs(p.first, p.examples, most, group):
            some = p.seen_by(start, count)
            first, bases, _ = self._bases(some)
            own = coefficients[start - p.first :][:count]
            if bases > 1:  # whole groups, the first and the last padded
                own = F.pad(own, (start - first * group, (first + bases) * group - start - count))
                some = p.seen_by(first * group, bases * group)
            total = total + (p.deltas(first, bases).to(total.dtype) * self._weighted_signs(some, groups, own)).sum(0)
        return total

    def _weighted_signs(self, p: Perturbation, groups: int | None, coefficients: Tensor) -> Tensor:
        """Rᵀ diag(F) S of each base, or Σ_n F_n r_n of a vector, to be multiplied with ΔŴ; every base has as many
        examples."""
        keys, bases, dtype = p.sign_keys(self.reuse_signs), self._bases(p)[1], coefficients.dtype
        if groups is None:
            (r,) = p.signs.over([(0, p.parameter.numel())], keys, dtype)
            made = torch.bmm(coefficients.view(bases, 1, -1), r.unflatten(0, (bases, -1)))
            return made.view(bases, *p.parameter.shape)
        d0, d1, *kernel = p.parameter.shape
        over0, over1 = p.signs.over([(0, d0), (1, groups * d1)], keys, dtype)
        over0, over1 = (
            signs.view(bases, -1, groups, signs.shape[1] // groups).transpose(1, 2)
            for signs in (over0 * coefficients.unsqueeze(1), over1)
        )
        return (over0.mT @ over1).view(bases, d0, d1, *[1] * len(kernel))

    def _by_kernels(self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation) -> Tensor | None:
        """The definition without gradients, signs and the noise of small groups made where they are used; None where
        kernels do not serve."""
        flip_drawn = chosen("flip_drawn", x, p.signs, op.in_dim, required=False)
        add_flipped = chosen("add_flipped", x, p.signs, op.out_dim, required=False)
        first, count, group = self._bases(p)
        if flip_drawn is None or add_flipped is None or not p.examples:
            return None
        keys = p.sign_keys(self.reuse_signs)
        kernel, *groups = self._kernel("put_grouped", x, p, op, p.draw.rows)
        if kernel is not None:
            y, flipped = op.apply(x, p.mean, bias), flip_drawn(x, p.signs, keys, op.s_dim)
            (r,) = p.signs.over([(op.r_dim, op.out_features)], keys, p.dtype)
            return kernel(y, flipped, r, *groups)
        if count > 1 and (p.first % group or p.examples % group):
            return None
        lifted, delta = (op, p.delta(first)) if count == 1 else (op.batched(count), p.deltas(first, count))
        product = lifted.apply(flip_drawn(x, p.signs, keys, op.s_dim), delta)
        return add_flipped(op.apply(x, p.mean, bias), product.contiguous(), p.signs, keys, op.r_dim)

    def _kernel(self, name: str, tensor: Tensor, p: Perturbation, op: Op | None, rows: int) -> tuple[Any, ...]:
        """A kernel for several bases, with what it wants to know of them: where their noise starts, its spread, rows of
        a group, and how many of these the first one lacks."""
        first, count, group = self._bases(p)
        if count == 1 or transformed():
            return (None,)
        kernel = chosen(name, tensor, p.dtype, op, p.parameter.shape, group * rows, required=False)
        starts = None if kernel is None else p.starts(first, count)
        return (None,) if starts is None else (kernel, starts, p.spread, group * rows, (p.first - first * group) * rows)

    def _spread_over(self, op: Op, p: Perturbation) -> tuple[_Spec, Tensor, Callable[[Tensor, Product], Tensor]]:
        """The op over the bases of these examples, their ΔŴ, and how a product with whole groups is had of these rows:
        those of the first and of the last group are padded."""
        first, count, group = self._bases(p)
        if count == 1:
            return _Spec(op, op, p.signs), p.delta(first), lambda x, product: product(x)
        rows = p.draw.rows
        before, after = (p.first - first * group) * rows, ((first + count) * group - p.first - p.examples) * rows

        def whole(x: Tensor, product: Product) -> Tensor:
            padded = F.pad(x, (*[0, 0] * (x.dim() - 1), before, after)) if before or after else x
            return product(padded).narrow(0, before, x.shape[0])

        signs = p.seen_by(first * group, count * group).signs
        return _Spec(op, op.batched(count), signs), p.deltas(first, count), whole

    def _combine(self, spec: _Spec, x: Tensor, bias: Tensor | None, mean: Tensor, delta: Tensor, keys: Tensor):
        if transformed():
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
