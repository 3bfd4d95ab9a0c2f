"""Gaussian noise with a fixed standard deviation, additive or multiplicative."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from .._reprs import fields_repr
from ..draws.noise import Stream
from .base import Distribution, check_std, scale, standard


@dataclass(frozen=True, eq=False, repr=False)
class Gaussian(Distribution):
    """Additive Gaussian noise: ΔW ~ N(0, std²).

    Args:
        std: Standard deviation: a number, a tensor that broadcasts to the Parameter, or `{glob: number}` by Parameter
            name.

    Raises:
        InvalidArgument: A standard deviation is negative or not finite.

    Example:
        >>> flipout.perturb(model, flipout.Gaussian(0.1))
        >>> flipout.perturb(model, flipout.Gaussian({"0.*": 0.1, "*": 0.02}))
    """

    std: float | Tensor | Mapping[str, float]
    symmetric = True
    gaussian = True

    def __post_init__(self) -> None:
        check_std(self.std, "Gaussian")

    def __repr__(self) -> str:
        return fields_repr(self)

    def spread(self, mean: Tensor, **learned: Tensor) -> Tensor:
        return scale(self.std, mean)  # pyright: ignore[reportArgumentType]

    @standard("normal")
    def noise(self, stream: Stream) -> Tensor:
        return stream.normal()


@dataclass(frozen=True, eq=False, repr=False)
class MultiplicativeGaussian(Distribution):
    """Multiplicative Gaussian noise: ΔW ~ N(0, std² W̄²). Each weight is multiplied by 1 + std · ε.

    Args:
        std: Standard deviation relative to the weight: a number, a tensor that broadcasts to the Parameter, or
            `{glob: number}` by Parameter name.

    Raises:
        InvalidArgument: A standard deviation is negative or not finite.

    Example:
        >>> flipout.perturb(model, flipout.MultiplicativeGaussian(std=0.5))
    """

    std: float | Tensor | Mapping[str, float] = 1.0
    symmetric = True
    gaussian = True

    def __post_init__(self) -> None:
        check_std(self.std, "MultiplicativeGaussian")

    def __repr__(self) -> str:
        return fields_repr(self)

    def spread(self, mean: Tensor, **learned: Tensor) -> Tensor:
        return scale(self.std, mean) * mean  # pyright: ignore[reportArgumentType]

    @standard("normal")
    def noise(self, stream: Stream) -> Tensor:
        return stream.normal()
