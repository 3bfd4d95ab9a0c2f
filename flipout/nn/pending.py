"""Companions that were made on the meta device: they have no numbers until somebody writes some."""

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .._shards import refuse_shards
from .companions import companion_names, initial_companions, write
from .layers import label_of

if TYPE_CHECKING:
    from .base import Perturbed


def mark_pending(layer: "Perturbed") -> None:
    """Remember which companions are on the meta device: once they get memory, it holds no numbers yet."""
    for name in layer.flipout.learned:
        for companion in companion_names(layer, name):
            if attrgetter(companion)(layer).is_meta:
                layer.flipout.pending[companion] = 0


def forget_written(layer: "Perturbed") -> None:
    """Drop the companions that somebody has written. Called before a copy, whose tensors count writes anew."""
    pending = layer.flipout.pending
    layer.flipout.pending = {name: since for name, since in pending.items() if _is_pending(layer, name)}


def count_anew(layer: "Perturbed") -> None:
    """Start counting writes to the companions of a copy: nobody has written them yet."""
    for companion in layer.flipout.pending:
        value = attrgetter(companion)(layer)
        layer.flipout.pending[companion] = 0 if value.is_meta else value._version


@torch.no_grad()
def settle(layer: "Perturbed", module: nn.Module) -> None:
    """Initialise the companions that came from the meta device and that nobody has written since.

    The mean is read now: whoever initialises a model by hand is done by its first use.

    Args:
        layer: A perturbed layer.
        module: The layer, or the module of its root.
    """
    plan = layer.flipout
    for name in plan.learned if plan.pending else ():
        mean = attrgetter(name)(layer)
        values = {companion: attrgetter(companion)(layer) for companion in companion_names(layer, name)}
        if mean.is_meta or any(value.is_meta for value in values.values()) or not isinstance(mean, nn.Parameter):
            continue
        unwritten = [companion for companion in values if _is_pending(layer, companion)]
        if unwritten:
            refuse_shards(
                module,
                f"{label_of(layer)}: its {unwritten[0]} was made on the meta device and has no numbers yet",
                "Initialise it before the first pass: call reset_parameters() of each perturbed layer after to_empty.",
            )
            initial = initial_companions(layer, name, mean)
            for companion in unwritten:
                write(values[companion], initial[companion])
        for companion in values:
            plan.pending.pop(companion, None)


def complete_checkpoint(
    layer: "Perturbed", name: str, state_dict: dict[str, Any], prefix: str, *, assign: bool
) -> None:
    """Add the companions of Parameter `name` to a checkpoint that lacks them, so that it loads.

    Companions that have numbers keep them; with `assign` they follow the mean to its device and dtype. Companions that
    were made on the meta device get their initial values for the mean that is loaded.
    """
    mean, initial = state_dict[prefix + name], None
    for companion in companion_names(layer, name):
        value = attrgetter(companion)(layer)
        if prefix + companion not in state_dict:
            if _is_pending(layer, companion) and not mean.is_meta and (assign or not value.is_meta):
                initial = initial_companions(layer, name, mean) if initial is None else initial
                value = initial[companion]
            elif assign and not value.is_meta:
                dtype = mean.dtype
                if companion.removeprefix(f"{name}_") in layer.flipout.prior_suffixes[name]:
                    dtype = torch.promote_types(dtype, torch.float32)
                value = _moved(value, mean.device, dtype)
            state_dict[prefix + companion] = value
        if assign or not value.is_meta:
            layer.flipout.pending.pop(companion, None)


def _moved(value: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    if (value.device, value.dtype) == (device, dtype):
        return value  # the same object: an optimiser may have it
    moved = value.detach().to(device, dtype)
    return nn.Parameter(moved, value.requires_grad) if isinstance(value, nn.Parameter) else moved


def _is_pending(layer: "Perturbed", companion: str) -> bool:
    """Return True if a companion from the meta device has no numbers yet: autograd counts the writes to a tensor."""
    value, since = attrgetter(companion)(layer), layer.flipout.pending.get(companion)
    return since is not None and (value.is_meta or value.is_inference() or value._version <= since)
