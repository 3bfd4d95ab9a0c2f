"""What an optimiser steps where the model has half precision: copies in single precision."""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from ..draws.noise import NOISE, Stream, stream_starts
from ..errors import InvalidArgument, RunError

Rounding = Literal["master", "stochastic", "nearest"]
ROUNDINGS: tuple[Rounding, ...] = get_args(Rounding)
_HALF = (torch.bfloat16, torch.float16)


def check_rounding(rounding: str) -> None:
    """Refuse an unknown way of rounding."""
    if rounding not in ROUNDINGS:
        raise InvalidArgument(
            f"rounding={rounding!r}: expected 'master', 'stochastic' or 'nearest', which say how an update reaches "
            "Parameters in half precision."
        )


class Masters:
    """The Parameters that the optimiser steps, one for each trained Parameter.

    bf16 has 8 bits of precision, so a step below 1/512 of a weight rounds to no step at all. A Parameter in half
    precision therefore has a master in single precision. With "stochastic", the master lives for one step only, and the
    result is rounded up or down at random, so that it is right on average. With "nearest", there are no masters.
    """

    def __init__(self, trained: Sequence[nn.Parameter], rounding: Rounding) -> None:
        self.trained, self.rounding = list(trained), rounding
        self.stepped = [self._master_of(parameter) for parameter in trained]
        self._by_id = {id(p): master for p, master in zip(self.trained, self.stepped, strict=True)}

    def __getitem__(self, parameter: nn.Parameter) -> nn.Parameter:
        """Return what the optimiser steps in place of a Parameter."""
        if id(parameter) not in self._by_id:
            raise RunError(
                f"A Parameter of shape {tuple(parameter.shape)} is unknown to the strategy: the model's "
                "Parameters were replaced, by fully_shard for example. Make a new strategy for the changed model."
            )
        return self._by_id[id(parameter)]

    def fill(self) -> None:
        """Prepare the masters for a step."""
        self._follow()
        for parameter, master in self._pairs():
            if self.rounding == "stochastic":
                master.data = parameter.detach().float()

    def write(self, seed: int) -> None:
        """Write the masters to the Parameters. `seed` is that of random rounding."""
        for i, (parameter, master) in enumerate(self._pairs()):
            if self.rounding == "master":
                parameter.copy_(master)
            else:
                parameter.copy_(rounded_at_random(master, parameter.dtype, seed, i))
                master.data = master.new_zeros(()).expand_as(parameter)  # the shape without the memory

    def state(self) -> list[Tensor]:
        """Return copies of the masters that last from step to step; empty if the model's weights are all there is."""
        self._follow()
        return [master.detach().clone() for _, master in self.lasting()]

    def load(self, values: Sequence[Tensor]) -> None:
        """Continue from the masters of another strategy, or without any from the model's weights."""
        pairs = self.lasting()
        with torch.no_grad():
            for (_, master), value in zip(pairs, values or [p for p, _ in pairs], strict=True):
                master.copy_(value)

    def lasting(self) -> list[tuple[nn.Parameter, nn.Parameter]]:
        """Return each Parameter in half precision with its master, if masters last from step to step."""
        return self._pairs() if self.rounding == "master" else []

    @torch.no_grad()
    def _follow(self) -> None:
        """Set the masters of weights that were set by hand, such as clipped ones. All other masters stay."""
        for parameter, master in self.lasting():
            is_same = master.to(parameter.dtype) == parameter
            if not bool(is_same.all()):
                master.copy_(torch.where(is_same, master, parameter.float()))

    def _pairs(self) -> list[tuple[nn.Parameter, nn.Parameter]]:
        """Return each Parameter in half precision with its master."""
        return [(p, master) for p, master in zip(self.trained, self.stepped, strict=True) if master is not p]

    def _master_of(self, parameter: nn.Parameter) -> nn.Parameter:
        if parameter.dtype not in _HALF or self.rounding == "nearest":
            return parameter
        return nn.Parameter(parameter.detach().float())


def rounded_at_random(values: Tensor, dtype: torch.dtype, seed: int, key: int) -> Tensor:
    """Round fp32 numbers to one of their two neighbours in half precision, each the more likely the nearer it is.

    The random numbers are those of seed and key, on every device.
    """
    nearest = values.to(dtype)
    excess = values - nearest.float()
    beyond = torch.where(excess > 0, torch.inf, -torch.inf).to(dtype)
    other = torch.nextafter(nearest, beyond)
    share = (excess / (other.float() - nearest.float())).nan_to_num(0.0)  # of the way to the other neighbour
    start = stream_starts(torch.tensor(seed, device=values.device), key, NOISE, 0, 1)
    uniform = Stream(start, tuple(values.shape), torch.float32).uniform().squeeze(0)
    return torch.where((excess != 0) & (uniform < share.double() * 2**32), other, nearest)
