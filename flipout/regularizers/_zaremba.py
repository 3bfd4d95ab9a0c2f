"""Dropout of the connections that are not recurrent (Zaremba et al., 2014)."""

from typing import Any

from torch import Tensor

from ..ops.recurrent import State
from ._lstm import RegularizedLSTM
from ._masks import check_probabilities
from ._rules import Rules


class ZarembaLSTM(RegularizedLSTM):
    """`nn.LSTM` with dropout of all connections that are not recurrent (Zaremba et al., 2014).

    Masks fall between layers, as torch's own, and on the input and the output too. They are drawn at every time step.

    Args:
        *args: As for `nn.LSTM`.
        dropout: Probability with which a feature is dropped.
        **kwargs: As for `nn.LSTM`.

    Raises:
        InvalidArgument: If the probability is not in [0, 1).

    Example:
        >>> lstm = ZarembaLSTM(650, 650, 2, dropout=0.5)
        >>> y, (h, c) = lstm(torch.randn(35, 20, 650))
    """

    probabilities = ("dropout",)
    ends = True

    def __init__(self, *args: Any, dropout: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        (self.dropout,) = check_probabilities(self, dropout=dropout)

    def rules(self, x: Tensor, state: State) -> Rules:
        return Rules()
