"""The reward of the texts that a member writes."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..._arguments import whole_number as whole_number
from ...errors import InvalidArgument, InvalidInput
from ...nn.eval_mode import in_eval
from .._decode import Sampling
from .._generate import Generated, written_by
from .._population import Population
from ._batches import checked_batch, checked_members, drawn_prompts

Reward = Callable[[Any, int], Any]


class TextReward:
    """A fitness: the mean reward of the texts that a member writes for some prompts.

    All members see the same prompts, and each generation draws fresh ones, so members differ by their weights alone.

    Args:
        prompts: Token ids, one list for each prompt.
        reward: Called with a text and the index of its prompt; returns a number or a bool, such as the verdict of a
            checker. Without a tokenizer the text is a list of token ids.
        max_new_tokens: Largest number of tokens of a text.
        tokenizer: Decodes the texts: anything with `decode(ids, skip_special_tokens=True)`.
        batch: Number of prompts in a generation. None for all.
        members: Number of members that write at a time, which bounds the memory. None for all.
        **sampling: `do_sample`, `temperature`, `top_k`, `eos_token_id`, `pad_token_id` and `captured` of
            `Population.generate`.

    Raises:
        InvalidArgument: An argument is out of range.

    Example:
        >>> prompts = tokenizer(["2 + 2 =", …])["input_ids"]
        >>> is_right = flipout.es.text.exact_match(answers)
        >>> fitness = flipout.es.text.TextReward(prompts, is_right, 40, tokenizer=tokenizer, batch=8)
        >>> flipout.es.EvolutionStrategy(model, fitness, scheme="rank_one", ...)
    """

    def __init__(
        self,
        prompts: Sequence[Sequence[int]],
        reward: Reward,
        max_new_tokens: int,
        *,
        tokenizer: Any = None,
        batch: int | None = None,
        members: int | None = None,
        **sampling: Any,
    ) -> None:
        if not callable(reward):
            raise InvalidArgument(
                f"TextReward(reward={reward!r}): expected a function of a text and the index of its prompt, such as "
                "flipout.es.text.exact_match(answers)."
            )
        self.prompts, self.reward, self.tokenizer, self.sampling = list(prompts), reward, tokenizer, sampling
        self.max_new_tokens = whole_number("max_new_tokens", max_new_tokens, 1, of="TextReward")
        self.batch = checked_batch(batch, len(self.prompts), "TextReward")
        self.members = checked_members(members, "TextReward")

    def __call__(self, population: Population) -> Tensor:
        """Return the fitness of each member, (population.size,)."""
        chosen = drawn_prompts(population, len(self.prompts), self.batch)
        prompts = [self.prompts[i] for i in chosen]
        written = population.generate(prompts, self.max_new_tokens, members=self.members, **self.sampling)
        return self._rewards(written, chosen).mean(1)

    def evaluate(self, model: nn.Module) -> float:
        """Return the mean reward of a model's own greedy texts for all prompts.

        Args:
            model: A plain model, or the model of a strategy, whose mean weights then write.

        Returns:
            The mean over the prompts.
        """
        with in_eval(model):
            ends = {name: self.sampling.get(name) for name in ("eos_token_id", "pad_token_id")}
            written = written_by(model, self.prompts, self.max_new_tokens, Sampling(False, 1.0, None), **ends)
        return float(self._rewards(written, range(len(self.prompts))).mean())

    def _rewards(self, written: Generated, chosen: Sequence[int]) -> Tensor:
        """Return (members, prompts) rewards."""
        if self.tokenizer is None:
            lengths = written.lengths.tolist()
            rows = zip(written.tokens.tolist(), lengths, strict=True)
            texts: list[list[Any]] = [[ids[:n] for ids, n in zip(*row, strict=True)] for row in rows]
        else:
            texts = written.texts(self.tokenizer)
        rewards = [[self._number(text, i) for text, i in zip(row, chosen, strict=True)] for row in texts]
        return torch.tensor(rewards, dtype=torch.float64)

    def _number(self, text: Any, prompt: int) -> float:
        reward = self.reward(text, prompt)
        try:
            number = float(reward)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidInput(
                f"The reward of a text for prompt {prompt} is {reward!r}; expected one number or a bool."
            ) from error
        if not math.isfinite(number):
            raise InvalidInput(
                f"The reward of a text for prompt {prompt} is {number}; expected a finite number. Return the worst "
                f"reward instead. The text: {text!r}"
            )
        return number


def exact_match(answers: Sequence[str]) -> Reward:
    """Return a reward: 1 if a text is the answer of its prompt, else 0. Spaces around both do not count.

    Args:
        answers: The answer of each prompt.

    Returns:
        A reward for `TextReward`, which then needs a tokenizer.

    Example:
        >>> flipout.es.text.TextReward(prompts, flipout.es.text.exact_match(["4", "Paris"]), 8, tokenizer=tokenizer)
    """
    stripped = [answer.strip() for answer in answers]
    return lambda text, i: text.strip() == stripped[i]
