"""A record of every mask that is drawn, in order."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

draw = F.dropout


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The masks that dropout has drawn since the fixture was requested, or since the list was cleared."""
    masks = []

    def recorded(x: Tensor, p: float = 0.5, training: bool = True, **options: Any) -> Tensor:
        if not training:
            return x
        masks.append(draw(torch.ones_like(x), p))
        return x * masks[-1]

    monkeypatch.setattr(F, "dropout", recorded)
    return masks
