"""What stands beside a Parameter: its learned spread, and the numbers of its prior."""

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..distributions import LearnedDistribution
from ..distributions.prior import Prior
from ..shards import Shard, held_here, refuse_shards

if TYPE_CHECKING:
    from .base import Perturbed


def beside(distribution: LearnedDistribution, parameter: Tensor) -> dict[str, Tensor]:
    """Suffix → what a Parameter gets beside it: Parameters, and the fixed numbers of its prior, as buffers."""
    with torch.inference_mode(False):
        made: dict[str, Tensor] = {s: nn.Parameter(value) for s, value in distribution.initial(parameter).items()}
        prior = distribution.prior
        if prior is not None:
            assert isinstance(prior, Prior)
            wide = torch.promote_types(parameter.dtype, torch.float32)
            for name, value in prior.numbers().items():
                number = value.detach().to(parameter.device, wide, copy=True)
                made[prior.suffix_of(name)] = nn.Parameter(number.log()) if name in prior.learned else number
        return made


def initial_beside(layer: "Perturbed", name: str, mean: Tensor) -> dict[str, Tensor]:
    """Full name → initial value of what stands beside Parameter `name`, whose mean is given."""
    distribution = layer.plan.distributions[name]
    assert isinstance(distribution, LearnedDistribution)
    return {f"{name}_{suffix}": value for suffix, value in beside(distribution, mean.detach()).items()}


@torch.no_grad()
def reset_beside(layer: "Perturbed") -> None:
    """Give everything beside the layer's Parameters its initial value, in place."""
    for name in layer.plan.learned:
        for own, value in initial_beside(layer, name, attrgetter(name)(layer)).items():
            _write(attrgetter(own)(layer), value)
            layer.plan.pending.pop(own, None)


def mark_pending(layer: "Perturbed") -> None:
    """Remember which values beside are on the meta device: once they have memory, it holds no numbers yet."""
    for name in layer.plan.learned:
        for own in layer.names_beside(name):
            if attrgetter(own)(layer).is_meta:
                layer.plan.pending[own] = 0


def forget_written(layer: "Perturbed") -> None:
    """Before a copy, whose tensors count writes anew: forget the values that somebody has written."""
    pending = layer.plan.pending
    layer.plan.pending = {own: since for own, since in pending.items() if _is_pending(layer, own)}


def count_anew(layer: "Perturbed") -> None:
    """After a copy: nobody has written the values that are pending still."""
    for own in layer.plan.pending:
        value = attrgetter(own)(layer)
        layer.plan.pending[own] = 0 if value.is_meta else value._version


@torch.no_grad()
def settle(layer: "Perturbed", module: nn.Module) -> None:
    """Initialise what came from the meta device and nobody has written since; `module` is the layer or its root's.

    The mean is read now: whoever initialises a model by hand is done by its first use.
    """
    for name in layer.plan.learned if layer.plan.pending else ():
        mean, values = attrgetter(name)(layer), {own: attrgetter(own)(layer) for own in layer.names_beside(name)}
        if mean.is_meta or any(value.is_meta for value in values.values()) or not isinstance(mean, nn.Parameter):
            continue
        unwritten = [own for own in values if _is_pending(layer, own)]
        if unwritten:
            refuse_shards(
                module,
                f"{layer.label}: its {unwritten[0]} was made on the meta device and has no numbers yet",
                "Initialise it before the first pass: call reset_parameters() of each perturbed layer after to_empty.",
            )
            initial = initial_beside(layer, name, mean)
            for own in unwritten:
                _write(values[own], initial[own])
        for own in values:
            layer.plan.pending.pop(own, None)


def complete_checkpoint(
    layer: "Perturbed", name: str, state_dict: dict[str, Any], prefix: str, *, assign: bool
) -> None:
    """Add to a checkpoint that has Parameter `name` what it lacks beside it, so that it loads.

    Values that exist are kept; with `assign` they follow the mean to its device and dtype. Values that were made on the
    meta device get their initial values for the mean that is loaded.
    """
    mean, initial = state_dict[prefix + name], None
    for own in layer.names_beside(name):
        value = attrgetter(own)(layer)
        if prefix + own not in state_dict:
            if _is_pending(layer, own) and not mean.is_meta and (assign or not value.is_meta):
                initial = initial_beside(layer, name, mean) if initial is None else initial
                value = initial[own]
            elif assign and not value.is_meta:
                dtype = mean.dtype
                if own.removeprefix(f"{name}_") in layer.plan.kept[name]:
                    dtype = torch.promote_types(dtype, torch.float32)
                value = _moved(value, mean.device, dtype)
            state_dict[prefix + own] = value
        if assign or not value.is_meta:
            layer.plan.pending.pop(own, None)


def _moved(value: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    if (value.device, value.dtype) == (device, dtype):
        return value  # the same object: an optimiser may have it
    moved = value.detach().to(device, dtype)
    return nn.Parameter(moved, value.requires_grad) if isinstance(value, nn.Parameter) else moved


def _is_pending(layer: "Perturbed", own: str) -> bool:
    """Return True if a value from the meta device has no numbers yet: autograd counts the writes to a tensor."""
    value, since = attrgetter(own)(layer), layer.plan.pending.get(own)
    return since is not None and (value.is_meta or value.is_inference() or value._version <= since)


def _write(target: Tensor, value: Tensor) -> None:
    shard = Shard.of(target)
    held_here(target).copy_(value if shard is None else shard.part(value))
