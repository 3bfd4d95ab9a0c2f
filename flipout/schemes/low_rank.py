"""The scheme 'low_rank': a separate low-rank perturbation for every example, from two thin Gaussian factors."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .._arguments import whole_number
from .._perturbation import Perturbation
from ..backend import chosen
from ..distributions.base import Distribution
from ..distributions.gaussian import Gaussian
from ..draws.draw import runs
from ..errors import NotLowRank
from ..ops.base import Op, apply_once, is_tracked
from .base import BoundProduct, Scheme
from .independent import Independent
from .sums import numbers_per_chunk, outer_sum, promoted


@dataclass(frozen=True)
class LowRank(Scheme):
    """A low-rank perturbation for every example, as in EGGROLL: apply(x, W̄) + σ/√rank · apply(x, A_n B_nᵀ).

    A_n runs over dimension 0 of the Parameter and B_n over all others. Every weight has standard deviation σ, but it is
    Gaussian only in the limit of a large rank. Biases and norms have separate Gaussian noise for every example.

    Low-rank noise biases evolution strategies. The mean of F ΔW / σ² is the gradient of the smoothed fitness only for
    Gaussian ΔW (Stein's identity). A quadratic fitness depends on second moments alone, so there it is exact. Third
    derivatives involve fourth moments, and the kurtosis of a weight is 3 + 6 / rank instead of 3. The bias shrinks with
    σ² and with 1 / rank, but not with the number of members. Flipout has no such bias.

    Example of the bias, for a fitness that is the sine of one output of 16 inputs of size 1:

    | rank | σ | mean estimate / gradient |
    |---|---|---|
    | 1 | 0.3 | 0.54 |
    | 4 | 0.3 | 0.82 |
    | 1 | 0.1 | 0.87 |

    Args:
        rank: Rank of the perturbation.

    Raises:
        InvalidArgument: The rank is not a whole number above 0.

    Example:
        >>> flipout.perturb(model, flipout.Gaussian(0.02), scheme=flipout.LowRank(rank=4))
    """

    rank: int = 1

    name = "low_rank"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rank", whole_number("rank", self.rank, 1, of="LowRank"))

    def check(self, distribution: Distribution, what: str) -> None:
        if not isinstance(distribution, Gaussian) or (isinstance(distribution.std, Tensor) and distribution.std.dim()):
            raise NotLowRank(
                f"{what}: low-rank noise can never serve {distribution}: a product of two Gaussian factors has one "
                "standard deviation for the whole Parameter. Use Gaussian(std) with a number, or scheme='flipout'."
            )

    def product(self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation) -> Tensor:
        needs_eager = is_tracked() or self.rank > 1 or p.examples == 0
        kernel = None if needs_eager else chosen("add_rank_one", x, op.in_dim, required=False)
        starts = None if kernel is None else p.starts(p.first, p.examples)
        if kernel is not None and starts is not None:
            return kernel(op.apply(x, p.mean, bias), x, starts, p.oriented(p.spread))
        return self.bound(op, bias, p)(x)

    def bound(self, op: Op, bias: Tensor | None, p: Perturbation) -> BoundProduct:
        mean = p.mean
        if p.examples == 0:
            return lambda x: op.apply(x, mean, bias)
        (first, first_weight), (second, second_weight) = op.factored(*p.factors(self.rank, p.first, p.examples))
        return lambda x: apply_once(op, x, mean, bias) + second.apply(first.apply(x, first_weight), second_weight)

    def vector(self, p: Perturbation) -> Tensor:
        return Independent().vector(p)

    def add_vector(self, y: Tensor, p: Perturbation, dim: int) -> Tensor:
        return Independent().add_vector(y, p, dim)

    def row_noise(self, p: Perturbation, row: Tensor, example: Tensor) -> Tensor:
        _, right = p.factors(self.rank, p.first, p.examples)
        left = p.left_rows(self.rank, row, example)
        return torch.einsum("...r,...rw->...w", left, right[example])

    def weights(self, p: Perturbation, groups: int | None) -> Tensor:
        if groups is None:
            return self.vector(p)
        left, right = p.factors(self.rank, p.first, p.examples)
        return p.mean + (left @ right.flatten(2)).view(p.examples, *p.parameter.shape)

    def weighted(self, p: Perturbation, groups: int | None, coefficients: Tensor) -> Tensor:
        # A diag(F) B over all examples and ranks is one matrix product of the Parameter's shape.
        if groups is None:
            return Independent().weighted(p, groups, coefficients)
        coefficients, shape = promoted(coefficients, p), p.parameter.shape
        total = torch.zeros(shape[0], math.prod(shape[1:]), dtype=coefficients.dtype, device=coefficients.device)
        most = numbers_per_chunk(total) // (self.rank * max(sum(total.shape), 1))
        for first, count in runs(p.first, p.examples, most, 1):
            left, right = p.factors(self.rank, first, count)
            repeated = coefficients[first - p.first :][:count].repeat_interleave(self.rank)
            total = total + outer_sum(left.mT.flatten(0, 1), right.flatten(2).flatten(0, 1), repeated)
        return total.view(shape)
