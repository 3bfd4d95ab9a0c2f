"""Recurrent dropout of the cell's update (Semeniuta, Severyn and Barth, 2016), or of its state."""

from typing import Any, Literal, get_args

from torch import Tensor

from ..errors import InvalidArgument
from ..ops.recurrent import State
from ._lstm import RegularizedLSTM
from ._masks import check_probabilities, draw_mask
from ._rules import Rules, StepMasks

Target = Literal["update", "state"]


class RecurrentDropoutLSTM(RegularizedLSTM):
    """`nn.LSTM` with dropout of the cell's update (Semeniuta, Severyn and Barth, 2016).

    The cell becomes c_t = f ∘ c_{t−1} + i ∘ (d_t ∘ g) with a mask d_t. With `on="state"` it becomes
    c_t = d_t ∘ (f ∘ c_{t−1} + i ∘ g), which forgets what it drops.

    Args:
        *args: As for `nn.LSTM`.
        p: Probability with which a unit is dropped.
        per_step: Whether every time step has a mask of its own; else a sequence has one mask.
        on: What is dropped, "update" or "state".
        **kwargs: As for `nn.LSTM`. Its `dropout` acts between layers.

    Raises:
        InvalidArgument: If p is not in [0, 1), `on` is neither, or `on="state"` comes with `per_step=False`.

    Example:
        >>> lstm = RecurrentDropoutLSTM(650, 650, 2, p=0.3, dropout=0.5)
        >>> y, (h, c) = lstm(torch.randn(35, 20, 650))
    """

    probabilities = ("p",)
    options = ("per_step", "on")

    def __init__(self, *args: Any, p: float, per_step: bool = True, on: Target = "update", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if on not in get_args(Target):
            expected = ", ".join(get_args(Target))
            raise InvalidArgument(f"RecurrentDropoutLSTM: on={on!r} given; expected one of {expected}.")
        if on == "state" and not per_step:
            raise InvalidArgument(
                "RecurrentDropoutLSTM: on='state' with per_step=False given; expected per_step=True. With one mask per "
                "sequence, the kept units would grow by 1 / (1 − p) at every step. Use VariationalLSTM for one mask of "
                "h per sequence."
            )
        (self.p,), self.per_step, self.on = check_probabilities(self, p=p), per_step, on

    def rules(self, x: Tensor, state: State) -> Rules:
        c, steps = state[1], x.shape[1]
        masks = StepMasks(draw_mask(self.p, c, (steps if self.per_step else 1, *c.shape)), steps)
        return Rules(g=masks) if self.on == "update" else Rules(c=masks)
