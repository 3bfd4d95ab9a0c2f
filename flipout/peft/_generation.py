"""Texts under samples of the weights, and how sure the model is of a text."""

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .._arguments import whole_number
from ..bayes import predict
from ..draws.draw import fresh_seed
from ..errors import InvalidArgument, InvalidInput, Unsupported
from ..nn.contexts import hold, using
from ..nn.eval_mode import in_eval
from ..nn.models import perturbed_layers
from ._answers import last_logits, rows_within


@torch.no_grad()
def generate(
    model: Any,
    inputs: Mapping[str, Tensor],
    *,
    samples: int = 8,
    seed: int | None = None,
    chunk: int = 64,
    **options: Any,
) -> Tensor:
    """Generate texts, each under one sample of the weights for all of its tokens.

    Args:
        model: A causal language model with a posterior.
        inputs: `input_ids` and `attention_mask` (N, T) of the prompts, padded on the left.
        samples: Texts for each prompt. Their weights are independent.
        seed: The seed of the weights. By default one number is read from torch's generator.
        chunk: The largest number of texts that are generated at once.
        **options: Arguments of the model's `generate`, such as `max_new_tokens`. With `do_sample=True`, tokens are
            drawn too; by default texts differ by their weights alone. The beams of a text share its weights.

    Returns:
        Token ids (samples, N, length) with the prompts, padded on the right.

    Raises:
        InvalidInput: There are no `input_ids`, or the prompts are padded on the right.
        Unsupported: `num_return_sequences`, `return_dict_in_generate`, or `adapter_names`.
        NotPerturbed: The model has no posterior.

    Example:
        >>> texts = flipout.peft.generate(model, prompts, samples=8, max_new_tokens=20)
        >>> tokenizer.batch_decode(texts[:, 0], skip_special_tokens=True)
    """
    _check_options(model, options)
    _check_prompts(model, inputs)
    perturbed_layers(model, "flipout.peft.bayesian_lora(model)")
    samples = whole_number("samples", samples, 1, of="generate")
    chunk = whole_number("chunk", chunk, 1, of="generate")
    prompts = len(inputs["input_ids"])
    seed = int(fresh_seed(torch.device("cpu"))) if seed is None else whole_number("seed", seed, of="generate")
    at_once, options = max(chunk // prompts, 1), {"do_sample": False, **options}
    found = []
    for start in range(0, samples, at_once):
        count = min(at_once, samples - start)
        repeated = {name: value.repeat(count, *[1] * (value.dim() - 1)) for name, value in inputs.items()}
        # Samples have bases of their own (group), and a chunk sees what it would see among all (first).
        with (
            in_eval(model),
            hold(model, seed, first=start * prompts, group=prompts),
            using(model, scheme="flipout"),
        ):
            found.append(model.generate(**repeated, **options).unflatten(0, (count, prompts)))
    length, pad = max(part.shape[2] for part in found), _padding(model, options)
    return torch.cat([nn.functional.pad(part, (0, length - part.shape[2]), value=pad) for part in found])


def _check_options(model: Any, options: Mapping[str, Any]) -> None:
    """Refuse what would not return one text for each sample and prompt."""
    settings = options.get("generation_config") or model.generation_config

    def option(name: str) -> Any:
        return options.get(name, getattr(settings, name, None))

    if (option("num_return_sequences") or 1) != 1:
        raise Unsupported("generate(num_return_sequences=…): ask for more samples instead, generate(…, samples=…).")
    if option("return_dict_in_generate"):
        raise Unsupported(
            "generate(return_dict_in_generate=True): this returns token ids alone. For how sure the model is of them, "
            "give them to flipout.peft.text_uncertainty."
        )
    if "adapter_names" in options:
        raise Unsupported("generate(adapter_names=…): call model.set_adapter(…), and generate once for each adapter.")


def _check_prompts(model: Any, inputs: Mapping[str, Tensor]) -> None:
    ids, mask = inputs.get("input_ids"), inputs.get("attention_mask")
    if ids is None or ids.dim() != 2:
        raise InvalidInput(f"generate: inputs {sorted(inputs)}; expected input_ids of shape (N, T).")
    if mask is not None and not model.config.is_encoder_decoder and not bool(mask[:, -1].all()):
        raise InvalidInput(
            "generate: the prompts end in padding, which the texts would go on from; expected padding on the left: "
            "tokenizer(…, padding=True, padding_side='left')."
        )


def _padding(model: Any, options: dict[str, Any]) -> int:
    settings = model.generation_config
    pad = options.get("pad_token_id", settings.pad_token_id)
    end = settings.eos_token_id
    return pad if pad is not None else (end[0] if isinstance(end, list) else end) or 0


@dataclass(frozen=True, eq=False)
class TextUncertainty:
    """How uncertain each token of some texts was, in nats, given the tokens before it."""

    total: Tensor  # (N, length): the entropy of the next token under the average of all samples
    aleatoric: Tensor  # (N, length): the mean entropy under one sample
    epistemic: Tensor  # (N, length): their difference, the mutual information of token and weights

    def __repr__(self) -> str:
        return f"TextUncertainty({len(self.total)} texts of {self.total.shape[1]} tokens)"


def text_uncertainty(
    model: nn.Module,
    input_ids: Tensor,
    *,
    prompt: int,
    attention_mask: Tensor | None = None,
    samples: int = 32,
    memory: int = 2**30,
    **options: Any,
) -> TextUncertainty:
    """Return how uncertain each token of a text is, and how much of it comes from the weights.

    The texts are read, not generated: all samples see the same tokens before each position. Samples count equally; they
    are not weighted by how likely each of them finds the text so far.

    Args:
        model: A causal language model with a posterior.
        input_ids: Texts with their prompts, (N, T).
        prompt: The number of tokens of the prompt, at least 1. The uncertainty of the tokens after it is returned.
        attention_mask: 0 where a text is padded. There the uncertainty is NaN.
        samples: Samples of the weights for each text.
        memory: Bytes that the logits of a pass may take, roughly.
        **options: Further arguments of `flipout.bayes.predict`, such as `seed`.

    Returns:
        Total, aleatoric and epistemic uncertainty of each token, (N, T − prompt).

    Raises:
        InvalidArgument: `prompt` leaves no token.

    Example:
        >>> sure = flipout.peft.text_uncertainty(model, texts[0], prompt=prompts["input_ids"].shape[1])
        >>> sure.epistemic.nanmean(1)
    """
    prompt = whole_number("prompt", prompt, 1, of="text_uncertainty", means="the number of tokens of the prompt")
    if input_ids.dim() != 2 or input_ids.shape[1] <= prompt:
        raise InvalidArgument(
            f"text_uncertainty(prompt={prompt}): input_ids of shape {tuple(input_ids.shape)}; expected (N, T) with "
            f"more than {prompt} tokens."
        )
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    length = input_ids.shape[1] - prompt
    options.setdefault("chunk", rows_within(memory, model, length))
    module, parts = _Next(model, length), []
    # One text at a time: the probabilities of all tokens are kept in float64 for each.
    for text, of_text in zip(input_ids.split(1), mask.split(1), strict=True):
        batch = {"input_ids": text, "attention_mask": of_text}
        if not bool(of_text.all()):
            batch["position_ids"] = (of_text.long().cumsum(1) - 1).clamp_min(0)
        prediction = predict(module, batch, samples, likelihood="categorical", **options)
        parts.append((prediction.total, prediction.aleatoric, prediction.epistemic))
    is_padding = mask[:, prompt:] == 0
    fields = (torch.cat(field).masked_fill(is_padding, torch.nan) for field in zip(*parts, strict=True))
    return TextUncertainty(*fields)


class _Next(nn.Module):
    """Maps texts to the logits of their last tokens, each given those before it."""

    def __init__(self, model: nn.Module, length: int) -> None:
        super().__init__()
        self.model, self.length = model, length

    def forward(self, **inputs: Tensor) -> Tensor:
        return last_logits(self.model, self.length + 1, **inputs)[1][:, :-1]


@dataclass(frozen=True)
class Agreement:
    """How far the answers of several samples agree."""

    answer: Any  # the most frequent one
    share: float  # of the samples that gave it
    entropy: float  # of the answers' frequencies, in nats; 0 if all agree
    counts: dict[Any, int]  # of all answers


def agreement(answers: Sequence[Hashable]) -> Agreement:
    """Say how far the answers of several samples to one prompt agree.

    Args:
        answers: One answer for each sample. Bring equal answers into one form first: strip and lower texts, or take
            the number out of them.

    Returns:
        The most frequent answer, its share, and the entropy of all.

    Raises:
        InvalidInput: There are no answers, or one of them cannot be counted.

    Example:
        >>> answers = [text.strip().lower() for text in tokenizer.batch_decode(texts[:, 0, length:])]
        >>> flipout.peft.agreement(answers).share
    """
    if len(answers) == 0:
        raise InvalidInput("agreement: there are no answers; expected one for each sample.")
    for answer in answers:
        # Two tensors of equal content are different keys of a dict.
        if isinstance(answer, Tensor) or not isinstance(answer, Hashable):
            raise InvalidInput(
                f"agreement: an answer is a {type(answer).__name__}, which cannot be counted; expected texts, numbers "
                "or tuples. For token ids: [tuple(row) for row in ids.tolist()]."
            )
    counts = Counter(answers)
    answer, most = counts.most_common(1)[0]
    shares = [count / len(answers) for count in counts.values()]
    entropy = max(0.0, -sum(share * math.log(share) for share in shares))
    return Agreement(answer, most / len(answers), entropy, dict(counts))
