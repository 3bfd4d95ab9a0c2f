"""Embedding dropout: whole words, wherever they occur."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ._masks import check_probabilities, draw_mask


class EmbeddingDropout(nn.Embedding):
    """`nn.Embedding` that drops whole words in training.

    A dropped word is dropped wherever it occurs in a call. The row of `padding_idx` is neither dropped nor scaled.

    Args:
        *args: As for `nn.Embedding`.
        p: Probability with which a word is dropped.
        **kwargs: As for `nn.Embedding`.

    Raises:
        InvalidArgument: If p is not in [0, 1).

    Example:
        >>> table = EmbeddingDropout(10_000, 650, p=0.1)
        >>> table(torch.randint(10_000, (35, 20)))  # (35, 20, 650)
    """

    def __init__(self, *args: Any, p: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        (self.p,) = check_probabilities(self, p=p)

    def forward(self, input: Tensor) -> Tensor:
        return _drop_words(super().forward(input), self, input, self.p, self.training)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, p={self.p}"


def embedding_dropout(embedding: nn.Embedding, words: Tensor, p: float, training: bool = True) -> Tensor:
    """Look words up in a table and drop some of them, as `EmbeddingDropout` does.

    Args:
        embedding: The table, which may be tied to a decoder.
        words: Indices of words, of any shape.
        p: Probability with which a word is dropped.
        training: Whether words are dropped at all.

    Returns:
        The rows of the words, (*words.shape, features).

    Raises:
        InvalidArgument: If p is not in [0, 1).

    Example:
        >>> embedding_dropout(table, words, 0.1, model.training)
    """
    (p,) = check_probabilities(embedding, p=p)
    return _drop_words(embedding(words), embedding, words, p, training)


def _drop_words(y: Tensor, table: nn.Embedding, words: Tensor, p: float, training: bool) -> Tensor:
    if not (training and p):
        return y
    factors = draw_mask(p, y, (table.num_embeddings, 1))
    if table.padding_idx is not None:
        factors[table.padding_idx] = 1
    return y * F.embedding(words, factors)
