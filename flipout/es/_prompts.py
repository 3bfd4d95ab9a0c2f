"""Prompts of a language model, as token ids with padding on the left."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import InvalidInput


class Prompts(NamedTuple):
    """Token ids and their mask, (prompts, length) each. The mask is 0 on the padding, which is on the left."""

    ids: Tensor
    mask: Tensor


def checked_prompts(prompts: Any, pad: int, vocabulary: int | None, device: torch.device) -> Prompts:
    """Return prompts from lists of token ids, from a tensor, or from what a tokenizer returns.

    Raises:
        InvalidInput: They are none of these, or empty, padded on the right, or beyond the vocabulary.
    """
    mask = None
    if isinstance(prompts, Mapping):
        prompts, mask = prompts.get("input_ids"), prompts.get("attention_mask")
    if isinstance(prompts, Tensor):
        ids = prompts
    elif isinstance(prompts, Sequence) and not isinstance(prompts, str) and len(prompts):
        rows = [_row(row) for row in prompts]
        longest = max(len(row) for row in rows)
        ids = _stacked(rows, pad)
        if mask is None:
            mask = torch.stack([torch.arange(longest) >= longest - len(row) for row in rows])
        elif not isinstance(mask, Tensor) and [len(row) for row in mask] == [len(row) for row in rows]:
            mask = _stacked([_row(row) for row in mask], 0)  # a tokenizer that was not asked to pad
    else:
        raise InvalidInput(
            f"prompts: got {type(prompts).__name__}; expected token ids, as a list of lists, a tensor (prompts, "
            "length), or what a tokenizer returns. Tokenise text first: tokenizer(texts)['input_ids']."
        )
    mask = torch.ones_like(ids) if mask is None else torch.as_tensor(mask)
    _check(ids, mask, vocabulary)
    return Prompts(ids.to(device, torch.int64), mask.to(device, torch.int64))


def checked_length(model: nn.Module, prompts: Prompts, new_tokens: int) -> None:
    """Refuse prompts that do not fit into the model's context together with the new tokens."""
    config: Any = getattr(model, "config", None)
    context = getattr(config, "max_position_embeddings", None)
    length = int(prompts.mask.sum(1).max())
    if context is not None and length + new_tokens > context:
        raise InvalidInput(
            f"The longest prompt has {length} tokens and {new_tokens} more are asked for, but the context of "
            f"{type(model).__name__} has {context}. Use shorter prompts, or fewer tokens: max_new_tokens ≤ "
            f"{max(context - length, 0)}."
        )


def _stacked(rows: list[Tensor], pad: int) -> Tensor:
    """Return the rows as one tensor, padded on the left."""
    longest = max(map(len, rows))
    return torch.stack([torch.cat((row.new_full((longest - len(row),), pad), row)) for row in rows])


def _row(row: Any) -> Tensor:
    ids = row if isinstance(row, Tensor) else None
    if ids is None and isinstance(row, (list, tuple)) and all(type(token) is int for token in row):
        ids = torch.tensor(row, dtype=torch.int64)
    if ids is None or ids.dim() != 1 or not len(ids):
        shown = f"a tensor of shape {tuple(ids.shape)}" if ids is not None else repr(row)
        raise InvalidInput(f"prompts: {shown} is no prompt; expected token ids, at least one.")
    return ids


def _check(ids: Tensor, mask: Tensor, vocabulary: int | None) -> None:
    if ids.dim() != 2 or not ids.numel() or ids.dtype.is_floating_point:
        raise InvalidInput(
            f"prompts: got shape {tuple(ids.shape)} and dtype {ids.dtype}; expected token ids (prompts, length), the "
            "same for all members."
        )
    if mask.shape != ids.shape:
        raise InvalidInput(
            f"prompts: attention_mask of shape {tuple(mask.shape)} for ids of shape {tuple(ids.shape)}; expected equal "
            "shapes."
        )
    is_left = bool((mask.long().diff(dim=1) >= 0).all()) and bool(mask[:, -1].bool().all())
    if not is_left:
        raise InvalidInput(
            "prompts: attention_mask has zeros on the right; expected the padding on the left, where the text does not "
            "continue. Use tokenizer.padding_side = 'left', or pass lists of ids without padding."
        )
    least, most = int(ids.min()), int(ids.max())
    if vocabulary is not None and (least < 0 or most >= vocabulary):
        raise InvalidInput(
            f"prompts: token ids from {least} to {most}; expected 0 to {vocabulary - 1}, the "
            "vocabulary of the model. Use the model's own tokenizer."
        )
