"""Predictions over classes that are answers: single tokens, or texts scored by their likelihood."""

import copy
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .._arguments import whole_number
from ..bayes import Prediction, predict
from ..errors import InvalidArgument, InvalidInput

IGNORED = -100  # pads choices, as it pads labels in transformers
_COPIES = 4  # tensors of the logits' size that a pass has at once, roughly


def predict_answers(
    model: nn.Module,
    inputs: Mapping[str, Tensor],
    answers: Sequence[int] | Tensor,
    *,
    samples: int = 32,
    normalise: bool = False,
    memory: int = 2**30,
    **options: Any,
) -> Prediction:
    """Predict which answer follows each prompt, averaged over samples of the weights.

    Every prompt has one sample of the weights in each pass, the same one for all of its tokens and choices. A prompt is
    computed once per sample, and its choices go on from its cache.

    Args:
        model: A causal language model with a posterior.
        inputs: `input_ids` and `attention_mask` (N, T) of the prompts, padded on the left if at all.
        answers: The classes. A list or tensor of C token ids: the same single tokens for all prompts. A tensor (N, C,
            L) of token ids, padded with −100 on the right: texts, scored by the sum of their tokens'
            log-probabilities. A choice without tokens has probability 0.
        samples: As in `flipout.bayes.predict`.
        normalise: Divide the score of a text by its number of tokens.
        memory: Bytes that the logits of a pass may take, roughly. It decides how many rows a pass has, unless `chunk`
            is given.
        **options: Further arguments of `flipout.bayes.predict`, such as `seed` and `joint`.

    Returns:
        Probabilities of the classes (N, C) and their uncertainty: the epistemic part is the mutual information of
        answer and weights, in nats.

    Raises:
        InvalidInput: The prompts are padded on the right, or shapes do not fit.
        InvalidArgument: An argument is out of its range.

    Example:
        >>> prompts = tokenizer(questions, return_tensors="pt", padding=True, padding_side="left")
        >>> letters = [tokenizer.encode(f" {letter}")[-1] for letter in "ABCD"]
        >>> flipout.peft.predict_answers(model, prompts, letters, samples=32).epistemic
    """
    batch = _prompts(inputs)
    ids = torch.as_tensor(answers, device=batch["input_ids"].device)
    if ids.is_floating_point() or ids.dim() not in (1, 3) or not ids.numel():
        raise InvalidInput(
            f"predict_answers: answers of shape {tuple(ids.shape)} and dtype {ids.dtype}; expected C token ids, or "
            f"(N, C, L) for texts, with N = {len(batch['input_ids'])} prompts."
        )
    memory = whole_number("memory", memory, 1, of="predict_answers", means="a number of bytes")
    _check_tokens(ids, model)
    module: nn.Module
    if ids.dim() == 1:
        module, positions = _Tokens(model, ids), 1
    else:
        _check_choices(ids, len(batch["input_ids"]))
        module, positions = _Texts(model, normalise), ids.shape[2]
        batch["choices"] = ids
    options.setdefault("chunk", rows_within(memory, model, positions))
    return predict(module, batch, samples, likelihood="categorical", **options)


