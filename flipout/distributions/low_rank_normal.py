"""Gaussian noise with a learned covariance: a diagonal plus a few directions that all weights share."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._arguments import whole_number
from .._reprs import call_repr
from ..draws.noise import Stream
from ..errors import InvalidArgument
from .base import LearnedDistribution, standard
from .mean_field import inverse_softplus
from .prior import prior_of


@dataclass(frozen=True, eq=False, repr=False)
class LowRankNormal(LearnedDistribution):
    """Gaussian noise with a learned covariance: ΔW ~ N(0, diag(softplus(ρ)²) + U Uᵀ), U of low rank.

    Weights that move together get a direction U_j, which is as large as the Parameter. Each example draws its own
    coefficients z_j ~ N(0, 1) of the directions, whatever the scheme; under "shared" all examples have the same. The
    scheme serves the diagonal part: flips would destroy the correlations of the other. ρ and U are Parameters beside
    the mean, `weight_rho` and `weight_factors`. Each direction costs one more product, and as much memory as the mean.

    Args:
        rank: The number of directions.
        std: Initial standard deviation of the diagonal part, or `{glob: number}` by Parameter name.
        factor_std: The directions start as random numbers with this standard deviation, from torch's generator. At 0
            they would never learn.
        prior: The prior of the KL divergence, a `flipout.bayes.Normal`, or `{glob: prior}`.

    Raises:
        InvalidArgument: A number is not finite or not above 0, or `rank` is not a whole number ≥ 1.

    Example:
        >>> prior = flipout.bayes.Normal(0.0, 1.0)
        >>> flipout.perturb(model, flipout.LowRankNormal(rank=2, prior=prior))
        >>> flipout.bayes.kl(model)
    """

    rank: int | Mapping[str, int] = 1
    std: float | Mapping[str, float] = 0.05
    factor_std: float | Mapping[str, float] = 0.01
    prior: Any = None
    symmetric = True
    gaussian = True

    def __post_init__(self) -> None:
        for rank in self.rank.values() if isinstance(self.rank, Mapping) else [self.rank]:
            whole_number("rank", rank, 1, of="LowRankNormal")
        for name in ("std", "factor_std"):
            setting = getattr(self, name)
            for value in setting.values() if isinstance(setting, Mapping) else [setting]:
                if not (isinstance(value, Real) and 0 < float(value) < math.inf):
                    raise InvalidArgument(f"LowRankNormal: {name}={value!r} given; expected a finite number > 0.")
        if isinstance(self.prior, Mapping):
            object.__setattr__(self, "prior", {pattern: prior_of(prior) for pattern, prior in self.prior.items()})
        elif self.prior is not None:
            object.__setattr__(self, "prior", prior_of(self.prior))

    def __repr__(self) -> str:
        shown = {"rank": self.rank, "std": self.std, "factor_std": self.factor_std}
        return call_repr(self, shown if self.prior is None else {**shown, "prior": self.prior})

    def initial(self, mean: Tensor) -> dict[str, Tensor]:
        assert not isinstance(self.rank, Mapping)
        assert not isinstance(self.std, Mapping)
        assert not isinstance(self.factor_std, Mapping)
        std = torch.full_like(mean.detach(), self.std, dtype=torch.float64)
        factors = torch.randn(self.rank, *mean.shape, dtype=mean.dtype, device=mean.device)
        return {"rho": inverse_softplus(std).to(mean.dtype), "factors": factors * self.factor_std}

    def spread(self, mean: Tensor, **learned: Tensor) -> Tensor:
        return F.softplus(learned["rho"])

    def source(self, **learned: Tensor) -> Tensor | None:
        return learned["rho"]

    def factors(self, **learned: Tensor) -> Tensor | None:
        return learned["factors"]

    @standard("normal")
    def noise(self, stream: Stream) -> Tensor:
        return stream.normal()
