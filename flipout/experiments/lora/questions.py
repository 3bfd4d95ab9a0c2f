"""Questions with several choices: a synthetic set for tiny models, and ARC."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flipout.errors import DataError

from ..data import checksums, files

WORDS, KEYS, SEEN, CHOICES = 64, 16, 12, 4  # synthetic set: words, subjects, subjects that training sees, choices
_KEY, _ANSWER, _FILLER = 4, 20, 36  # where the words of each kind begin
_LENGTH = 8  # of a prompt
NONE = -100  # no label


@dataclass(frozen=True, eq=False)
class Questions:
    """Prompts with their choices, as sequences: (N, C, T) each, padded on the right. They stay on the CPU."""

    input_ids: Tensor
    attention_mask: Tensor
    labels: Tensor  # −100 where there is no token of the choice
    answer: Tensor  # (N,): the right choice
    source: str

    def __len__(self) -> int:
        return len(self.answer)

    def __getitem__(self, rows: Any) -> "Questions":
        parts = (self.input_ids[rows], self.attention_mask[rows], self.labels[rows], self.answer[rows])
        return Questions(*parts, self.source)

    def inputs(self) -> dict[str, Tensor]:
        return {"input_ids": self.input_ids, "attention_mask": self.attention_mask, "labels": self.labels}

    def right(self, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """Return the sequences with the right choice, as long as the longest of them, (N, T) each."""
        rows = torch.arange(len(self))
        longest = int(self._lengths()[rows, self.answer].max())
        return {name: value[rows, self.answer, :longest].to(device) for name, value in self.inputs().items()}

    def by_length(self) -> Tensor:
        """Return the order of the questions by their longest choice, so that batches have little padding."""
        return self._lengths().max(1).values.argsort(stable=True)

    def _lengths(self) -> Tensor:
        return self.attention_mask.sum(2)

    @property
    def items(self) -> int:
        """How many tokens of right choices are predicted."""
        return int((self.right()["labels"][:, 1:] != NONE).sum())


def batched(
    prompts: Sequence[list[int]], choices: Sequence[Sequence[list[int]]], answers: list[int], source: str
) -> Questions:
    """Put questions together. One with fewer choices than others gets choices without tokens."""
    width = max(map(len, choices))
    length = max(len(p) + max(map(len, c)) for p, c in zip(prompts, choices, strict=True))
    ids = torch.zeros(len(prompts), width, length, dtype=torch.int64)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, NONE)
    for n, (prompt, texts) in enumerate(zip(prompts, choices, strict=True)):
        for c in range(width):
            text = texts[c] if c < len(texts) else []
            tokens, start = torch.tensor(prompt + text), len(prompt)
            ids[n, c, : len(tokens)], mask[n, c, : len(tokens)] = tokens, 1
            labels[n, c, start : len(tokens)] = tokens[start:]
    return Questions(ids, mask, labels, torch.tensor(answers), source)


def synthetic(count: int, *, noise: float, unseen: bool, generator: torch.Generator) -> Questions:
    """Return questions whose answer is a text that belongs to one word of the prompt.

    Args:
        count: The number of questions.
        noise: The share of answers that are wrong.
        unseen: Ask for the words that the training set does not have, whose texts nobody can know.
        generator: Draws the questions. The texts themselves are always the same ones.
    """

    def random_ids(least: int, most: int, size: int = 1) -> list[int]:
        return torch.randint(least, most, (size,), generator=generator).tolist()

    texts = [[_ANSWER + key, _ANSWER + (5 * key + 3) % KEYS] for key in range(KEYS)]
    prompts, choices, answers = [], [], []
    for _ in range(count):
        key = random_ids(SEEN, KEYS)[0] if unseen else random_ids(0, SEEN)[0]
        place = random_ids(1, _LENGTH)[0]
        prompt = [1, *random_ids(_FILLER, WORDS, _LENGTH - 1)]
        prompt[place] = _KEY + key
        others = [k for k in torch.randperm(KEYS, generator=generator).tolist() if k != key][: CHOICES - 1]
        order = torch.randperm(CHOICES, generator=generator).tolist()
        listed = [[key, *others][i] for i in order]
        answer = order.index(0)
        if float(torch.rand((), generator=generator)) < noise:
            answer = (answer + random_ids(1, CHOICES)[0]) % CHOICES
        prompts.append(prompt)
        choices.append([texts[k] for k in listed])
        answers.append(answer)
    return batched(prompts, choices, answers, "synthetic questions, made from the seed")


def arc(part: str, split: str, tokenizer: Any, count: int | None, generator: torch.Generator) -> Questions:
    """Load questions of ARC.

    Args:
        part: "easy" or "challenge".
        split: "train" or "test".
        tokenizer: Turns texts into tokens.
        count: How many of them, at random; None for all.
        generator: Chooses them.

    Raises:
        DataError: The folder in FLIPOUT_DATA has no ARC, or a file in it is broken.
    """
    name = f"qa/arc-{part}.{split}.jsonl"
    contents = files.local(checksums.ARC)
    if contents is None:
        raise DataError(
            f"ARC is not on this machine. Set {files.VARIABLE} to a folder with {name}.xz and its siblings; "
            "docs/data.md says what is in them."
        )
    content = contents.files[[file.name for file in checksums.ARC.files].index(name)]
    rows = [json.loads(line) for line in content.decode().splitlines()]
    if count is not None:
        rows = [rows[i] for i in torch.randperm(len(rows), generator=generator).tolist()[:count]]
    prompts = [tokenizer(f"Question: {row['question']}\nAnswer:")["input_ids"] for row in rows]
    choices = [
        [tokenizer(f" {choice}", add_special_tokens=False)["input_ids"] for choice in row["choices"]] for row in rows
    ]
    return batched(prompts, choices, [row["answer"] for row in rows], contents.source)
