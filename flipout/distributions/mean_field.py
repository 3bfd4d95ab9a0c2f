"""A Gaussian with a learned standard deviation for each weight: the factorised variational posterior."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._reprs import call_repr
from ..draws.noise import Stream
from ..errors import InvalidArgument
from .base import LearnedDistribution, standard
from .prior import prior_of

_DEFAULT_STD = math.log1p(math.exp(-3.0))  # softplus(−3)


def inverse_softplus(std: Tensor) -> Tensor:
    """Return ρ with softplus(ρ) = std, exact for tiny and for large std."""
    return std + torch.log(-torch.expm1(-std))


@dataclass(frozen=True, eq=False, repr=False)
class MeanField(LearnedDistribution):
    """Gaussian noise with a learned standard deviation: ΔW ~ N(0, softplus(ρ)²).

    ρ is a Parameter beside the mean, for example `weight_rho` beside `weight`. An optimiser that was created before
    `perturb` does not know it.

    Args:
        std: Initial standard deviation, or `{glob: number}` by Parameter name. Without `std` and `relative` it is
            softplus(−3) ≈ 0.049.
        relative: Initial standard deviation relative to |W̄|, or `{glob: number}`. Use it instead of `std`.
        least: Smallest initial standard deviation with `relative`, so that a zero weight can learn.
        prior: The prior of the KL divergence, from `flipout.bayes` or `torch.distributions`, or `{glob: prior}`. The
            noise does not depend on it.

    Raises:
        InvalidArgument: Both `std` and `relative` are given, a number is not finite or not above 0, or the prior is not
            one over single real weights.

    Example:
        >>> flipout.perturb(model, flipout.MeanField(prior=flipout.bayes.Normal(0.0, 1.0)))
        >>> flipout.bayes.kl(model)
    """

    std: float | Mapping[str, float] | None = None
    relative: float | Mapping[str, float] | None = None
    least: float = 1e-6
    prior: Any = None
    symmetric = True
    gaussian = True

    def __post_init__(self) -> None:
        if self.std is not None and self.relative is not None:
            raise InvalidArgument(
                f"MeanField: std={self.std} and relative={self.relative} given; expected only one of them."
            )
        for name in ("std", "relative", "least"):
            setting = getattr(self, name)
            for value in setting.values() if isinstance(setting, Mapping) else [] if setting is None else [setting]:
                if not (isinstance(value, Real) and 0 < float(value) < math.inf):
                    raise InvalidArgument(f"MeanField: {name}={value!r} given; expected a finite number > 0.")
        if isinstance(self.prior, Mapping):
            object.__setattr__(self, "prior", {pattern: prior_of(prior) for pattern, prior in self.prior.items()})
        elif self.prior is not None:
            object.__setattr__(self, "prior", prior_of(self.prior))

    def __repr__(self) -> str:
        shown = {"std": _DEFAULT_STD if self.std is None else self.std}
        if self.relative is not None:
            shown = {"relative": self.relative, "least": self.least}
        return call_repr(self, shown if self.prior is None else {**shown, "prior": self.prior})

    def initial(self, mean: Tensor) -> dict[str, Tensor]:
        assert not isinstance(self.std, Mapping)
        assert not isinstance(self.relative, Mapping)
        exact = mean.detach().double()
        if self.relative is not None:
            std = (exact.abs() * self.relative).clamp_min(self.least)
        else:
            std = torch.full_like(exact, _DEFAULT_STD if self.std is None else self.std)
        return {"rho": inverse_softplus(std).to(mean.dtype)}

    def spread(self, mean: Tensor, **learned: Tensor) -> Tensor:
        return F.softplus(learned["rho"])

    def source(self, **learned: Tensor) -> Tensor | None:
        is_overridden = type(self).spread is not MeanField.spread or type(self).noise is not MeanField.noise
        return None if is_overridden else learned["rho"]

    @standard("normal")
    def noise(self, stream: Stream) -> Tensor:
        return stream.normal()
