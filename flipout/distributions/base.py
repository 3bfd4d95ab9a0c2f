"""WHAT noise: ΔW given the mean W̄, as a spread times standard noise that can be drawn again."""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from numbers import Real
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from .._reprs import short_repr
from ..draws.bits import constant
from ..draws.noise import Stream
from ..errors import InvalidArgument
from .prior import Prior, as_number


class Distribution(ABC):
    """Base class of all noise: ΔŴ = spread(W̄) ∘ noise.

    A subclass defines `spread` and `noise`, and sets the two flags that schemes rely on. If it is a dataclass, its
    fields may also be given as `{glob: value}`; the first glob that matches the Parameter's name counts.

    Attributes:
        symmetric: Whether ΔW and −ΔW have the same distribution. Flipout requires this.
        gaussian: Whether the noise is N(0, 1). Local reparameterisation requires this.

    Example:
        >>> @dataclass(frozen=True)
        ... class Uniform(flipout.Distribution):
        ...     width: float
        ...     symmetric = True
        ...
        ...     def spread(self, mean, **learned):
        ...         return mean.new_full((), self.width)
        ...
        ...     def noise(self, stream):
        ...         return (stream.uniform().double() / 2**31 - 1).to(stream.dtype)
    """

    symmetric: bool = False
    gaussian: bool = False

    @abstractmethod
    def spread(self, mean: Tensor, **learned: Tensor) -> Tensor:
        """Return the scale of the noise, differentiable in the mean and in the learned Parameters.

        Args:
            mean: The Parameter.
            **learned: The Parameters of a `LearnedDistribution`, by suffix.

        Returns:
            A tensor of a shape that broadcasts to the mean's.
        """

    @abstractmethod
    def noise(self, stream: Stream) -> Tensor:
        """Return standard noise of mean 0, which depends on nothing that is learned.

        Args:
            stream: The source of randomness. Its methods `normal`, `uniform` and `sign` return one number per weight.

        Returns:
            A tensor of shape (starting points, *stream.shape).
        """

    def source(self, **learned: Tensor) -> Tensor | None:
        """Return the learned Parameter whose softplus is the spread, of the mean's shape; None if there is none.

        Kernels then compute the spread together with the noise.

        Args:
            **learned: The Parameters of a `LearnedDistribution`, by suffix.
        """
        return None

    def factors(self, **learned: Tensor) -> Tensor | None:
        """Return directions (rank, *shape) that each example follows with N(0, 1) coefficients; None if there are none.

        They come on top of the noise: ΔW_n = spread ∘ noise + Σ_j z_nj U_j.

        Args:
            **learned: The Parameters of a `LearnedDistribution`, by suffix.
        """
        return None

    def named(self, name: str) -> Self:
        """Return this distribution for one Parameter: fields given as `{glob: value}` are looked up by its name.

        Args:
            name: The name of the Parameter in the model.

        Raises:
            InvalidArgument: No glob of a field matches the name.
        """
        if not dataclasses.is_dataclass(self):
            return self
        chosen = {
            field.name: _lookup(value, name, f"{type(self).__name__}({field.name}={{…}})")
            for field in dataclasses.fields(self)
            if isinstance(value := getattr(self, field.name), Mapping)
        }
        return dataclasses.replace(self, **chosen) if chosen else self


class LearnedDistribution(Distribution):
    """Base class of noise with learned Parameters, which are stored beside each perturbed Parameter.

    Attributes:
        prior: The prior that `flipout.bayes.kl` compares the distribution with, or `{glob: prior}`.

    Example:
        >>> class LogScale(flipout.LearnedDistribution):
        ...     symmetric = gaussian = True
        ...
        ...     def initial(self, mean):
        ...         return {"log_std": torch.full_like(mean, -3.0)}
        ...
        ...     def spread(self, mean, **learned):
        ...         return learned["log_std"].exp()
        ...
        ...     def noise(self, stream):
        ...         return stream.normal()
    """

    prior: Prior | Mapping[str, Prior] | None = None

    @abstractmethod
    def initial(self, mean: Tensor) -> dict[str, Tensor]:
        """Return the initial values of the learned Parameters, of any shape, by suffix.

        The suffix `rho` of a Parameter `weight` gives a Parameter `weight_rho`, which `spread` receives as `rho=`.

        Args:
            mean: The Parameter that is perturbed.
        """


def _lookup(table: Mapping[str, Any], name: str, what: str) -> Any:
    for pattern, value in table.items():
        if fnmatchcase(name, pattern):
            return value
    raise InvalidArgument(
        f"{what}: no pattern of {list(table)} matches Parameter '{name}'. Add one, or '*' as the last."
    )


def check_std(std: Any, what: str) -> None:
    """Refuse a standard deviation, or a mapping to standard deviations, that is negative or not finite."""
    for value in std.values() if isinstance(std, Mapping) else [std]:
        number = as_number(value if isinstance(value, (Real, Tensor)) else math.nan)
        if not bool((torch.isfinite(number) & (number >= 0)).all()):
            raise InvalidArgument(f"{what}: std={short_repr(value)} given; expected a finite standard deviation ≥ 0.")


def scale(std: float | Tensor, mean: Tensor) -> Tensor:
    """Return `std` as a tensor with the dtype and device of the mean."""
    if isinstance(std, Tensor):
        return std.to(mean)
    if type(mean) in (Tensor, nn.Parameter):  # filling it would take a launch for every Parameter and call
        return constant(_filled, float(std), mean.dtype, mean.device)
    return mean.new_full((), std)


def _filled(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.full((), value, dtype=dtype, device=device)


Kind = Literal["normal", "sign"]


def standard(kind: Kind | Callable[[Any], Kind | None]) -> Callable[[Callable], Callable]:
    """Mark a `noise` method that returns exactly `stream.normal()` or `stream.sign()`, so that kernels may replace it.

    A subclass that overrides the method loses the mark.
    """

    def mark(noise: Callable) -> Callable:
        noise.kind = kind if callable(kind) else lambda _: kind  # pyright: ignore[reportFunctionMemberAccess]
        return noise

    return mark
