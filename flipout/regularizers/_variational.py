"""Variational dropout of inputs and hidden states (Gal and Ghahramani, 2016)."""

from typing import Any

from torch import Tensor

from ..errors import InvalidArgument
from ..ops.recurrent import State
from ._lstm import RegularizedLSTM
from ._masks import check_probabilities, draw_mask
from ._rules import Rules


class VariationalLSTM(RegularizedLSTM):
    """`nn.LSTM` with variational dropout of its inputs and hidden states (Gal and Ghahramani, 2016).

    Every layer and direction sees x_t ∘ d_x and h_{t−1} ∘ d_h. A sequence has one mask of each kind, for all time steps
    and all four gates: the tied weights of their paper.

    Args:
        *args: As for `nn.LSTM`.
        p_input: Probability with which a feature of x is dropped.
        p_hidden: Probability with which a unit of h is dropped.
        **kwargs: As for `nn.LSTM`, but without `dropout`.

    Raises:
        InvalidArgument: If a probability is not in [0, 1), or `dropout` is given.

    Example:
        >>> lstm = VariationalLSTM(650, 650, 2, p_input=0.35, p_hidden=0.2)
        >>> y, (h, c) = lstm(torch.randn(35, 20, 650))
    """

    probabilities = ("p_input", "p_hidden")

    def __init__(self, *args: Any, p_input: float, p_hidden: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.p_input, self.p_hidden = check_probabilities(self, p_input=p_input, p_hidden=p_hidden)
        if self.dropout:
            raise InvalidArgument(
                f"VariationalLSTM: dropout={self.dropout} given; p_input={p_input} already drops the connections "
                "between layers, with one mask for all time steps. Leave dropout at 0."
            )

    def rules(self, x: Tensor, state: State) -> Rules:
        return Rules(
            x=draw_mask(self.p_input, x, (len(x), 1, x.shape[2])) if self.p_input else None,
            h=draw_mask(self.p_hidden, state[0], state[0].shape) if self.p_hidden else None,
        )
