"""Questions with several answers: a member chooses the one that it finds most likely."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import InvalidArgument, InvalidInput
from ...nn.eval_mode import in_eval
from .._population import Population
from ._batches import checked_batch, checked_members, chunks, drawn_prompts

_NUMBERS = 2**26  # logits that are turned into likelihoods at a time: 256 MiB in single precision


@dataclass(frozen=True)
class _Rows:
    """The sequences of some questions: each prompt with each of its choices, padded on the right."""

    ids: Tensor  # (rows, length)
    mask: Tensor  # (rows, length): no padding
    is_choice: Tensor  # (rows, length − 1): the next token belongs to the choice
    counts: list[int]  # choices of each question
    answers: list[int]


class ChoiceAccuracy:
    """A fitness: the share of questions for which a member finds the right choice the most likely.

    A choice counts by the log-likelihood of its tokens after the prompt, summed or, with `mean=True`, averaged over
    them. All members see the same questions, and each generation draws fresh ones.

    Args:
        prompts: Token ids, one list for each question.
        choices: For each question, the token ids of each choice.
        answers: For each question, the index of the right choice.
        batch: Number of questions in a generation. None for all.
        members: Number of members at a time, which bounds the memory. None for all.
        mean: Compare choices by the mean log-likelihood of a token, which does not favour short ones.

    Raises:
        InvalidArgument: The arguments do not belong together, or one is out of range.

    Example:
        >>> fitness = flipout.es.text.ChoiceAccuracy(prompts, choices, answers, batch=16)
        >>> flipout.es.EvolutionStrategy(model, fitness, scheme="rank_one", ...)
    """

    def __init__(
        self,
        prompts: Sequence[Sequence[int]],
        choices: Sequence[Sequence[Sequence[int]]],
        answers: Sequence[int],
        *,
        batch: int | None = None,
        members: int | None = None,
        mean: bool = False,
    ) -> None:
        self.prompts, self.choices, self.answers, self.mean = list(prompts), list(choices), list(answers), mean
        counts = len(self.prompts), len(self.choices), len(self.answers)
        if len(set(counts)) > 1:
            raise InvalidArgument(
                f"ChoiceAccuracy: {counts[0]} prompts, choices for {counts[1]} and {counts[2]} answers; expected equal "
                "numbers."
            )
        self.batch = checked_batch(batch, len(self.prompts), "ChoiceAccuracy")
        self.members = checked_members(members, "ChoiceAccuracy")
        for i, (prompt, options, answer) in enumerate(zip(self.prompts, self.choices, self.answers, strict=True)):
            if not len(prompt) or not len(options) or not all(map(len, options)):
                raise InvalidArgument(f"ChoiceAccuracy: question {i} has an empty prompt, an empty choice, or none.")
            if not 0 <= answer < len(options):
                raise InvalidArgument(
                    f"ChoiceAccuracy: question {i} has {len(options)} choices, and its answer is {answer!r}; expected "
                    f"0 to {len(options) - 1}."
                )

    def __call__(self, population: Population) -> Tensor:
        """Return the fitness of each member, (population.size,)."""
        questions = self._rows(drawn_prompts(population, len(self.prompts), self.batch), population.model)
        return torch.cat([self._accuracy(part, questions) for part in chunks(population, self.members)])

    @torch.no_grad()
    def evaluate(self, model: nn.Module, questions: int = 16) -> float:
        """Return the accuracy of a model on all questions.

        Args:
            model: A plain model, or the model of a strategy, whose mean weights then choose.
            questions: Number of questions at a time.

        Returns:
            The share of right choices.
        """
        right, every = 0.0, list(range(len(self.prompts)))
        with in_eval(model):
            for first in range(0, len(every), questions):
                rows = self._rows(every[first : first + questions], model)
                output: Any = model(input_ids=rows.ids, attention_mask=rows.mask, **_kept(model, rows))
                right += float(self._is_right(output.logits.unsqueeze(0), rows).sum())
        return right / len(every)

    def _accuracy(self, population: Population, rows: _Rows) -> Tensor:
        ids, mask = (tensor.expand(population.size, *tensor.shape) for tensor in (rows.ids, rows.mask))
        kept = _kept(population.model, rows)
        logits = population(input_ids=ids, attention_mask=mask, batched=True, output="logits", **kept)
        return self._is_right(logits, rows).double().mean(1).cpu()

    def _is_right(self, logits: Tensor, rows: _Rows) -> Tensor:
        """Return (members, questions) from logits (members, rows, length, vocabulary)."""
        row, place = rows.is_choice.nonzero(as_tuple=True)
        left_out = rows.ids.shape[1] - logits.shape[2]
        token = rows.ids[row, place + 1]
        score = logits.new_zeros(logits.shape[:2], dtype=torch.float32)
        # Only the places before a token of a choice count, a few of all, and only some members' are in memory at once.
        at_once = max(1, _NUMBERS // max(len(row) * logits.shape[-1], 1))
        for part, total in zip(logits.split(at_once), score.split(at_once), strict=True):
            chosen = part[:, row, place - left_out]
            if not bool(chosen.isfinite().all()):
                raise InvalidInput("ChoiceAccuracy: the model's logits are not finite. Use a smaller std.")
            likelihood = -F.cross_entropy(chosen.flatten(0, 1).float(), token.repeat(len(chosen)), reduction="none")
            total.index_add_(1, row, likelihood.view(len(chosen), -1))
        if self.mean:
            score = score / rows.is_choice.sum(-1)
        by_question = score.split(rows.counts, 1)
        return torch.stack([s.argmax(1) == answer for s, answer in zip(by_question, rows.answers, strict=True)], 1)

    def _rows(self, questions: Sequence[int], model: nn.Module) -> _Rows:
        device = next(model.parameters()).device
        pairs = [(list(self.prompts[i]), list(choice)) for i in questions for choice in self.choices[i]]
        longest = max(len(prompt) + len(choice) for prompt, choice in pairs)
        config: Any = getattr(model, "config", None)
        context = getattr(config, "max_position_embeddings", None)
        if context is not None and longest > context:
            raise InvalidInput(
                f"ChoiceAccuracy: the longest prompt with its choice has {longest} tokens, but the context of "
                f"{type(model).__name__} has {context}. Leave that question out, or shorten it."
            )
        ids, mask, is_choice = (torch.zeros(len(pairs), longest, dtype=torch.int64) for _ in range(3))
        for row, (prompt, choice) in enumerate(pairs):
            length = len(prompt) + len(choice)
            ids[row, :length] = torch.tensor(prompt + choice)
            mask[row, :length] = 1
            is_choice[row, len(prompt) : length] = 1
        counts = [len(self.choices[i]) for i in questions]
        answers = [self.answers[i] for i in questions]
        return _Rows(ids.to(device), mask.to(device), is_choice[:, 1:].to(device), counts, answers)


def _kept(model: nn.Module, rows: _Rows) -> dict[str, int]:
    """Return the option that makes a model leave out the logits in front of all choices, if it has that option."""
    if "logits_to_keep" not in inspect.signature(model.forward).parameters:
        return {}
    return {"logits_to_keep": rows.ids.shape[1] - int(rows.is_choice.any(0).nonzero()[0])}
