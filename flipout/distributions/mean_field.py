"""A Gaussian whose standard deviation is learned: the factorised variational posterior."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..draws.noise import Stream
from ..errors import InvalidArgument
from .base import LearnedDistribution, standard
from .prior import prior_of


def inverse_softplus(std: Tensor) -> Tensor:
    """ρ with softplus(ρ) = std, exact for tiny and for large std."""
    return std + torch.log(-torch.expm1(-std))


@dataclass(frozen=True, eq=False)
class MeanField(LearnedDistribution):
    """ΔW ~ N(0, softplus(ρ)²) with ρ a Parameter (`weight_rho`) beside the mean.

    The initial standard deviation is `std`, or `relative` · |W̄| (floored at `least`, so that a zero weight can learn);
    each of them a number or {glob: number}. The `prior`, or {glob: prior}, is of `flipout.bayes` or of
    `torch.distributions`; the distribution itself does not depend on it.
    """

    std: float | Mapping[str, float] | None = None
    relative: float | Mapping[str, float] | None = None
    least: float = 1e-6
    prior: Any = None
    symmetric = True
    gaussian = True

    def __post_init__(self) -> None:
        if self.std is not None and self.relative is not None:
            raise InvalidArgument(f"MeanField: std={self.std} and relative={self.relative} given; give one of them.")
        for name in ("std", "relative", "least"):
            given = getattr(self, name)
            for value in given.values() if isinstance(given, Mapping) else [] if given is None else [given]:
                if not (isinstance(value, Real) and 0 < float(value) < math.inf):
                    raise InvalidArgument(f"MeanField: {name}={value!r} given; expected a finite number > 0.")
        given = self.prior
        if isinstance(given, Mapping):
            object.__setattr__(self, "prior", {pattern: prior_of(prior) for pattern, prior in given.items()})
        elif given is not None:
            object.__setattr__(self, "prior", prior_of(given))

    def initial(self, mean: Tensor) -> dict[str, Tensor]:
        assert not isinstance(self.std, Mapping)
        assert not isinstance(self.relative, Mapping)
        exact = mean.detach().double()
        if self.relative is not None:
            std = (exact.abs() * self.relative).clamp_min(self.least)
        else:
            std = torch.full_like(exact, math.log1p(math.exp(-3.0)) if self.std is None else self.std)
        return {"rho": inverse_softplus(std).to(mean.dtype)}

    def spread(self, mean: Tensor, **learned: Tensor) -> Tensor:
        return F.softplus(learned["rho"])

    def source(self, **learned: Tensor) -> Tensor | None:
        own = type(self).spread is MeanField.spread and type(self).noise is MeanField.noise
        return learned["rho"] if own else None

    @standard("normal")
    def noise(self, stream: Stream) -> Tensor:
        return stream.normal()
