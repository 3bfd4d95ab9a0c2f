"""Texts that the members of a population write, each under its own weights from the first token to the last."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from .._arguments import whole_number
from ..errors import InvalidArgument, InvalidInput, Unsupported
from ._decode import Sampling, continue_prompts
from ._prompts import Prompts, checked_length, checked_prompts
from ._seeds import seed_of

if TYPE_CHECKING:
    from ._population import Population


@dataclass(frozen=True, eq=False, repr=False)
class Generated:
    """The new tokens of every member for every prompt.

    Example:
        >>> population.generate(prompts, 20).texts(tokenizer)
    """

    tokens: Tensor  # (members, prompts, tokens). After the end of a text there is padding.
    lengths: Tensor  # (members, prompts): the number of tokens of each text, its end token included.

    def __repr__(self) -> str:
        members, prompts, length = self.tokens.shape
        return f"Generated({members} members × {prompts} prompts, up to {length} tokens)"

    def texts(self, tokenizer: Any) -> list[list[str]]:
        """Decode the new tokens.

        Args:
            tokenizer: The tokenizer of the model, or anything with `decode(ids, skip_special_tokens=True)`.

        Returns:
            A list for each member, with a text for each prompt.
        """
        pairs = zip(self.tokens.tolist(), self.lengths.tolist(), strict=True)
        return [
            [
                tokenizer.decode(row[:length], skip_special_tokens=True)
                for row, length in zip(rows, lengths, strict=True)
            ]
            for rows, lengths in pairs
        ]


class _Job(NamedTuple):
    """What is to be written, and when a text ends."""

    prompts: Prompts
    max_new_tokens: int
    ends: list[int]
    pad: int


def population_texts(
    population: "Population",
    prompts: Any,
    max_new_tokens: int,
    sampling: Sampling,
    members: int | None,
    eos_token_id: int | Sequence[int] | None,
    pad_token_id: int | None,
    captured: bool,
) -> Generated:
    """Return the texts of all members, some members at a time."""
    members = population.size if members is None else whole_number("members", members, 1, of="generate")
    job = _job(population.model, prompts, max_new_tokens, eos_token_id, pad_token_id)
    count, uniform = len(job.prompts.ids), None
    if sampling.do_sample:
        # The same numbers for all members, so that their texts differ by their weights alone.
        generator = torch.Generator().manual_seed(seed_of(population.seed, population.generation, "sampling"))
        uniform = torch.rand(count, job.max_new_tokens, generator=generator, dtype=torch.float64)
    written = []
    for first in range(0, population.size, members):
        size = min(members, population.size - first)
        part = replace(population, first=population.first + first, size=size)
        with part._held(count):
            repeated = Prompts(*(tensor.repeat(size, 1) for tensor in job.prompts))
            numbers = None if uniform is None else uniform.to(repeated.ids.device).repeat(size, 1)
            tokens = continue_prompts(
                part.model, repeated, job.max_new_tokens, sampling, numbers, job.ends, job.pad, captured
            )
        written.append(tokens.unflatten(0, (size, -1)))
    longest = max(part.shape[-1] for part in written)
    tokens = torch.cat([nn.functional.pad(part, (0, longest - part.shape[-1]), value=job.pad) for part in written])
    return Generated(tokens, _lengths(tokens, job.ends))


def written_by(
    model: nn.Module,
    prompts: Any,
    max_new_tokens: int,
    sampling: Sampling,
    eos_token_id: int | Sequence[int] | None = None,
    pad_token_id: int | None = None,
) -> Generated:
    """Return the greedy texts of a model itself, as those of one member."""
    job = _job(model, prompts, max_new_tokens, eos_token_id, pad_token_id)
    tokens = continue_prompts(model, job.prompts, job.max_new_tokens, sampling, None, job.ends, job.pad).unsqueeze(0)
    return Generated(tokens, _lengths(tokens, job.ends))


def _job(
    model: nn.Module,
    prompts: Any,
    max_new_tokens: int,
    eos_token_id: int | Sequence[int] | None,
    pad_token_id: int | None,
) -> _Job:
    config = _checked_config(model)
    max_new_tokens = whole_number("max_new_tokens", max_new_tokens, 1, of="generate")
    ends = _ends(config if eos_token_id is None else eos_token_id)
    if pad_token_id is None:
        pad_token_id = getattr(config, "pad_token_id", None)
    pad = next(iter([*ends, 0])) if pad_token_id is None else whole_number("pad_token_id", pad_token_id, 0)
    vocabulary = getattr(getattr(model, "config", None), "vocab_size", None)
    checked = checked_prompts(prompts, pad, vocabulary, next(model.parameters()).device)
    checked_length(model, checked, max_new_tokens)
    return _Job(checked, max_new_tokens, ends, pad)


def _lengths(tokens: Tensor, ends: Sequence[int]) -> Tensor:
    """Return the number of tokens up to the first end token, that one included."""
    if not ends:
        return torch.full(tokens.shape[:-1], tokens.shape[-1], device=tokens.device)
    is_end = torch.isin(tokens, torch.tensor(ends, device=tokens.device))
    return ((is_end.cumsum(-1) - is_end.long()) == 0).sum(-1)


def _ends(source: Any) -> list[int]:
    """Return end tokens from a number, several, or a generation config."""
    ends = getattr(source, "eos_token_id", source)
    if ends is None:
        return []
    if isinstance(ends, (Tensor, np.ndarray)):
        ends = ends.tolist()
    ends = list(ends) if isinstance(ends, (list, tuple, set, frozenset)) else [ends]
    return [whole_number("eos_token_id", end, of="generate", means="a token id, or several") for end in ends]


def _checked_config(model: nn.Module) -> Any:
    """Return the generation config of a causal language model of transformers; refuse every other model."""
    anything: Any = model
    config = getattr(anything, "generation_config", None)
    if config is None or not hasattr(anything, "prepare_inputs_for_generation"):
        raise InvalidInput(
            f"population.generate: {type(model).__name__} is no causal language model of transformers (it has no "
            "generation_config). Write the loop yourself: population(tokens, batched=True)."
        )
    if getattr(anything.config, "is_encoder_decoder", False):
        raise Unsupported(
            f"population.generate: {type(model).__name__} is an encoder with a decoder, which is not served yet. Write "
            "the loop yourself: population(**batch, batched=True)."
        )
    if (getattr(config, "num_beams", None) or 1) > 1:
        raise refused_option("num_beams", config.num_beams)
    return config


def refused_option(name: str, value: Any) -> InvalidArgument:
    """Return the error for an option of transformers' `generate` that a population does not take."""
    beams = (
        "Beam search reorders the rows of a batch between steps, and each row belongs to a member. "
        if name in ("num_beams", "num_beam_groups", "penalty_alpha", "constraints", "force_words_ids")
        else ""
    )
    return InvalidArgument(
        f"generate({name}={value!r}): a population does not take this option. {beams}Use greedy decoding, or "
        "do_sample=True with temperature and top_k."
    )
