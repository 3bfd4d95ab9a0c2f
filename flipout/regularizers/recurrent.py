"""Recurrent dropout of the cell's update (Semeniuta, Severyn and Barth, 2016)."""

from typing import Any

from torch import Tensor

from ..ops.recurrent import State
from .base import Masked, RegularizedLSTM, Rules
from .masks import mask, probabilities


class RecurrentDropoutLSTM(RegularizedLSTM):
    """c_t = f ∘ c_{t−1} + i ∘ (d_t ∘ g): a mask for every time step, or with `per_step=False` one per sequence."""

    probabilities = ("p",)
    options = ("per_step",)

    def __init__(self, *args: Any, p: float, per_step: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        (self.p,), self.per_step = probabilities(self, p=p), per_step

    def rules(self, x: Tensor, state: State) -> Rules:
        c, times = state[1], x.shape[1]
        return Rules(g=Masked(mask(self.p, c, (times if self.per_step else 1, *c.shape)), times))
