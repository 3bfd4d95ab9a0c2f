"""Priors over single weights. Scales are standard deviations (of a Laplace: its b), never variances."""

import dataclasses
import math
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import torch
from torch import Tensor

from ..distributions.prior import ClosedForm, Prior, Sampled
from ..errors import InvalidArgument

Number = float | Tensor  # a tensor broadcasts to the Parameter


class _OfNumbers(Prior):
    """A dataclass whose numbers are its fields; `learn_scale` starts its scales at them and learns them."""

    scales: ClassVar[tuple[str, ...]] = ()
    shares: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name, value in self._given().items():
            if not isinstance(value, (Real, Tensor)) or isinstance(value, bool):
                raise self.refuse(name, "a number, or a tensor that broadcasts to the Parameter")
            number = torch.as_tensor(value, dtype=torch.float64)
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
        return {name: torch.as_tensor(value, dtype=torch.float64) for name, value in self._given().items()}

    def refuse(self, name: str, expected: str) -> InvalidArgument:
        return InvalidArgument(f"{type(self).__name__}: {name}={getattr(self, name)!r} given; expected {expected}.")

    def __repr__(self) -> str:
        shown = {
            name: f"<{'×'.join(map(str, value.shape))} tensor>" if isinstance(value, Tensor) and value.dim() else value
            for name, value in self._given().items()
        }
        learned = {"learn_scale": True} if self.learned else {}
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in {**shown, **learned}.items())})"

    def _given(self) -> dict[str, Number]:
        assert dataclasses.is_dataclass(self)
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.type is not bool}


@dataclass(frozen=True, eq=False, repr=False)
class Normal(_OfNumbers, ClosedForm):
    """w ~ N(mean, std²)."""

    mean: Number = 0.0
    std: Number = 1.0
    learn_scale: bool = False
    scales = ("std",)

    def kl(self, mean: Tensor, std: Tensor, numbers: dict[str, Tensor]) -> Tensor:
        ratio, shift = std / numbers["std"], (mean - numbers["mean"]) / numbers["std"]
        return (ratio.square() + shift.square() - 1) / 2 - ratio.log()


@dataclass(frozen=True, eq=False, repr=False)
class Laplace(_OfNumbers, ClosedForm):
    """p(w) = exp(−|w − mean| / scale) / (2 scale)."""

    mean: Number = 0.0
    scale: Number = 1.0
    learn_scale: bool = False
    scales = ("scale",)

    def kl(self, mean: Tensor, std: Tensor, numbers: dict[str, Tensor]) -> Tensor:
        shift = (mean - numbers["mean"]) / std
        # E|w − mean|, in units of std: that of a folded normal.
        apart = math.sqrt(2 / math.pi) * (-shift.square() / 2).exp() + shift * torch.erf(shift / math.sqrt(2))
        ratio = std / numbers["scale"]
        return ratio * apart - ratio.log() + math.log(2) - _ENTROPY


@dataclass(frozen=True, eq=False, repr=False)
class ScaleMixture(_OfNumbers, Sampled):
    """Blundell et al. (2015): pi · N(0, std1²) + (1 − pi) · N(0, std2²), a slab and a spike."""

    pi: Number = 0.5
    std1: Number = 1.0
    std2: Number = 0.0025
    learn_scale: bool = False
    scales = ("std1", "std2")
    shares = ("pi",)

    def log_prob(self, weight: Tensor, numbers: dict[str, Tensor]) -> Tensor:
        pi = numbers["pi"]
        slab, spike = (-(weight / s).square() / 2 - s.log() for s in (numbers["std1"], numbers["std2"]))
        return torch.logaddexp(pi.log() + slab, torch.log1p(-pi) + spike) - math.log(2 * math.pi) / 2


@dataclass(frozen=True, eq=False, repr=False)
class LogUniform(_OfNumbers, ClosedForm):
    """p(log|w|) constant: the improper prior of variational dropout (Kingma et al., 2015).

    It is known up to a constant, chosen so that the KL is 0 where σ/|W̄| → ∞. Its value is the approximation (14) of
    Molchanov, Ashukha and Vetrov (2017), which is off by less than 0.0095 nats a weight.
    """

    how = "approximation"

    def kl(self, mean: Tensor, std: Tensor, numbers: dict[str, Tensor]) -> Tensor:
        tiny = torch.finfo(mean.dtype).tiny  # log α at W̄ = 0, where nothing is left of it
        log_alpha = 2 * (std.log() - mean.abs().clamp_min(tiny).log())
        k1, k2, k3 = 0.63576, 1.87320, 1.48695
        return k1 * torch.sigmoid(-k2 - k3 * log_alpha) + torch.nn.functional.softplus(-log_alpha) / 2


_ENTROPY = (1 + math.log(2 * math.pi)) / 2  # of N(0, 1)
