"""Local reparameterisation (Kingma, Salimans and Welling, 2015): sample the output of a product, not its weight."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .._perturbation import Perturbation
from ..backend import without_autocast
from ..distributions.base import Distribution
from ..errors import NoExampleWeights, NoPopulation, NotGaussian, SampledPerPosition
from ..ops.base import Op
from .base import BoundProduct, Scheme, add_by_example
from .independent import Independent


@dataclass(frozen=True)
class LocalReparam(Scheme):
    """Local reparameterisation: sample the outputs, apply(x, W̄) + √apply(x², spread²) ∘ ε.

    It is exact for Gaussian noise if each example uses a weight once. No example has weights of its own, so
    `example_weights` and evolution strategies do not work with it.

    Args:
        per_position: Also allow weights that an example uses at several positions (tokens, pixels). Each position is
            then sampled separately, which is a different model: it has no single weight per example.

    Example:
        >>> flipout.perturb(model, flipout.MeanField(), scheme="local_reparam")
        >>> flipout.perturb(model, flipout.MeanField(), scheme=flipout.LocalReparam(per_position=True))
    """

    per_position: bool = False

    name = "local_reparam"
    once = True

    def check(self, distribution: Distribution, what: str) -> None:
        if not distribution.gaussian:
            raise NotGaussian(
                f"{what}: local reparameterisation can never serve {distribution}: it needs noise whose "
                "weighted sums are Gaussian. Use Gaussian, MultiplicativeGaussian or MeanField noise, or "
                "scheme='independent'."
            )

    def product(self, op: Op, x: Tensor, bias: Tensor | None, p: Perturbation) -> Tensor:
        mean = op.apply(x, p.mean, bias)
        self._check_positions(op.positions(x, mean) * p.draw.rows, f"input of shape {tuple(x.shape)}")
        dtype = torch.bfloat16 if p.dtype.itemsize == 2 else p.dtype  # squares overflow float16
        with without_autocast(x.device.type):
            variance = op.apply(x.to(dtype).square(), p.spread_of_mean.to(dtype).square())
        std = _safe_sqrt(variance).to(p.dtype)
        noise = p.output_noise((p.draw.rows, *mean.shape[1:]))
        return mean + std * noise.view(mean.shape)

    def bound(self, op: Op, bias: Tensor | None, p: Perturbation) -> BoundProduct:
        raise SampledPerPosition(
            "Local reparameterisation can never serve a weight that an example uses at every time step: each use would "
            "be sampled separately. Use scheme='flipout'."
        )

    def vector(self, p: Perturbation) -> Tensor:
        return Independent().vector(p)  # exact: a bias enters the output of each example once

    def add_vector(self, y: Tensor, p: Perturbation, dim: int) -> Tensor:
        return add_by_example(y, self.vector(p), dim)

    def row_noise(self, p: Perturbation, row: Tensor, example: Tensor) -> Tensor:
        self._check_positions(row[:1].numel() * p.draw.rows, f"index tensor of shape {tuple(row.shape)}")
        noise = p.output_noise((p.draw.rows, *row.shape[1:], p.parameter.shape[1]))
        std = p.spread_rows(row).to(p.dtype)
        return std * noise.view(*row.shape, p.parameter.shape[1])

    def weights(self, p: Perturbation, groups: int | None) -> Tensor:
        if groups is None:
            return self.vector(p)
        raise NoExampleWeights(
            "Local reparameterisation samples outputs, so no example has weights of its own. "
            "Hold the draw under another scheme: with flipout.using(model, scheme='flipout')."
        )

    def weighted(self, p: Perturbation, groups: int | None, coefficients: Tensor) -> Tensor:
        raise NoPopulation(
            "scheme 'local_reparam' can never serve a population: it samples outputs, so no member has weights that "
            "could be updated by its fitness. Use scheme='flipout'."
        )

    def _check_positions(self, positions: int, what: str) -> None:
        if positions > 1 and not self.per_position:
            raise SampledPerPosition(
                f"Local reparameterisation of an {what}: every example uses each weight {positions} times, and each "
                "use would be sampled separately, which is not one weight per example. Use scheme='flipout', or "
                "allow it with scheme=flipout.LocalReparam(per_position=True)."
            )


def _safe_sqrt(variance: Tensor) -> Tensor:
    """Return √variance, with gradient 0 instead of ∞ where the variance is 0 (a zero input or a zero spread)."""
    is_positive = variance > 0
    return torch.where(is_positive, variance, 1).sqrt() * is_positive
