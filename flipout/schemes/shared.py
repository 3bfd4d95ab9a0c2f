"""The scheme 'shared': one perturbation for the whole batch."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .._perturbation import Perturbation
from ..distributions.base import Distribution
from ..errors import NoPopulation
from ..ops.base import Op, Straight
from .base import BoundProduct, Scheme, add_by_example


@dataclass(frozen=True)
class Shared(Scheme):
    """One perturbation for the whole batch: apply(x, W̄ + ΔŴ).

    It is the cheapest scheme, but the gradients of a batch are correlated, so their variance does not fall as 1 / N.

    Example:
        >>> flipout.perturb(model, flipout.Gaussian(0.1), scheme="shared")
    """

    name = "shared"
    is_shared = True

    def check(self, distribution: Distribution, what: str) -> None:
        pass

    def product(self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation) -> Tensor:
        return self.bound(op, bias, p)(x)

    def bound(self, op: Op, bias: Tensor | None, p: Perturbation) -> BoundProduct:
        return Straight(op, self._weight(p), bias)

    def vector(self, p: Perturbation) -> Tensor:
        return self._weight(p).unsqueeze(0)

    def add_vector(self, y: Tensor, p: Perturbation, dim: int) -> Tensor:
        return add_by_example(y, self.vector(p), dim)

    def row_noise(self, p: Perturbation, row: Tensor, example: Tensor) -> Tensor:
        return p.oriented(p.delta_rows(row, torch.zeros_like(example), 0, 1))

    def weights(self, p: Perturbation, groups: int | None) -> Tensor:
        return self.vector(p).expand(p.examples, *p.parameter.shape)

    def weighted(self, p: Perturbation, groups: int | None, coefficients: Tensor) -> Tensor:
        raise NoPopulation(
            "scheme 'shared' can never serve a population: all members would have the same perturbation, so their "
            "fitness would show no direction. Use scheme='flipout'."
        )

    def _weight(self, p: Perturbation) -> Tensor:
        return p.mean + p.oriented(p.delta())
