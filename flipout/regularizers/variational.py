"""Variational dropout of inputs and hidden states (Gal and Ghahramani, 2016)."""

from typing import Any

from torch import Tensor

from ..errors import InvalidArgument
from ..ops.recurrent import State
from .base import RegularizedLSTM, Rules
from .masks import mask, probabilities


class VariationalLSTM(RegularizedLSTM):
    """x_t ∘ d_x and h_{t−1} ∘ d_h in every layer and direction: a sequence has one mask of each, for all time steps and
    all four gates (the tied weights of their paper)."""

    probabilities = ("p_input", "p_hidden")

    def __init__(self, *args: Any, p_input: float, p_hidden: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.p_input, self.p_hidden = probabilities(self, p_input=p_input, p_hidden=p_hidden)
        if self.dropout:
            raise InvalidArgument(
                f"VariationalLSTM: dropout={self.dropout} given; p_input={p_input} drops the connections between "
                "layers already, with one mask for all time steps. Leave dropout at 0."
            )

    def rules(self, x: Tensor, state: State) -> Rules:
        return Rules(
            x=mask(self.p_input, x, (len(x), 1, x.shape[2])) if self.p_input else None,
            h=mask(self.p_hidden, state[0], state[0].shape) if self.p_hidden else None,
        )
