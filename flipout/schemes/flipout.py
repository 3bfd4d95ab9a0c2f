"""The paper: one ΔŴ for `group` examples, flipped for each of them by a rank-one sign matrix of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..backend import chosen
from ..distributions.base import Distribution
from ..draw import runs
from ..draws.at_once import AtOnce
from ..draws.bits import transformed
from ..errors import AsymmetricDistribution
from ..ops.base import Op, by_example, flipped, watched
from ..perturbation import Perturbation
from ..whole import whole
from .base import Product, Scheme, added, at_once, outer_sum, wide
from .product import FlippedProduct
from .quantised import QuantisedProduct, check_dtype, refuse_transforms, serves
from .spec import Spec

# Below so many numbers of an input, torch's own operations are faster than the Function, which spares memory: they keep
# about twice as much for backward, at most a megabyte or two more.
SMALL = 2**17


@dataclass(frozen=True)
class Flipout(Scheme):
    """`group` examples share one ΔŴ (None: all of them). `reuse_signs` keeps the signs over mini-batches.

    `perturbation_dtype=torch.float8_e4m3fn` multiplies the perturbations of matrices in FP8, the means as they are; it
    serves layers with one ΔŴ for the whole batch, and others compute as without it. Under torch.func, torch.compile and
    forward-mode differentiation it is refused.
    """

    group: int | None = None
    reuse_signs: bool = False
    perturbation_dtype: torch.dtype | None = None

    name = "flipout"
    serves_bases = True

    def __post_init__(self) -> None:
        if self.group is not None:
            group = whole("group", self.group, 1, of="Flipout", more=" of examples, or None for all.")
            object.__setattr__(self, "group", group)
        check_dtype(self.perturbation_dtype)

    @property
    def transformable(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.perturbation_dtype is None

    def check(self, distribution: Distribution, what: str) -> None:
        if not distribution.symmetric:
            raise AsymmetricDistribution(
                f"{what}: flipout can never serve {distribution}: flipping signs keeps only a distribution that is "
                "symmetric about 0. Use DropConnect(p=0.5) or Gaussian noise, or scheme='shared' or 'independent'. (A "
                "distribution of your own that is symmetric says so: symmetric = True in its class.)"
            )

    def product(self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation) -> Tensor:
        made = None if watched() else self._by_groups(op, x, bias, p)
        if made is not None:
            return made
        seed, (first, count, _) = p.seed_of_signs(self.reuse_signs), self._bases(p)
        made_of = p.made_of(first) if count == 1 and self.perturbation_dtype is None else None
        if made_of is not None:
            given, start, scaled = made_of
            return FlippedProduct.apply(x, p.mean, bias, given, seed, Spec(op, op, p.signs), start, scaled)  # pyright: ignore[reportReturnType]
        spec, delta, whole = self._spread_over(op, p)
        # By the groups asked for, not by how many of them these examples have: a part of a batch is as exact as all.
        quantised = self.perturbation_dtype is not None and not self._bases(p)[2] and serves(spec)
        return whole(x, lambda padded: self._combine(spec, padded, bias, p.mean, delta, seed, quantised))

    def small(self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation, made: AtOnce) -> Tensor | None:
        whole = op.out_features if p.part is None else p.part.whole
        if not self.is_small(op, x, p.key, made, whole):
            return None
        r, s = made.signs[p.key, op.r_dim], made.signs[p.key, op.s_dim]
        if p.part is not None:
            r = r.narrow(1, p.part.start, p.part.length)
        if p.draw.antithetic:
            r = -r
        if made.bases > 1:
            return self._by_bases(op, x, bias, p, r, s)
        return flipped(x, op, op, p.mean, p.delta(made.base), r, s, bias)

    def is_small(self, op: Op, x: Tensor, key: int, made: AtOnce, outputs: int) -> bool:
        """Whether torch's own operations serve the product of x (N, …), with signs that were made at once."""
        if self.reuse_signs or self.perturbation_dtype is not None or (x.numel() >= SMALL and made.bases == 1):
            return False
        r, s = made.signs.get((key, op.r_dim)), made.signs.get((key, op.s_dim))
        # A tied kernel with other groups, or a Parameter whose shape was changed, has another number of them.
        return r is not None and s is not None and r.shape[1] == outputs and s.shape[1] == op.in_features

    def bound(self, op: Op, bias: Tensor | None, p: Perturbation) -> Product:
        spec, delta, whole = self._spread_over(op, p)
        flipped = spec.flipped(p.mean, bias, delta, p.seed_of_signs(self.reuse_signs), p.dtype)
        return flipped if spec.lifted is op else lambda x: whole(x, flipped)

    def vector(self, p: Perturbation) -> Tensor:
        seed = p.seed_of_signs(self.reuse_signs)
        (r,) = p.signs.over([(0, p.parameter.numel())], seed, p.dtype)
        return p.mean + self._delta_of_each(p) * r.reshape(p.examples, *p.parameter.shape)

    def add_vector(self, y: Tensor, p: Perturbation, dim: int) -> Tensor:
        kernel = None if watched() else chosen("add_vectors", y, p.signs, dim, required=False)
        if kernel is None:
            return added(y, self.vector(p), dim)
        first, count, group = self._bases(p)
        share, skip = group or p.examples, p.first - first * group if group else 0
        seed = p.seed_of_signs(self.reuse_signs)
        return kernel(y, p.mean, p.deltas(first, count), p.signs, seed, dim, share, skip)

    def row_noise(self, p: Perturbation, row: Tensor, example: Tensor) -> Tensor:
        first, count, group = self._bases(p)
        seed, width = p.seed_of_signs(self.reuse_signs), p.parameter.shape[1]
        base = (example + p.first) // group if group else torch.zeros_like(example)
        r = p.signs.at(0, example, row, seed, p.dtype).unsqueeze(-1)
        (s,) = p.signs.over([(1, width)], seed, p.dtype)
        return p.delta_rows(row, base, first, count) * r * s[example]

    def weights(self, p: Perturbation, groups: int | None) -> Tensor:
        if groups is None:
            return self.vector(p)
        seed, (d0, d1) = p.seed_of_signs(self.reuse_signs), p.parameter.shape[:2]
        over0, over1 = p.signs.over([(0, d0), (1, groups * d1)], seed, p.dtype)
        over0, over1 = over0.unflatten(1, (groups, -1)).unsqueeze(-1), over1.unflatten(1, (groups, -1)).unsqueeze(2)
        flips = (over0 * over1).view(p.examples, d0, d1, *[1] * (p.parameter.dim() - 2))
        return p.mean + self._delta_of_each(p) * flips

    def weighted(self, p: Perturbation, groups: int | None, coefficients: Tensor) -> Tensor:
        """Σ over the bases of ΔŴ ∘ Rᵀ diag(F) S, of the Parameter's shape."""
        coefficients = wide(coefficients, p)
        if groups == 1 and p.parameter.dim() == 2:
            kernel, *about = self._kernel("weighted_groups", p.parameter, p, None, 1)
            if kernel is not None:
                dtype = torch.float16 if p.dtype.itemsize == 2 else p.dtype
                signs = p.signs.over(list(enumerate(p.parameter.shape)), p.seed_of_signs(self.reuse_signs), dtype)
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
        seed, bases, dtype = p.seed_of_signs(self.reuse_signs), self._bases(p)[1], coefficients.dtype
        if groups is None:
            (r,) = p.signs.over([(0, p.parameter.numel())], seed, dtype)
            made = torch.bmm(coefficients.view(bases, 1, -1), r.unflatten(0, (bases, -1)))
            return made.view(bases, *p.parameter.shape)
        d0, d1, *kernel = p.parameter.shape
        over0, over1 = (
            signs.view(bases, -1, groups, signs.shape[1] // groups).transpose(1, 2)
            for signs in p.signs.over([(0, d0), (1, groups * d1)], seed, p.dtype)
        )
        return outer_sum(over0, over1, coefficients.view(bases, 1, -1)).view(bases, d0, d1, *[1] * len(kernel))

    def _by_groups(self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation) -> Tensor | None:
        """The definition without gradients, the noise of small groups made where it is used; None where no kernel
        serves."""
        kernel, *groups = self._kernel("put_grouped", x, p, op, p.draw.rows) if x.dim() == 2 else (None,)
        flips = None if kernel is None else chosen("flips", x, p.signs, op.in_dim, required=False)
        if kernel is None or flips is None:
            return None
        seed = p.seed_of_signs(self.reuse_signs)
        y, flipped = op.apply(x, p.mean, bias), flips[0](x, p.signs, seed, op.s_dim, op.in_dim)
        (r,) = p.signs.over([(op.r_dim, op.out_features)], seed, p.dtype)
        return kernel(y, flipped, r, *groups)

    def _by_bases(self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation, r: Tensor, s: Tensor) -> Tensor | None:
        """The definition without gradients, one base after the other; None where weights are better formed."""
        if Spec(op, op, p.signs).forms(x):
            return None
        first, count, group = self._bases(p)
        is_one = x.stride(0) == 0  # all rows are one in memory
        y = op.infer(x[:1] if is_one else x, p.mean, bias)
        if is_one:
            y = y.repeat(x.shape[0], *[1] * (y.dim() - 1))
        parts = (*by_example(x, s, op.in_dim), *by_example(y, r, op.out_dim))
        sizes = [group] * (count - 1) + [p.examples - group * (count - 1)]
        of_bases = zip(*(part.split_with_sizes(sizes) for part in parts), p.deltas(first, count), strict=True)
        for x_base, s_base, y_base, r_base, delta in of_bases:
            flipped = x_base * s_base
            product = op.infer(flipped if x.dim() == flipped.dim() else flipped.flatten(0, 1), delta)
            y_base.addcmul_(product.view(y_base.shape), r_base)
        return y

    def _kernel(self, name: str, tensor: Tensor, p: Perturbation, op: Op | None, rows: int) -> tuple[Any, ...]:
        """A kernel for several bases, with what it wants to know of them: where their noise starts, its spread, rows of
        a group, and how many of these the first one lacks."""
        first, count, group = self._bases(p)
        if count == 1 or transformed():
            return (None,)
        kernel = chosen(name, tensor, p.dtype, op, p.parameter.shape, group * rows, required=False)
        starts = None if kernel is None else p.starts(first, count)
        return (None,) if starts is None else (kernel, starts, p.spread, group * rows, (p.first - first * group) * rows)

    def _spread_over(self, op: Op, p: Perturbation) -> tuple[Spec, Tensor, Callable[[Tensor, Product], Tensor]]:
        """The op over the bases of these examples, their ΔŴ, and how a product with whole groups is had of these rows:
        those of the first and of the last group are padded."""
        first, count, group = self._bases(p)
        if count == 1:
            return Spec(op, op, p.signs), p.delta(first), lambda x, product: product(x)
        rows = p.draw.rows
        before, after = (p.first - first * group) * rows, ((first + count) * group - p.first - p.examples) * rows

        def whole(x: Tensor, product: Product) -> Tensor:
            padded = F.pad(x, (*[0, 0] * (x.dim() - 1), before, after)) if before or after else x
            return product(padded).narrow(0, before, x.shape[0])

        signs = p.seen_by(first * group, count * group).signs
        return Spec(op, op.batched(count), signs), p.deltas(first, count), whole

    def _combine(
        self, spec: Spec, x: Tensor, bias: Tensor | None, mean: Tensor, delta: Tensor, seed: Tensor, quantised: bool
    ):
        if quantised and x.numel():
            refuse_transforms()
            return QuantisedProduct.apply(x, mean, bias, delta, seed, spec)
        if transformed():
            return spec.forward(x, mean, bias, delta, seed)
        return FlippedProduct.apply(x, mean, bias, delta, seed, spec)

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
