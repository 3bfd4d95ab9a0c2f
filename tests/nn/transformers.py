"""Torch's transformers, small."""

from typing import Any

import torch
from torch import Tensor, nn

WIDTH, HEADS, WORDS = 4, 2, 6


def options(batch_first: bool, norm_first: bool) -> dict[str, Any]:
    return {
        "dim_feedforward": 3,
        "dropout": 0.0,
        "activation": "gelu",
        "batch_first": batch_first,
        "norm_first": norm_first,
    }


def causal(length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool).triu(1)


class Wrapper(nn.Module):
    """Wraps the transformer, so that it is not the root itself, whose hooks would switch torch's fast path off."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner(*args, **kwargs)
