"""Zoneout: units keep their last value (Krueger et al., 2016)."""

from typing import Any

import torch
from torch import Tensor

from ..ops.recurrent import State
from ._lstm import RegularizedLSTM
from ._masks import check_probabilities, draw_mask
from ._rules import Rules, Zoneout


class ZoneoutLSTM(RegularizedLSTM):
    """`nn.LSTM` with zoneout: some units of h and c keep their last value (Krueger et al., 2016).

    Units are drawn at every time step. In eval mode each unit takes the average z · last + (1 − z) · new. The new h
    follows from the new c, whether that unit of c is kept or not.

    Args:
        *args: As for `nn.LSTM`.
        zoneout_h: Probability with which a unit of h keeps its value.
        zoneout_c: Probability with which a unit of c keeps its value.
        **kwargs: As for `nn.LSTM`. Its `dropout` acts between layers.

    Raises:
        InvalidArgument: If a probability is not in [0, 1).

    Example:
        >>> lstm = ZoneoutLSTM(650, 650, 2, zoneout_h=0.025, zoneout_c=0.25)
        >>> y, (h, c) = lstm(torch.randn(35, 20, 650))
    """

    probabilities = ("zoneout_h", "zoneout_c")
    own_eval = True

    def __init__(self, *args: Any, zoneout_h: float, zoneout_c: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.zoneout_h, self.zoneout_c = check_probabilities(self, zoneout_h=zoneout_h, zoneout_c=zoneout_c)

    def rules(self, x: Tensor, state: State) -> Rules:
        chances = (self.zoneout_h, self.zoneout_c)
        if not self.training:
            return Rules(state=lambda new, last: tuple(map(torch.lerp, new, last, chances)))
        keeps = [draw_mask(z, part, (x.shape[1], *part.shape)) == 0 for z, part in zip(chances, state, strict=True)]
        return Rules(state=Zoneout(*keeps))
