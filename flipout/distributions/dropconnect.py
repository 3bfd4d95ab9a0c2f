"""Noise of two values: DropConnect, and one bit per weight."""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

from ..draws.noise import Stream
from ..errors import InvalidArgument
from .base import Distribution, check_std, scale, standard


@dataclass(frozen=True, eq=False)
class DropConnect(Distribution):
    """Each weight is dropped with probability p, else scaled by 1 / (1 − p): the Parameter is the mean.

    Symmetric only at p = 0.5, where ΔW is ±W̄, and trivially at p = 0.
    """

    p: float | Mapping[str, float] = 0.5

    def __post_init__(self) -> None:
        for p in self.p.values() if isinstance(self.p, Mapping) else [self.p]:
            if not (isinstance(p, Real) and 0 <= p < 1):
                raise InvalidArgument(f"DropConnect: p={p!r} given; the drop probability lies in [0, 1).")

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


@dataclass(frozen=True, eq=False)
class Rademacher(Distribution):
    """ΔW = ±std with equal probability: one bit of noise per weight."""

    std: float | Tensor | Mapping[str, float]
    symmetric = True

    def __post_init__(self) -> None:
        check_std(self.std, "Rademacher")

    def spread(self, mean: Tensor, **learned: Tensor) -> Tensor:
        return scale(self.std, mean)  # pyright: ignore[reportArgumentType]

    @standard("sign")
    def noise(self, stream: Stream) -> Tensor:
        return stream.sign()
