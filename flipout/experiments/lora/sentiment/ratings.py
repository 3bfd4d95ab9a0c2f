"""Sentences with the mean of their human ratings: a synthetic set for tiny models, and those of VADER's authors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flipout.errors import DataError

from ...data import checksums, files

WORDS, LENGTH = 64, 10  # of the synthetic set: words in all, of a sentence at most
_RATED, _FILLER = 4, 28  # where words with a rating begin, and words without
_SEEN = 16  # words with a rating that the training set has
KINDS = ("tweets", "films", "products", "editorials")
TRAINED, SHIFTS = KINDS[0], KINDS[1:]


@dataclass(frozen=True, eq=False)
class Ratings:
    """Sentences (N, T), padded on the right, and their ratings (N,), between −4 and 4. They stay on the CPU."""

    input_ids: Tensor
    attention_mask: Tensor
    rating: Tensor
    source: str

    def __len__(self) -> int:
        return len(self.rating)

    def __getitem__(self, rows: Any) -> "Ratings":
        return Ratings(self.input_ids[rows], self.attention_mask[rows], self.rating[rows], self.source)

    @property
    def items(self) -> int:
        return len(self)

    def by_length(self) -> Tensor:
        """Return the order of the sentences by length, so that batches have little padding."""
        return self.attention_mask.sum(1).argsort(stable=True)

    def inputs(self, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """Return the sentences, as long as the longest of them."""
        longest = int(self.attention_mask.sum(1).max())
        parts = {"input_ids": self.input_ids, "attention_mask": self.attention_mask}
        return {name: value[:, :longest].to(device) for name, value in parts.items()}


def padded(sentences: Sequence[Sequence[int]], ratings: Sequence[float], source: str) -> Ratings:
    """Put sentences together."""
    ids = torch.zeros(len(sentences), max(map(len, sentences)), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, sentence in enumerate(sentences):
        ids[row, : len(sentence)] = torch.tensor(sentence)
        mask[row, : len(sentence)] = 1
    return Ratings(ids, mask, torch.tensor(ratings, dtype=torch.float32), source)


def synthetic(count: int, *, kind: str, noise: float, generator: torch.Generator) -> Ratings:
    """Return sentences whose rating is the sum of those of their words.

    Args:
        count: The number of sentences.
        kind: One of `KINDS`. Each shift has more words with a rating that the training set does not have.
        noise: The standard deviation of the noise of a rating.
        generator: Draws the sentences. The ratings of words are always the same ones.
    """
    words = torch.linspace(-2, 2, _FILLER - _RATED)[torch.arange(_FILLER - _RATED).mul(7) % (_FILLER - _RATED)]
    unseen = KINDS.index(kind) / len(SHIFTS)
    sentences, ratings = [], []
    for _ in range(count):
        length = int(torch.randint(4, LENGTH, (), generator=generator))
        sentence = torch.randint(_FILLER, WORDS, (length,), generator=generator)
        new = torch.rand(2, generator=generator) < unseen
        rated = torch.where(
            new,
            torch.randint(_SEEN, len(words), (2,), generator=generator),
            torch.randint(0, _SEEN, (2,), generator=generator),
        )
        sentence[torch.randperm(length, generator=generator)[:2]] = rated + _RATED
        sentences.append([1, *sentence.tolist(), 2])
        ratings.append(float(words[rated].sum() + noise * torch.randn((), generator=generator)))
    return padded(sentences, ratings, "synthetic ratings, made from the seed")


def vader(kind: str, tokenizer: Any) -> Ratings:
    """Load sentences with the mean of at least 20 human ratings.

    Args:
        kind: One of `KINDS`.
        tokenizer: Turns texts into tokens.

    Raises:
        DataError: The folder in FLIPOUT_DATA has no such file, or another one.
    """
    contents = files.local(checksums.SENTIMENT)
    if contents is None:
        raise DataError(
            f"The ratings are not on this machine. Set {files.VARIABLE} to a folder with "
            f"{checksums.SENTIMENT.files[0].name}; docs/data.md says where it comes from."
        )
    lines = checksums.member(checksums.RATINGS[kind], contents.files[0]).decode().splitlines()
    rows = [line.split("\t", 2) for line in lines]
    sentences = [tokenizer(text, truncation=True, max_length=128)["input_ids"] for _, _, text in rows]
    return padded(sentences, [float(rating) for _, rating, _ in rows], contents.source)
