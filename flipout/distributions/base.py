"""WHAT noise: ΔW given the mean W̄, always as a spread times standard noise that can be made again."""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from fnmatch import fnmatchcase
from numbers import Real
from typing import Any, Self

import torch
from torch import Tensor

from ..errors import InvalidArgument
from ..random import transformed
from ..streams import Stream
from .prior import Prior


class Distribution(ABC):
    """ΔŴ = spread(W̄) ∘ noise. Subclasses say both, and what schemes may rely on."""

    symmetric: bool = False  # ΔW and −ΔW have the same distribution: flipout may flip it
    gaussian: bool = False  # noise is N(0, 1): local reparameterisation may sum it

    @abstractmethod
    def spread(self, mean: Tensor, **learned: Tensor) -> Tensor:
        """The scale of the noise, broadcastable to the mean; differentiable in it and in the learned Parameters."""

    @abstractmethod
    def noise(self, stream: Stream) -> Tensor:
        """Standard noise: mean 0, nothing learned."""

    def named(self, name: str) -> Self:
        """This distribution for one Parameter: fields given as {glob: value} are looked up by its name."""
        if not dataclasses.is_dataclass(self):
            return self
        chosen = {
            field.name: _lookup(value, name, f"{type(self).__name__}({field.name}={{…}})")
            for field in dataclasses.fields(self)
            if isinstance(value := getattr(self, field.name), Mapping)
        }
        return dataclasses.replace(self, **chosen) if chosen else self


class LearnedDistribution(Distribution):
    """A distribution with Parameters of its own beside each perturbed one."""

    prior: Prior | Mapping[str, Prior] | None = None  # what `flipout.bayes.kl` compares it with

    @abstractmethod
    def initial(self, mean: Tensor) -> dict[str, Tensor]:
        """Suffix → initial value: `weight` gets `weight_<suffix>`, handed to `spread` as `<suffix>=`."""


def _lookup(table: Mapping[str, Any], name: str, what: str) -> Any:
    for pattern, value in table.items():
        if fnmatchcase(name, pattern):
            return value
    raise InvalidArgument(
        f"{what}: no pattern of {list(table)} matches Parameter '{name}'. Add one, or '*' as the last."
    )


def check_std(std: Any, what: str) -> None:
    for value in std.values() if isinstance(std, Mapping) else [std]:
        number = torch.as_tensor(value if isinstance(value, (Real, Tensor)) else math.nan, dtype=torch.float64)
        if not bool((torch.isfinite(number) & (number >= 0)).all()):
            raise InvalidArgument(f"{what}: std={value!r} given; a standard deviation is a finite number ≥ 0.")


def scale(std: float | Tensor, mean: Tensor) -> Tensor:
    return std.to(mean) if isinstance(std, Tensor) else mean.new_full((), std)


class _Replayed(torch.autograd.Function):
    """spread ∘ noise, which keeps the streams' starting points for backward and makes the noise again.

    A CPU keeps the noise itself: there, making it costs as much as a matrix product.
    """

    @staticmethod
    def forward(ctx: Any, spread: Tensor, start: Tensor, distribution: Distribution, shape: tuple[int, ...]) -> Tensor:
        ctx.distribution, ctx.shape, ctx.spread_shape = distribution, shape, spread.shape
        noise = distribution.noise(Stream(start, shape, spread.dtype))
        ctx.save_for_backward(start, noise if start.device.type == "cpu" else None)
        return spread * noise

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        start, noise = ctx.saved_tensors
        (grad,) = grads
        if noise is None:
            noise = ctx.distribution.noise(Stream(start, ctx.shape, grad.dtype))
        return (grad * noise).sum_to_size(ctx.spread_shape), None, None, None


def sample(distribution: Distribution, spread: Tensor, start: Tensor, shape: tuple[int, ...]) -> Tensor:
    """ΔŴ of `shape` for each starting point."""
    if spread.requires_grad and not transformed():
        return _Replayed.apply(spread, start, distribution, shape)  # pyright: ignore[reportReturnType]
    return spread * distribution.noise(Stream(start, shape, spread.dtype))
