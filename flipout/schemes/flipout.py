"""The paper's scheme: `group` examples share one ΔŴ, and each example flips it by its own rank-one sign matrix."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .._arguments import whole_number
from .._perturbation import Perturbation
from ..backend import chosen
from ..distributions.base import Distribution
from ..draws.at_once import FILLED, AtOnce
from ..draws.bits import is_transformed
from ..errors import AsymmetricDistribution
from ..ops.base import Op, by_example, flipped, is_tracked
from .base import BoundProduct, Scheme, add_by_example
from .bases import bases_of, delta_of_each_example, group_kernel, missing_rows, pad_rows
from .product import FlippedProduct
from .quantised import QuantisedProduct, check_dtype, refuse_transforms, serves_fp8
from .spec import Spec
from .sums import flipped_sum

# For inputs with fewer numbers, torch's own operations are faster than FlippedProduct, which saves memory. They keep
# about twice as much for backward, which is a megabyte or two at this size.
SMALL = 2**17


@dataclass(frozen=True)
class Flipout(Scheme):
    """Flipout: examples share one ΔŴ, and each example has its own random signs.

    Args:
        group: Number of examples that share one ΔŴ; None for all of them.
        reuse_signs: Keep the signs over mini-batches.
        perturbation_dtype: `torch.float8_e4m3fn` multiplies the perturbations of matrices in FP8; the means keep their
            dtype. This concerns layers with one ΔŴ for the whole batch; other layers compute as without it. It does not
            work under torch.func, torch.compile and forward-mode differentiation.

    Raises:
        InvalidArgument: `group` is not a whole number above 0, or the dtype is another one.

    Example:
        >>> flipout.perturb(model, flipout.Gaussian(0.1), scheme="flipout")
        >>> flipout.perturb(model, flipout.Gaussian(0.1), scheme=flipout.Flipout(group=8))
    """

    group: int | None = None
    reuse_signs: bool = False
    perturbation_dtype: torch.dtype | None = None

    name = "flipout"
    is_grouped = True

    def __post_init__(self) -> None:
        if self.group is not None:
            group = whole_number("group", self.group, 1, of="Flipout", more=" of examples, or None for all.")
            object.__setattr__(self, "group", group)
        check_dtype(self.perturbation_dtype)

    @property
    def transformable(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.perturbation_dtype is None

    def check(self, distribution: Distribution, what: str) -> None:
        if not distribution.symmetric:
            raise AsymmetricDistribution(
                f"{what}: flipout can never serve {distribution}: random signs preserve only a distribution that is "
                "symmetric about 0. Use DropConnect(p=0.5) or Gaussian noise, or scheme='shared' or 'independent'. If "
                "your own distribution is symmetric, set symmetric = True in its class."
            )

    def product(self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation) -> Tensor:
        if not is_tracked():
            y = self._product_by_groups(op, x, bias, p)
            if y is not None:
                return y
        seed, bases = p.seed_of_signs(self.reuse_signs), bases_of(p, self.group)
        fused = p.kernel_inputs(bases[0]) if bases[1] == 1 and self.perturbation_dtype is None else None
        if fused is not None:
            factor, start, scaled = fused
            return FlippedProduct.apply(x, p.mean, bias, factor, seed, Spec(op, op, p.signs), start, scaled)  # pyright: ignore[reportReturnType]
        spec, delta, missing = self._over_bases(op, p, bases)
        if missing is None:
            return self._multiply(spec, x, bias, p.mean, delta, seed, is_grouped=bases[2] > 0)
        y = self._multiply(spec, pad_rows(x, missing), bias, p.mean, delta, seed, is_grouped=True)
        return y.narrow(0, missing[0], x.shape[0])

    def small(self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation, drawn: AtOnce) -> Tensor | None:
        outputs = op.out_features if p.part is None else p.part.parameter_rows
        if not self.is_small(op, x, p.key, drawn, outputs):
            return None
        r, s = drawn.signs[p.key, op.r_dim], drawn.signs[p.key, op.s_dim]
        if p.part is not None:
            r = r.narrow(1, p.part.start, p.part.length)
        if p.draw.antithetic:
            r = -r
        if drawn.bases > 1:
            return self._product_by_bases(op, x, bias, p, r, s)
        return flipped(x, op, op, p.mean, p.delta(drawn.base), r, s, bias)

    def affine(self, op: Op, x: Tensor, p: Perturbation, bias: Perturbation) -> Tensor | None:
        if not Spec(op, op, p.signs).forms(x):
            return None
        spec, delta, missing = self._over_bases(op, p, bases_of(p, self.group))
        biases = self.vector(bias.for_examples(spec.signs.first, spec.signs.count))
        seed = p.seed_of_signs(self.reuse_signs)
        if missing is None:
            return spec.formed(x, p.mean, biases, delta, seed)
        return spec.formed(pad_rows(x, missing), p.mean, biases, delta, seed).narrow(0, missing[0], x.shape[0])

    def is_small(self, op: Op, x: Tensor, key: int, drawn: AtOnce, outputs: int) -> bool:
        """Return True if torch's own operations should compute the product of x (N, …) with the signs in `drawn`.

        Args:
            op: The op.
            x: The input.
            key: The key of the weight's signs.
            drawn: The signs and noise that were drawn at once for the whole model.
            outputs: The number of output signs.
        """
        if self.reuse_signs or self.perturbation_dtype is not None or (x.numel() >= SMALL and drawn.bases == 1):
            return False
        r, s = drawn.signs.get((key, op.r_dim)), drawn.signs.get((key, op.s_dim))
        # A tied kernel with other groups, or a Parameter whose shape was changed, needs another number of signs.
        return r is not None and s is not None and r.shape[1] == outputs and s.shape[1] == op.in_features

    def bound(self, op: Op, bias: Tensor | None, p: Perturbation) -> BoundProduct:
        spec, delta, missing = self._over_bases(op, p, bases_of(p, self.group))
        product = spec.flipped(p.mean, bias, delta, p.seed_of_signs(self.reuse_signs), p.dtype)
        if missing is None:
            return product
        return lambda x: product(pad_rows(x, missing)).narrow(0, missing[0], x.shape[0])

    def vector(self, p: Perturbation) -> Tensor:
        seed = p.seed_of_signs(self.reuse_signs)
        (r,) = p.signs.over([(0, p.parameter.numel())], seed, p.dtype)
        return p.mean + delta_of_each_example(p, self.group) * r.reshape(p.examples, *p.parameter.shape)

    def add_vector(self, y: Tensor, p: Perturbation, dim: int) -> Tensor:
        kernel = None if is_tracked() else chosen("add_flipped_vectors", y, p.signs, dim, required=False)
        if kernel is None:
            return add_by_example(y, self.vector(p), dim)
        first, count, group = bases_of(p, self.group)
        shared, skipped = group or p.examples, p.first - first * group if group else 0
        seed = p.seed_of_signs(self.reuse_signs)
        return kernel(y, p.mean, p.deltas(first, count), p.signs, seed, dim, shared, skipped)

    def row_noise(self, p: Perturbation, row: Tensor, example: Tensor) -> Tensor:
        first, count, group = bases_of(p, self.group)
        seed, width = p.seed_of_signs(self.reuse_signs), p.parameter.shape[1]
        base = (example + p.first) // group if group else torch.zeros_like(example)
        r = p.signs.at(0, example, row, seed, p.dtype).unsqueeze(-1)
        (s,) = p.signs.over([(1, width)], seed, p.dtype)
        return p.delta_rows(row, base, first, count) * r * s[example]

    def weights(self, p: Perturbation, groups: int | None) -> Tensor:
        if groups is None:
            return self.vector(p)
        seed, (d0, d1) = p.seed_of_signs(self.reuse_signs), p.parameter.shape[:2]
        r, s = p.signs.over([(0, d0), (1, groups * d1)], seed, p.dtype)
        if groups > 1:  # each output has the signs of its own group's inputs
            s = s.reshape(p.examples, groups, 1, d1).expand(-1, -1, d0 // groups, -1)
        positions = [1] * (p.parameter.dim() - 2)
        s = s.reshape(p.examples, d0 if groups > 1 else 1, d1, *positions)
        return torch.addcmul(p.mean, delta_of_each_example(p, self.group) * s, r.reshape(p.examples, d0, 1, *positions))

    def weighted(self, p: Perturbation, groups: int | None, coefficients: Tensor) -> Tensor:
        return flipped_sum(p, groups, coefficients, self.group, self.reuse_signs)

    def _product_by_bases(
        self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation, r: Tensor, s: Tensor
    ) -> Tensor | None:
        """Return the product without gradients, one base after the other; None if another way is faster."""
        first, count, group = bases_of(p, self.group)
        is_filled = group * p.draw.rows >= FILLED and p.first % group == 0
        if is_tracked() or not is_filled or p.noise is None or Spec(op, op, p.signs).forms(x):
            return None
        is_expanded = x.stride(0) == 0  # all rows are one row in memory
        y = op.infer(x[:1] if is_expanded else x, p.mean, bias)
        if is_expanded:
            y = y.repeat(x.shape[0], *[1] * (y.dim() - 1))
        parts = (*by_example(x, s, op.in_dim), *by_example(y, r, op.out_dim))
        sizes = [group] * (count - 1) + [p.examples - group * (count - 1)]
        of_bases = zip(*(part.split_with_sizes(sizes) for part in parts), p.deltas(first, count), strict=True)
        for x_base, s_base, y_base, r_base, delta in of_bases:
            flipped_x = x_base * s_base
            product = op.infer(flipped_x if x.dim() == flipped_x.dim() else flipped_x.flatten(0, 1), delta)
            y_base.addcmul_(product.view(y_base.shape), r_base)
        return y

    def _over_bases(
        self, op: Op, p: Perturbation, bases: tuple[int, int, int]
    ) -> tuple[Spec, Tensor, tuple[int, int] | None]:
        """Return the spec and the ΔŴ of these bases, and the rows missing in groups; None if there is one base."""
        first, count, group = bases
        if count == 1:
            return Spec(op, op, p.signs), p.delta(first), None
        signs = p.for_examples(first * group, count * group).signs
        return Spec(op, op.batched(count), signs), p.deltas(first, count), missing_rows(p, bases)

    def _multiply(
        self,
        spec: Spec,
        x: Tensor,
        bias: Tensor | None,
        mean: Tensor,
        delta: Tensor,
        seed: Tensor,
        is_grouped: bool,
    ) -> Tensor:
        # FP8 depends on whether there are groups at all, not on how many these examples have: a part of a batch is
        # computed as exactly as the whole batch.
        if self.perturbation_dtype is not None and not is_grouped and serves_fp8(spec) and x.numel():
            refuse_transforms()
            return QuantisedProduct.apply(x, mean, bias, delta, seed, spec)  # pyright: ignore[reportReturnType]
        if is_transformed():
            return spec.forward(x, mean, bias, delta, seed)
        return FlippedProduct.apply(x, mean, bias, delta, seed, spec)  # pyright: ignore[reportReturnType]

    def _product_by_groups(self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation) -> Tensor | None:
        """Return the product without gradients by a kernel that draws the noise of small groups where it is used."""
        fused = group_kernel("add_grouped_product", x, p, self.group, op, p.draw.rows) if x.dim() == 2 else None
        flips = None if fused is None else chosen("flips", x, p.signs, op.in_dim, required=False)
        if fused is None or flips is None:
            return None
        kernel, arguments = fused
        seed = p.seed_of_signs(self.reuse_signs)
        y, flipped_x = op.apply(x, p.mean, bias), flips[0](x, p.signs, seed, op.s_dim, op.in_dim)
        (r,) = p.signs.over([(op.r_dim, op.out_features)], seed, p.dtype)
        return kernel(y, flipped_x, r, *arguments)
