"""Embedding dropout: whole words, wherever they occur."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from .masks import mask, probabilities


class EmbeddingDropout(nn.Embedding):
    """`torch.nn.Embedding`: in training each row is dropped with probability p, for all its occurrences in a call.

    The `padding_idx` row is neither dropped nor scaled.
    """

    def __init__(self, *args: Any, p: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        (self.p,) = probabilities(self, p=p)

    def forward(self, input: Tensor) -> Tensor:
        return _dropped(super().forward(input), self, input, self.p, self.training)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, p={self.p}"


def embedding_dropout(embedding: nn.Embedding, words: Tensor, p: float, training: bool = True) -> Tensor:
    """`embedding(words)`, (…, features), with the rows dropped as `EmbeddingDropout` drops them."""
    (p,) = probabilities(embedding, p=p)
    return _dropped(embedding(words), embedding, words, p, training)


def _dropped(y: Tensor, table: nn.Embedding, words: Tensor, p: float, training: bool) -> Tensor:
    if not (training and p):
        return y
    kept = mask(p, y, (table.num_embeddings, 1))
    if table.padding_idx is not None:
        kept[table.padding_idx] = 1
    return y * F.embedding(words, kept)
