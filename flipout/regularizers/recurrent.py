"""Recurrent dropout of the cell's update (Semeniuta, Severyn and Barth, 2016), or of its state."""

from typing import Any, Literal, get_args

from torch import Tensor

from ..errors import InvalidArgument
from ..ops.recurrent import State
from .base import Masked, RegularizedLSTM, Rules
from .masks import mask, probabilities

On = Literal["update", "state"]


class RecurrentDropoutLSTM(RegularizedLSTM):
    """c_t = f ∘ c_{t−1} + i ∘ (d_t ∘ g): a mask for every time step, or with `per_step=False` one per sequence.

    With `on="state"` it is c_t = d_t ∘ (f ∘ c_{t−1} + i ∘ g), which forgets what it drops; with a mask per step alone.
    """

    probabilities = ("p",)
    options = ("per_step", "on")

    def __init__(self, *args: Any, p: float, per_step: bool = True, on: On = "update", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if on not in get_args(On):
            raise InvalidArgument(f"RecurrentDropoutLSTM: on={on!r} given; expected one of {', '.join(get_args(On))}.")
        if on == "state" and not per_step:
            raise InvalidArgument(
                "RecurrentDropoutLSTM: on='state' with per_step=False given, whose units would grow by 1 / (1 − p) at "
                "every step; expected a mask for each step. Use VariationalLSTM for one mask of h a sequence."
            )
        (self.p,), self.per_step, self.on = probabilities(self, p=p), per_step, on

    def rules(self, x: Tensor, state: State) -> Rules:
        c, times = state[1], x.shape[1]
        masked = Masked(mask(self.p, c, (times if self.per_step else 1, *c.shape)), times)
        return Rules(g=masked) if self.on == "update" else Rules(c=masked)
