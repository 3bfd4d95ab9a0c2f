"""Companions that were made on the meta device: they have no numbers until they are initialised or loaded."""

from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from .._shards import refuse_shards
from .companions import companion_names, initial_companions, write_value
from .layers import label_of

if TYPE_CHECKING:
    from .base import Perturbed


_LOADED = "_is_hf_initialized"  # transformers marks what it has loaded, and modules that it has initialised


class Unwritten(NamedTuple):
    """A tensor without numbers: it is on the meta device, or was given memory by `to_empty`."""

    tensor: Tensor  # not a weak reference: torch swaps no tensor that has one, as tied companions of two layers would
    version: int  # autograd counts the writes to a tensor


def mark_pending(layer: "Perturbed", unwritten: Iterable[str] = ()) -> None:
    """Remember which companions have no numbers: those on the meta device, and those named."""
    for name in layer.flipout.learned:
        for companion in companion_names(layer, name):
            value = attrgetter(companion)(layer)
            if value.is_meta or companion in unwritten:
                version = 0 if value.is_meta or value.is_inference() else value._version
                layer.flipout.pending[companion] = Unwritten(value, version)


def unwritten_companions(layer: "Perturbed") -> list[str]:
    """Return the companions from the meta device that nobody has written yet."""
    return [name for name in layer.flipout.pending if _is_pending(layer, name)]


def forget_written(layer: "Perturbed") -> None:
    """Drop the companions that somebody has written. Called before a copy, whose tensors count writes anew."""
    layer.flipout.pending = {name: layer.flipout.pending[name] for name in unwritten_companions(layer)}


def count_anew(layer: "Perturbed") -> None:
    """Start counting writes to the companions of a copy: nobody has written them yet."""
    mark_pending(layer, list(layer.flipout.pending))


def settle_loaded(layer: "Perturbed") -> None:
    """Initialise what a checkpoint lacked, after transformers has loaded the rest of a layer."""
    if layer.flipout.pending and _LOADED in layer.__dict__:
        settle(layer, layer)


@torch.no_grad()
def settle(layer: "Perturbed", module: nn.Module) -> None:
    """Initialise the companions that came from the meta device and that nobody has written since.

    The mean is read only now, since a model that is initialised by hand is complete by its first use.

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
                write_value(values[companion], initial[companion])
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
    """Return True if a companion from the meta device has no numbers yet."""
    value, unwritten = attrgetter(companion)(layer), layer.flipout.pending.get(companion)
    if unwritten is None or value.is_meta:
        return unwritten is not None
    if unwritten.tensor is value:
        return value.is_inference() or value._version <= unwritten.version
    # Somebody put another tensor in its place. Loaders fill it; transformers does not, if its checkpoint lacks the key.
    mean = attrgetter(next(name for name in layer.flipout.learned if companion.startswith(f"{name}_")))(layer)
    by_transformers = _LOADED in layer.__dict__ and (hasattr(mean, _LOADED) or mean._version > 0)
    return by_transformers and not hasattr(value, _LOADED)
