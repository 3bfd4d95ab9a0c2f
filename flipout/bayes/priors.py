"""Priors over single weights.

Every scale is a standard deviation (or the b of a Laplace), never a variance. A number may be a tensor that broadcasts
to the Parameter.
"""

import dataclasses
import math
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import torch
from torch import Tensor

from ..distributions.prior import ClosedForm, Prior, Sampled, as_number
from ..errors import InvalidArgument

__all__ = ["ClosedForm", "Laplace", "LogUniform", "Normal", "Prior", "Sampled", "ScaleMixture"]

Number = float | Tensor
_ENTROPY = (1 + math.log(2 * math.pi)) / 2  # of N(0, 1)


class _OfNumbers(Prior):
    """A dataclass whose fields are the prior's numbers.

    `learn_scale` learns the scales, starting from the given ones.
    """

    scales: ClassVar[tuple[str, ...]] = ()
    shares: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name, value in self._values().items():
            if not isinstance(value, (Real, Tensor)) or isinstance(value, bool):
                raise self.refuse(name, "a number, or a tensor that broadcasts to the Parameter")
            number = as_number(value)
            if not bool(number.isfinite().all()):
                raise self.refuse(name, "finite numbers")
            if name in self.scales and not bool((number > 0).all()):
                raise self.refuse(name, "a scale > 0: a standard deviation (for a Laplace, its b), not a variance")
            if name in self.shares and not bool(((number > 0) & (number < 1)).all()):
                raise self.refuse(name, "a share of the weights, between 0 and 1")
        try:
            torch.broadcast_shapes(self.shape)
        except RuntimeError as error:
            raise InvalidArgument(f"{self}: expected numbers whose shapes broadcast together.") from error

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(torch.broadcast_shapes(*(value.shape for value in self.numbers().values())))

    @property
    def learned(self) -> tuple[str, ...]:
        return self.scales if getattr(self, "learn_scale", False) else ()

    def numbers(self) -> dict[str, Tensor]:
        return {name: as_number(value) for name, value in self._values().items()}

    def refuse(self, name: str, expected: str) -> InvalidArgument:
        return InvalidArgument(f"{type(self).__name__}: {name}={getattr(self, name)!r} given; expected {expected}.")

    def __repr__(self) -> str:
        shown = {
            name: f"<{'×'.join(map(str, value.shape))} tensor>" if isinstance(value, Tensor) and value.dim() else value
            for name, value in self._values().items()
        }
        learned = {"learn_scale": True} if self.learned else {}
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in {**shown, **learned}.items())})"

    def _values(self) -> dict[str, Number]:
        assert dataclasses.is_dataclass(self)
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.type is not bool}


@dataclass(frozen=True, eq=False, repr=False)
class Normal(_OfNumbers, ClosedForm):
    """A normal distribution, w ~ N(mean, std²).

    Args:
        mean: The mean.
        std: The standard deviation, > 0.
        learn_scale: Learn `std`, separately for each Parameter of the model.

    Raises:
        InvalidArgument: A number is not finite, or `std` is not > 0.

    Example:
        >>> flipout.perturb(model, flipout.MeanField(prior=bayes.Normal(0.0, 1.0)))
    """

    mean: Number = 0.0
    std: Number = 1.0
    learn_scale: bool = False
    scales = ("std",)

    def kl(self, mean: Tensor, std: Tensor, numbers: dict[str, Tensor]) -> Tensor:
        ratio, shift = std / numbers["std"], (mean - numbers["mean"]) / numbers["std"]
        return (ratio.square() + shift.square() - 1) / 2 - ratio.log()


@dataclass(frozen=True, eq=False, repr=False)
class Laplace(_OfNumbers, ClosedForm):
    """A Laplace distribution, p(w) = exp(−|w − mean| / scale) / (2 scale).

    Args:
        mean: The mean.
        scale: The scale b, > 0. The standard deviation is √2 b.
        learn_scale: Learn `scale`, separately for each Parameter of the model.

    Raises:
        InvalidArgument: A number is not finite, or `scale` is not > 0.

    Example:
        >>> flipout.MeanField(prior={"*.bias": bayes.Laplace(0.0, 3.0), "*": bayes.Normal()})
    """

    mean: Number = 0.0
    scale: Number = 1.0
    learn_scale: bool = False
    scales = ("scale",)

    def kl(self, mean: Tensor, std: Tensor, numbers: dict[str, Tensor]) -> Tensor:
        shift = (mean - numbers["mean"]) / std
        # E|w − mean| in units of std: the mean of a folded normal distribution.
        distance = math.sqrt(2 / math.pi) * (-shift.square() / 2).exp() + shift * torch.erf(shift / math.sqrt(2))
        ratio = std / numbers["scale"]
        return ratio * distance - ratio.log() + math.log(2) - _ENTROPY


@dataclass(frozen=True, eq=False, repr=False)
class ScaleMixture(_OfNumbers, Sampled):
    """A slab and a spike, pi · N(0, std1²) + (1 − pi) · N(0, std2²), as in Blundell et al. (2015).

    Args:
        pi: The share of the first component, between 0 and 1.
        std1: The standard deviation of the first component, > 0.
        std2: The standard deviation of the second component, > 0.
        learn_scale: Learn `std1` and `std2`, separately for each Parameter of the model.

    Raises:
        InvalidArgument: A number is not finite, or out of its range.

    Example:
        >>> flipout.MeanField(prior=bayes.ScaleMixture(0.25, 1.0, 0.01))
    """

    pi: Number = 0.5
    std1: Number = 1.0
    std2: Number = 0.0025
    learn_scale: bool = False
    scales = ("std1", "std2")
    shares = ("pi",)

    def log_prob(self, weight: Tensor, numbers: dict[str, Tensor]) -> Tensor:
        pi = numbers["pi"]
        slab, spike = (-(weight / std).square() / 2 - std.log() for std in (numbers["std1"], numbers["std2"]))
        return torch.logaddexp(pi.log() + slab, torch.log1p(-pi) + spike) - math.log(2 * math.pi) / 2


@dataclass(frozen=True, eq=False, repr=False)
class LogUniform(_OfNumbers, ClosedForm):
    """The improper prior of variational dropout: p(log|w|) is constant (Kingma et al., 2015).

    The KL is known up to a constant, which is chosen so that it goes to 0 for σ/|W̄| → ∞. Its value is the
    approximation (14) of Molchanov, Ashukha and Vetrov (2017). The error is below 0.0095 nats a weight.

    Example:
        >>> flipout.MeanField(prior=bayes.LogUniform())
    """

    how = "approximation"

    def kl(self, mean: Tensor, std: Tensor, numbers: dict[str, Tensor]) -> Tensor:
        tiny = torch.finfo(mean.dtype).tiny  # keeps log α finite at W̄ = 0, where the KL is 0 anyway
        log_alpha = 2 * (std.log() - mean.abs().clamp_min(tiny).log())
        k1, k2, k3 = 0.63576, 1.87320, 1.48695
        return k1 * torch.sigmoid(-k2 - k3 * log_alpha) + torch.nn.functional.softplus(-log_alpha) / 2
