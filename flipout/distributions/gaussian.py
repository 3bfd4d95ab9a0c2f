"""Gaussian noise with a fixed standard deviation, additive or multiplicative."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from ..draws.noise import Stream
from .base import Distribution, check_std, scale, standard


@dataclass(frozen=True, eq=False)
class Gaussian(Distribution):
    """ΔW ~ N(0, std²). `std` is a number, a tensor that broadcasts to the Parameter, or {glob: number}."""

    std: float | Tensor | Mapping[str, float]
    symmetric = True
    gaussian = True

    def __post_init__(self) -> None:
        check_std(self.std, "Gaussian")

    def spread(self, mean: Tensor, **learned: Tensor) -> Tensor:
        return scale(self.std, mean)  # pyright: ignore[reportArgumentType]

    @standard("normal")
    def noise(self, stream: Stream) -> Tensor:
        return stream.normal()


@dataclass(frozen=True, eq=False)
class MultiplicativeGaussian(Distribution):
    """ΔW ~ N(0, std² W̄²): each weight is multiplied by 1 + std·ε."""

    std: float | Tensor | Mapping[str, float] = 1.0
    symmetric = True
    gaussian = True

    def __post_init__(self) -> None:
        check_std(self.std, "MultiplicativeGaussian")

    def spread(self, mean: Tensor, **learned: Tensor) -> Tensor:
        return scale(self.std, mean) * mean  # pyright: ignore[reportArgumentType]

    @standard("normal")
    def noise(self, stream: Stream) -> Tensor:
        return stream.normal()