def rows_within(memory: int, model: nn.Module, positions: int) -> int:
    """Return how many rows of logits at so many positions fit into the memory."""
    return max(memory // (4 * _COPIES * positions * (_vocabulary(model) or 2**16)), 1)


def _vocabulary(model: nn.Module) -> int | None:
    """Return the number of tokens that the model knows, None if its config does not say."""
    config = getattr(model, "config", None)
    return getattr(config, "vocab_size", None) or getattr(getattr(config, "text_config", None), "vocab_size", None)


def last_logits(model: nn.Module, keep: int, **inputs: Any) -> Any:
    """Return the logits of the last `keep` positions. No others are computed, if the model has an option for that."""
    inner: Any = model.get_base_model() if hasattr(model, "get_base_model") else model  # pyright: ignore[reportCallIssue]
    if "logits_to_keep" in inspect.signature(inner.forward).parameters:
        inputs["logits_to_keep"] = keep
    output = model(**inputs)
    return output, output.logits[:, -keep:]


class _Tokens(nn.Module):
    """Maps prompts to the logits of some tokens that may follow."""

    def __init__(self, model: nn.Module, tokens: Tensor) -> None:
        super().__init__()
        self.model = model
        self.tokens = tokens

    def forward(self, **inputs: Tensor) -> Tensor:
        return last_logits(self.model, 1, **inputs)[1][:, 0].index_select(1, self.tokens)


class _Texts(nn.Module):
    """Maps prompts to the log-likelihoods of some texts that may follow each of them."""

    def __init__(self, model: nn.Module, normalise: bool) -> None:
        super().__init__()
        self.model, self.normalise = model, normalise

    def forward(self, choices: Tensor, **inputs: Tensor) -> Tensor:
        output, logits = last_logits(self.model, 1, **inputs, use_cache=True)
        cache = getattr(output, "past_key_values", None)
        if cache is None:
            raise InvalidArgument(
                f"predict_answers: {type(self.model).__name__} returns no cache of keys and values, from which its "
                "choices could go on. Use a causal language model of transformers, or single tokens as answers."
            )
        return torch.stack([self._score(choice, logits, cache, inputs) for choice in choices.unbind(1)], 1)

    def _score(self, choice: Tensor, first: Tensor, cache: Any, inputs: dict[str, Tensor]) -> Tensor:
        """Return the scores (N,) of one choice for each prompt."""
        is_token = choice != IGNORED
        ids = choice.masked_fill(~is_token, 0)
        logits = first
        if choice.shape[1] > 1:
            # A choice appends to the cache, so each choice gets a copy.
            mask = torch.cat((inputs["attention_mask"], is_token[:, :-1].to(inputs["attention_mask"])), 1)
            options: dict[str, Any] = {"attention_mask": mask, "past_key_values": copy.deepcopy(cache)}
            if "position_ids" in inputs:
                steps = torch.arange(1, choice.shape[1], device=ids.device)
                options["position_ids"] = inputs["position_ids"][:, -1:] + steps
            _, rest = last_logits(self.model, choice.shape[1] - 1, input_ids=ids[:, :-1], use_cache=True, **options)
            logits = torch.cat((first, rest), 1)
        wide = torch.promote_types(logits.dtype, torch.float32)
        scores = logits.to(wide).log_softmax(-1).gather(2, ids.unsqueeze(2)).squeeze(2)
        total, count = (scores * is_token).sum(1), is_token.sum(1)
        total = total / count.clamp_min(1) if self.normalise else total
        return total.masked_fill(count == 0, -torch.inf)


def _prompts(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the prompts with their mask, and with positions that do not count padding."""
    batch = dict(inputs)
    if "input_ids" not in batch or batch["input_ids"].dim() != 2:
        raise InvalidInput(f"predict_answers: inputs {sorted(batch)}; expected input_ids of shape (N, T).")
    mask = batch.setdefault("attention_mask", torch.ones_like(batch["input_ids"]))
    if mask.shape != batch["input_ids"].shape or not bool(mask[:, -1].all()):
        raise InvalidInput(
            f"predict_answers: input_ids of shape {tuple(batch['input_ids'].shape)} with a mask of shape "
            f"{tuple(mask.shape)} that ends in padding or does not fit; expected padding on the left: "
            "tokenizer(…, padding=True, padding_side='left')."
        )
    if "position_ids" not in batch and not bool(mask.all()):
        batch["position_ids"] = (mask.long().cumsum(1) - 1).clamp_min(0)
    return batch


def _check_tokens(ids: Tensor, model: nn.Module) -> None:
    words, is_text = _vocabulary(model), ids.dim() == 3
    wrong = ids[((ids < 0) & ~((ids == IGNORED) & is_text)) | (ids >= (words or torch.inf))]
    if len(wrong):
        padding = f", and {IGNORED} for padding" if is_text else ""
        raise InvalidInput(
            f"predict_answers: token id {int(wrong[0])} among the answers; expected ids of the tokenizer, from 0 to "
            f"{'its last' if words is None else words - 1}{padding}."
        )


def _check_choices(ids: Tensor, prompts: int) -> None:
    is_token = ids != IGNORED
    is_right_padded = bool((is_token.long().diff(dim=2) <= 0).all())
    if len(ids) != prompts or not is_right_padded or not bool(is_token.any(2).any(1).all()):
        raise InvalidInput(
            f"predict_answers: answers of shape {tuple(ids.shape)} for {prompts} prompts; expected (N, C, L) with "
            f"N = {prompts}, each choice padded with {IGNORED} on the right, and for each prompt a choice with tokens."
        )
