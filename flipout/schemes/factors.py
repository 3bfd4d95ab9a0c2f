"""Noise along a few directions that each example follows with coefficients of its own, on top of any scheme."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .._perturbation import Perturbation
from ..distributions.base import Distribution
from ..draws.at_once import AtOnce
from ..errors import NoPopulation
from ..ops.base import Op
from .base import BoundProduct, Scheme, add_by_example


@dataclass(frozen=True)
class WithFactors(Scheme):
    """A scheme for the diagonal part of the noise, plus Σ_j z_nj U_j of example n.

    Parameters without directions see the inner scheme alone.
    """

    inner: Scheme

    def __post_init__(self) -> None:
        for name in ("name", "once", "own_weights", "is_shared", "is_grouped", "reuse_signs", "group", "transformable"):
            object.__setattr__(self, name, getattr(self.inner, name))

    def check(self, distribution: Distribution, what: str) -> None:
        self.inner.check(distribution, what)

    def product(self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation) -> Tensor:
        y = self.inner.product(op, x, bias, p)
        return y if p.factors_of_mean is None else y + self._along_factors(op, x, p)

    def small(self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation, drawn: AtOnce) -> Tensor | None:
        y = self.inner.small(op, x, bias, p, drawn)
        return y if y is None or p.factors_of_mean is None else y + self._along_factors(op, x, p)

    def bound(self, op: Op, bias: Tensor | None, p: Perturbation) -> BoundProduct:
        product = self.inner.bound(op, bias, p)
        if p.factors_of_mean is None:
            return product
        return lambda x: product(x) + self._along_factors(op, x, p)

    def vector(self, p: Perturbation) -> Tensor:
        vector = self.inner.vector(p)
        return vector if p.factors_of_mean is None else vector + self._moved(p)

    def add_vector(self, y: Tensor, p: Perturbation, dim: int) -> Tensor:
        if p.factors_of_mean is None:
            return self.inner.add_vector(y, p, dim)
        return add_by_example(y, self.vector(p), dim)

    def row_noise(self, p: Perturbation, row: Tensor, example: Tensor) -> Tensor:
        noise, factors = self.inner.row_noise(p, row, example), p.factors_of_mean
        if factors is None:
            return noise
        z = p.coefficients(self.is_shared)
        z = z.expand(p.examples, -1)[example]
        for j, factor in enumerate(factors):
            noise = noise + z[..., j, None] * F.embedding(row, factor)
        return noise

    def weights(self, p: Perturbation, groups: int | None) -> Tensor:
        weights = self.inner.weights(p, groups)
        return weights if p.factors_of_mean is None else weights + self._moved(p)

    def weighted(self, p: Perturbation, groups: int | None, coefficients: Tensor) -> Tensor:
        raise NoPopulation(
            f"{p.distribution} cannot serve a population: an evolution strategy draws around the mean with noise that "
            "is not learned. Use flipout.Gaussian(std)."
        )

    def _along_factors(self, op: Op, x: Tensor, p: Perturbation) -> Tensor:
        """Return Σ_j z_nj apply(x_n, U_j), of the shape of the product."""
        factors = p.factors_of_mean
        assert factors is not None
        z = p.coefficients(self.is_shared).to(x.dtype)
        if len(z) > 1:
            z = z.repeat_interleave(x.shape[0] // len(z), 0)
        terms = [op.apply(x * z[:, j].view(-1, *[1] * (x.dim() - 1)), factor) for j, factor in enumerate(factors)]
        # On a GPU, autocast lets a sum return single precision.
        return torch.stack(terms).sum(0).to(terms[0].dtype) if len(terms) > 1 else terms[0]

    def _moved(self, p: Perturbation) -> Tensor:
        """Return Σ_j z_nj U_j of each example, (examples or 1, *shape)."""
        factors = p.factors_of_mean
        assert factors is not None
        return torch.tensordot(p.coefficients(self.is_shared), factors, 1)
