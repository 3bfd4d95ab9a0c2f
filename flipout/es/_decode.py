"""Write texts with a causal language model, one token of every row at a time."""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .._arguments import whole_number
from .._capture import capture
from ..errors import InvalidArgument, InvalidInput, Unsupported
from ._prompts import Prompts

Step = Callable[[Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen: the most likely one, or a random one."""

    do_sample: bool
    temperature: float
    top_k: int | None

    def __post_init__(self) -> None:
        temperature, top_k = self.temperature, self.top_k
        is_number = isinstance(temperature, (int, float)) and math.isfinite(temperature)
        if not is_number or temperature <= 0:
            raise InvalidArgument(
                f"generate(temperature={temperature!r}): expected a finite number > 0. For the most likely token use "
                "do_sample=False."
            )
        if top_k is not None:
            whole_number("top_k", top_k, 1, of="generate")
        if not self.do_sample and (temperature != 1 or top_k is not None):
            raise InvalidArgument(
                f"generate(temperature={temperature!r}, top_k={top_k!r}) without do_sample=True: the most likely token "
                "does not depend on them. Add do_sample=True, or leave them out."
            )

    def next_tokens(self, logits: Tensor, uniform: Tensor | None) -> Tensor:
        """Return (rows,) tokens from logits (rows, vocabulary), by inverting the distribution at `uniform`, (rows,)."""
        if uniform is None:
            return logits.argmax(-1)
        scaled = logits.double() / self.temperature
        if self.top_k is not None and self.top_k < scaled.shape[-1]:
            least = scaled.topk(self.top_k).values[..., -1:]
            scaled = scaled.masked_fill(scaled < least, -torch.inf)
        reached = scaled.softmax(-1).cumsum(-1)
        drawn = torch.searchsorted(reached, (uniform * reached[:, -1]).unsqueeze(1), right=True).squeeze(1)
        return drawn.clamp_max(scaled.shape[-1] - 1)


@torch.no_grad()
def continue_prompts(
    model: nn.Module,
    prompts: Prompts,
    max_new_tokens: int,
    sampling: Sampling,
    uniform: Tensor | None,
    ends: Sequence[int],
    pad: int,
    captured: bool = False,
) -> Tensor:
    """Return the new tokens of a causal language model, (rows, tokens), until all rows have ended.

    Args:
        model: The model.
        prompts: What the rows begin with.
        max_new_tokens: Largest number of tokens of a row.
        sampling: How a token is chosen.
        uniform: Numbers for sampling, (rows, max_new_tokens), or None.
        ends: End tokens.
        pad: What follows the end of a row.
        captured: Keep keys and values at a fixed place, so that all tokens but the first ones are replays of one graph.
    """
    (rows, width), device = prompts.ids.shape, prompts.ids.device
    cache = _fixed_cache(model, width + max_new_tokens) if captured else None
    first = _step(model, sampling, cache)
    following = capture(first) if captured else None
    # A cache at a fixed place has room for tokens that are not there yet.
    future = torch.full((rows, max_new_tokens), int(not captured), device=device)
    mask = torch.cat((prompts.mask, future), 1)
    places = (prompts.mask.cumsum(1) - 1).clamp_min(0)
    ids, tokens, has_ended = prompts.ids, [], torch.zeros(rows, dtype=torch.bool, device=device)
    is_broken = has_ended
    try:
        for count in range(max_new_tokens):
            run = first if count == 0 or following is None else following
            seen = mask if captured else mask[:, : width + count]
            chosen, largest = run(ids, seen, places, None if uniform is None else uniform[:, count])
            is_broken = is_broken | ~(largest.isfinite() | has_ended)
            chosen = torch.where(has_ended, pad, chosen)
            tokens.append(chosen)
            for end in ends:
                has_ended = has_ended | (chosen == end)
            if bool(has_ended.all()):
                break
            ids, places = chosen.unsqueeze(1), places[:, -1:] + 1
            mask[:, width + count] = 1
    finally:
        if following is not None:
            following.close()
    if bool(is_broken.any()):
        raise InvalidInput(
            f"population.generate: the model's logits are not finite, in {int(is_broken.sum())} of {rows} texts. Use a "
            "smaller std."
        )
    return torch.stack(tokens, 1)


def _step(model: nn.Module, sampling: Sampling, cache: Any) -> Step:
    """Return a function that reads tokens and returns the next ones, (rows,), and the largest logits, (rows,).

    It keeps the cache of keys and values.
    """
    accepted = inspect.signature(model.forward).parameters
    kept: list[Any] = [cache]

    def step(ids: Tensor, mask: Tensor, places: Tensor, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        options: dict[str, Any] = {"attention_mask": mask, "past_key_values": kept[0], "use_cache": True}
        if "position_ids" in accepted:
            options["position_ids"] = places
        if "logits_to_keep" in accepted:
            options["logits_to_keep"] = 1
        output: Any = model(input_ids=ids, **options)
        kept[0] = getattr(output, "past_key_values", None)
        if kept[0] is None:
            raise Unsupported(
                f"population.generate: {type(model).__name__} returns no cache of keys and values (past_key_values), "
                "from which its texts could go on. Recurrent models and those without a cache are not served yet. "
                "Write the loop yourself: population(input_ids=…, batched=True, output='logits')."
            )
        logits = output.logits[:, -1]
        return sampling.next_tokens(logits, uniform), logits.amax(-1)

    return step


def _fixed_cache(model: Any, length: int) -> Any:
    """Return a cache of keys and values that stay where they are, as a captured graph needs."""
    from transformers.cache_utils import StaticCache, StaticLayer

    if getattr(model, "_can_compile_fullgraph", False):
        cache = StaticCache(config=model.config, max_cache_len=length)
        # A layer with a window counts its tokens in Python, which a graph would keep as they were at the capture.
        if all(type(layer) is StaticLayer for layer in cache.layers):
            return cache
    raise Unsupported(
        f"generate(captured=True): {type(model).__name__} cannot keep its keys and values at a fixed place, or it has "
        "windows of attention. Leave `captured` out."
    )
