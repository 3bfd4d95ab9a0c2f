"""Zoneout: units keep their last value (Krueger et al., 2016)."""

from typing import Any

import torch
from torch import Tensor

from ..ops.recurrent import State
from .base import RegularizedLSTM, Rules, Zoned
from .masks import mask, probabilities


class ZoneoutLSTM(RegularizedLSTM):
    """At every time step a unit of h keeps its last value with probability `zoneout_h`, and one of c with `zoneout_c`.

    In eval mode each takes the average z · last + (1 − z) · made. The h made comes from the c made, kept or not.
    """

    probabilities = ("zoneout_h", "zoneout_c")
    own_eval = True

    def __init__(self, *args: Any, zoneout_h: float, zoneout_c: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.zoneout_h, self.zoneout_c = probabilities(self, zoneout_h=zoneout_h, zoneout_c=zoneout_c)

    def rules(self, x: Tensor, state: State) -> Rules:
        chances = (self.zoneout_h, self.zoneout_c)
        if not self.training:
            return Rules(state=lambda made, last: tuple(map(torch.lerp, made, last, chances)))
        drawn = [mask(z, part, (x.shape[1], *part.shape)) == 0 for z, part in zip(chances, state, strict=True)]
        return Rules(state=Zoned(*drawn))
