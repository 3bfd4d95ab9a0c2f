"""Noise with two values: DropConnect, and random signs."""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

from .._reprs import fields_repr
from ..draws.noise import Stream
from ..errors import InvalidArgument
from .base import Distribution, check_std, scale, standard


@dataclass(frozen=True, eq=False, repr=False)
class DropConnect(Distribution):
    """DropConnect: each weight is dropped with probability p and scaled by 1 / (1 − p) otherwise.

    The Parameter is the mean, so eval mode needs no rescaling. The noise is symmetric, as flipout requires, only for
    p = 0.5, where ΔW is ±W̄, and for p = 0.

    Args:
        p: Drop probability in [0, 1), or `{glob: probability}` by Parameter name.

    Raises:
        InvalidArgument: A probability is outside [0, 1).

    Example:
        >>> flipout.perturb(model, flipout.DropConnect(0.5))
        >>> flipout.perturb(model, flipout.DropConnect(0.2), scheme="independent")
    """

    p: float | Mapping[str, float] = 0.5

    def __post_init__(self) -> None:
        for p in self.p.values() if isinstance(self.p, Mapping) else [self.p]:
            if not (isinstance(p, Real) and 0 <= p < 1):
                raise InvalidArgument(f"DropConnect: p={p!r} given; expected a drop probability in [0, 1).")

    def __repr__(self) -> str:
        return fields_repr(self)

    @property
    def symmetric(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.p in (0, 0.5)

    def spread(self, mean: Tensor, **learned: Tensor) -> Tensor:
        return mean

    @standard(lambda self: "sign" if self.p == 0.5 else None)
    def noise(self, stream: Stream) -> Tensor:
        p = self.p
        assert not isinstance(p, Mapping)
        if p == 0.5:
            return stream.sign()
        dropped = stream.uniform() < round(p * 2**32)
        keep = torch.full((), p / (1 - p), dtype=stream.dtype, device=stream.start.device)
        return torch.where(dropped, -1.0, keep)


@dataclass(frozen=True, eq=False, repr=False)
class Rademacher(Distribution):
    """Rademacher noise: ΔW is +std or −std with equal probability.

    Args:
        std: Size of the noise: a number, a tensor that broadcasts to the Parameter, or `{glob: number}` by Parameter
            name.

    Raises:
        InvalidArgument: A size is negative or not finite.

    Example:
        >>> flipout.perturb(model, flipout.Rademacher(0.05))
    """

    std: float | Tensor | Mapping[str, float]
    symmetric = True

    def __post_init__(self) -> None:
        check_std(self.std, "Rademacher")

    def __repr__(self) -> str:
        return fields_repr(self)

    def spread(self, mean: Tensor, **learned: Tensor) -> Tensor:
        return scale(self.std, mean)  # pyright: ignore[reportArgumentType]

    @standard("sign")
    def noise(self, stream: Stream) -> Tensor:
        return stream.sign()
