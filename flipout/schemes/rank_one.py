"""The scheme 'rank_one': the paper's sign flips r sᵀ of a constant base, so that only signs are drawn."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .._perturbation import Perturbation
from ..backend import asks_for_kernels, chosen
from ..distributions.base import Distribution
from ..distributions.dropconnect import Rademacher
from ..distributions.gaussian import Gaussian
from ..draws.at_once import AtOnce
from ..draws.bits import wrap
from ..draws.draw import runs
from ..draws.noise import FOLDS
from ..draws.opaque import is_only_compiling
from ..draws.signs import matrix_dims
from ..errors import NotRankOne
from ..ops.base import Op, apply_once, is_tracked
from ..ops.linear import Linear
from ..ops.rank_one import rank_one_product
from ..ops.simple import SimpleOp
from ..ops.turned import Turned
from .base import BoundProduct, Scheme, add_by_example
from .sums import numbers_per_chunk, outer_sum, promoted


@dataclass(frozen=True)
class RankOne(Scheme):
    """Rank-one flips: apply(x, W̄) + σ r_n (s_n · x), with random signs r_n and s_n of each example.

    This is flipout with a constant base: ΔW_n = σ r_n s_nᵀ. r_n runs over dimension 0 of the Parameter, and s_n over
    all others, kernel positions included. A bias or a norm has one sign for each element. An example is therefore a
    few sign bits, and a forward pass costs one dot product a row and one addition beyond the plain product.

    Every weight is W̄ + σ or W̄ − σ with equal probability, and any two weights are uncorrelated. This holds for
    examples too: their perturbations are independent. But within an example, weights are only pairwise independent:
    the four corners of a rectangle of ΔW have the product σ⁴. So this is neither Gaussian noise nor independent
    `Rademacher` noise. Of `Gaussian(std)` and `Rademacher(std)` alike, only the number `std` is used.

    An evolution strategy estimates the gradient of a linear fitness without bias, with a mean squared error of
    (d − 1) / N of the squared gradient for d weights and N members. Independent Gaussian noise has (d + 1) / N. Where
    the fitness bends, fourth moments enter, and the mean estimate is off by terms of the order of σ².

    There is no base to share, so `group` has no effect. The rank-one posteriors of `flipout.bayes.rank_one` are another
    thing: learned Gaussian scales of inputs and outputs.

    Example:
        >>> flipout.perturb(model, flipout.Rademacher(0.02), scheme="rank_one")
        >>> flipout.es.EvolutionStrategy(model, fitness, scheme="rank_one", ...)
    """

    name = "rank_one"
    is_grouped = True  # signs do not depend on the base, so those of all groups are drawn at once

    def check(self, distribution: Distribution, what: str) -> None:
        is_plain = isinstance(distribution, (Gaussian, Rademacher))
        if not is_plain or (isinstance(distribution.std, Tensor) and distribution.std.dim()):
            raise NotRankOne(
                f"{what}: rank-one flips can never serve {distribution}: ΔW = σ r sᵀ has one standard deviation σ for "
                "the whole Parameter, and it is not learned. Use Rademacher(std) or Gaussian(std) with a number, or "
                "scheme='flipout'."
            )

    def product(self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation) -> Tensor:
        y = None if is_tracked() else self._by_kernel(op, x, bias, p)
        return self.bound(op, bias, p)(x) if y is None else y

    def small(self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation, drawn: AtOnce) -> Tensor | None:
        if p.draw.fold:
            return None
        return self.bound(op, bias, replace(p, drawn=drawn))(x)

    def affine(self, op: Op, x: Tensor, p: Perturbation, bias: Perturbation) -> Tensor | None:
        if not isinstance(op, Linear) or p.examples == 0:
            return None
        if not x.is_cpu or asks_for_kernels():
            return self._by_kernel(op, x, bias.mean, p, bias)
        return rank_one_product(op, x, p.mean, *self.factors(p), self.vector(bias))

    def bound(self, op: Op, bias: Tensor | None, p: Perturbation) -> BoundProduct:
        mean = p.mean
        if p.examples == 0:
            return lambda x: op.apply(x, mean, bias)
        if isinstance(op, SimpleOp):  # its factors are unknown
            batched, weights = op.batched(p.examples), self.weights(p, 1)
            return lambda x: batched.apply(x, weights, bias)
        over_first, over_others = self.factors(p)
        if isinstance(op, Linear):
            return lambda x: rank_one_product(op, x, mean, over_first, over_others, bias)
        if isinstance(op, Turned):
            return lambda x: rank_one_product(op, x, mean, over_others, over_first, bias)
        kernels = over_others.view(p.examples, 1, *mean.shape[1:])
        (first, first_weight), (second, second_weight) = op.factored(over_first.unsqueeze(-1), kernels)
        return lambda x: apply_once(op, x, mean, bias) + second.apply(first.apply(x, first_weight), second_weight)

    def vector(self, p: Perturbation) -> Tensor:
        (r,) = self._signs(p, ((0, p.parameter.numel()),), p.dtype)
        return p.mean + p.spread.to(p.dtype) * r.reshape(p.examples, *p.parameter.shape)

    def add_vector(self, y: Tensor, p: Perturbation, dim: int) -> Tensor:
        kernel = None if is_tracked() else chosen("add_flipped_vectors", y, p.signs, dim, required=False)
        if kernel is None:
            return add_by_example(y, self.vector(p), dim)
        constant = p.spread.to(p.dtype).expand(1, p.parameter.numel())
        return kernel(y, p.mean, constant, p.signs, self._seed(p), dim, p.examples, 0)

    def row_noise(self, p: Perturbation, row: Tensor, example: Tensor) -> Tensor:
        r = p.signs.at(0, example, row, self._seed(p), p.dtype).unsqueeze(-1)
        (s,) = self._signs(p, matrix_dims(p.parameter.shape)[1:], p.dtype)
        return p.spread_rows(row).to(p.dtype) * r * s[example]

    def weights(self, p: Perturbation, groups: int | None) -> Tensor:
        if groups is None:
            return self.vector(p)
        over_first, over_others = self.factors(p)
        delta = over_first.unsqueeze(-1) * over_others.unsqueeze(1)
        return p.mean + delta.view(p.examples, *p.mean.shape)

    def weighted(self, p: Perturbation, groups: int | None, coefficients: Tensor) -> Tensor:
        # Rᵀ diag(F) S over all examples is one matrix product of the Parameter's shape.
        coefficients, shape = promoted(coefficients, p), p.parameter.shape
        size = (shape.numel(),) if groups is None else (shape[0], math.prod(shape[1:]))
        dims = ((0, size[0]),) if groups is None else matrix_dims(shape)
        total = torch.zeros(size, dtype=coefficients.dtype, device=coefficients.device)
        for first, count in runs(p.first, p.examples, numbers_per_chunk(total) // max(sum(size), 1), 1):
            signs = self._signs(p.for_examples(first, count), dims, p.dtype)
            chunk = coefficients[first - p.first :][:count]
            if groups is None:
                total = total + chunk @ signs[0].to(total.dtype)
            else:
                total = total + outer_sum(signs[0], signs[1], chunk)
        return total.view(shape) * p.spread.to(total.dtype)

    def _by_kernel(
        self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation, bias_noise: Perturbation | None = None
    ) -> Tensor | None:
        """Return the product without gradients, with signs that a kernel makes where they are used.

        The kernel writes all but the plain product, which a GPU's matrix product then adds to. So the outputs are
        written twice and read once, inside the product, where other work hides it.
        """
        if not isinstance(op, (Linear, Turned)) or p.examples == 0 or p.spread.dim():
            return None
        if bias_noise is not None and bias_noise.spread.dim():
            return None
        kernel = chosen("rank_one_terms", x, p.signs, op.in_dim, required=False)
        if kernel is None:
            return None
        noise = None if bias_noise is None else (bias_noise.key, bias_noise.spread)
        y = kernel(x, op.out_features, p.signs, self._seed(p), p.spread, (op.r_dim, op.s_dim), bias, noise)
        op.add_to(y.flatten(0, -2), x.flatten(0, -2), p.mean)
        return y

    def factors(self, p: Perturbation) -> tuple[Tensor, Tensor]:
        """Return σ r over dimension 0, (examples, d0), and s over all other dimensions, (examples, features).

        Args:
            p: The Parameter and its noise.
        """
        over_first, over_others = matrix_dims(p.mean.shape)
        r, s = self._signs(p, (over_first, over_others), p.dtype)
        spread = p.spread if p.spread.dim() == 0 else p.spread_of_mean.flatten(1)[:, 0]
        return r * spread.to(p.dtype), s

    def _signs(self, p: Perturbation, dims: tuple[tuple[int, int], ...], dtype: torch.dtype) -> list[Tensor]:
        signs, seed = replace(p.signs, drawn=None) if p.draw.fold else p.signs, self._seed(p)
        is_fused = is_only_compiling() and seed.dim() == 0
        return signs.fused(dims, seed, dtype) if is_fused else signs.over(dims, seed, dtype)

    def _seed(self, p: Perturbation) -> Tensor:
        """Return the seed of the signs.

        Each data-parallel rank has its own, unless they share the base: ranks with unequal shares of a batch may number
        two examples alike, and no base noise would tell their weights apart.
        """
        seed, fold = p.seed_of_signs(False), p.draw.fold
        if not fold:
            return seed
        return seed + ((seed & 0 | fold) * FOLDS if torch.compiler.is_compiling() else wrap(fold * FOLDS))
