"""Dropout masks, and the check of their probabilities."""

from collections.abc import Sequence
from numbers import Real
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from ..errors import InvalidArgument


def check_probabilities(owner: object, **named: Any) -> list[float]:
    """Return the probabilities as numbers; refuse one outside [0, 1) by its name."""
    for name, p in named.items():
        if not (isinstance(p, Real) and 0 <= float(p) < 1):
            raise InvalidArgument(
                f"{type(owner).__name__}: {name}={p!r} given; expected a probability in [0, 1), such as {name}=0.5. "
                f"Use {name}=0 to switch it off."
            )
    return [float(p) for p in named.values()]


def draw_mask(p: float, like: Tensor, shape: Sequence[int]) -> Tensor:
    """Return a mask that is 0 with probability p, else 1 / (1 − p), from torch's global generator."""
    return F.dropout(like.new_ones(shape), p)
