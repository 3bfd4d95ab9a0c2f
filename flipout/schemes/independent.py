"""The scheme 'independent': a separate perturbation for every example."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .._perturbation import Perturbation
from ..backend import chosen
from ..distributions.base import Distribution
from ..draws.draw import runs
from ..ops.base import Op, is_tracked
from .base import BoundProduct, Scheme, add_by_example
from .sums import numbers_per_chunk, promoted


@dataclass(frozen=True)
class Independent(Scheme):
    """A separate perturbation for every example: batched(x, W̄ + ΔW_n).

    The variance of a gradient falls as 1 / N, but the weights of each example are formed, which takes time and memory.

    Example:
        >>> flipout.perturb(model, flipout.DropConnect(0.2), scheme="independent")
    """

    name = "independent"
    own_weights = True

    def check(self, distribution: Distribution, what: str) -> None:
        pass

    def product(self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation) -> Tensor:
        return self.bound(op, bias, p)(x)

    def bound(self, op: Op, bias: Tensor | None, p: Perturbation) -> BoundProduct:
        if p.examples == 0:
            return lambda x: op.apply(x, p.mean, bias)
        batched, weight = op.batched(p.examples), self.vector(p)
        return lambda x: batched.apply(x, weight, bias)

    def vector(self, p: Perturbation) -> Tensor:
        return p.mean + p.oriented(p.deltas(p.first, p.examples))

    def add_vector(self, y: Tensor, p: Perturbation, dim: int) -> Tensor:
        kernel = None if is_tracked() else chosen("add_normals", y, dim, required=False)
        starts = None if kernel is None else p.starts(p.first, p.examples)
        if kernel is None or starts is None or not p.examples:
            return add_by_example(y, self.vector(p), dim)
        return kernel(y, p.mean, starts, p.oriented(p.spread))

    def row_noise(self, p: Perturbation, row: Tensor, example: Tensor) -> Tensor:
        return p.oriented(p.delta_rows(row, example + p.first, p.first, p.examples))

    def weights(self, p: Perturbation, groups: int | None) -> Tensor:
        return self.vector(p)

    def weighted(self, p: Perturbation, groups: int | None, coefficients: Tensor) -> Tensor:
        coefficients = promoted(coefficients, p)
        total = torch.zeros_like(p.parameter, dtype=coefficients.dtype)
        for first, count in runs(p.first, p.examples, numbers_per_chunk(total) // max(total.numel(), 1), 1):
            chunk = coefficients[first - p.first :][:count]
            total = total + torch.tensordot(chunk, p.oriented(p.deltas(first, count)).to(total.dtype), 1)
        return total
