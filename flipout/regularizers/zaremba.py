"""Dropout of the connections that are not recurrent (Zaremba et al., 2014)."""

from typing import Any

from torch import Tensor

from ..ops.recurrent import State
from .base import RegularizedLSTM, Rules
from .masks import probabilities


class ZarembaLSTM(RegularizedLSTM):
    """`dropout` is torch's, between layers, and falls on the input and the output too, anew at every time step."""

    probabilities = ("dropout",)
    ends = True

    def __init__(self, *args: Any, dropout: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        (self.dropout,) = probabilities(self, dropout=dropout)

    def rules(self, x: Tensor, state: State) -> Rules:
        return Rules()
