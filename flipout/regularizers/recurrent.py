"""Recurrent dropout of the cell's update (Semeniuta, Severyn and Barth, 2016), or of its state (Moon et al., 2015)."""

from typing import Any, Literal, get_args

from torch import Tensor

from ..errors import InvalidArgument
from ..ops.recurrent import State
from .base import Masked, RegularizedLSTM, Rules
from .masks import mask, probabilities

On = Literal["update", "state"]


class RecurrentDropoutLSTM(RegularizedLSTM):
    """c_t = f ∘ c_{t−1} + i ∘ (d_t ∘ g): a mask for every time step, or with `per_step=False` one per sequence.

    With `on="state"` it is c_t = d_t ∘ (f ∘ c_{t−1} + i ∘ g), which forgets what it drops.
    """

    probabilities = ("p",)
    options = ("per_step", "on")

    def __init__(self, *args: Any, p: float, per_step: bool = True, on: On = "update", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if on not in get_args(On):
            raise InvalidArgument(f"RecurrentDropoutLSTM: on={on!r} given; expected one of {', '.join(get_args(On))}.")
        (self.p,), self.per_step, self.on = probabilities(self, p=p), per_step, on

    def rules(self, x: Tensor, state: State) -> Rules:
        c, times = state[1], x.shape[1]
        masked = Masked(mask(self.p, c, (times if self.per_step else 1, *c.shape)), times)
        return Rules(g=masked) if self.on == "update" else Rules(c=masked)
