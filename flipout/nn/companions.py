"""The companions of a Parameter: its learned spread, and the numbers of its prior.

`weight` has `weight_rho` beside it, for example, and `weight_prior_std`. A prior names its own (`Prior.suffix_of`).
"""

from operator import attrgetter
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from .._shards import Shard, held_here
from ..distributions import Distribution, LearnedDistribution
from ..distributions.prior import PREFIX, Prior
from .layers import parameter_of

if TYPE_CHECKING:
    from .base import Perturbed


def companion_values(distribution: LearnedDistribution, parameter: Tensor) -> dict[str, Tensor]:
    """Return suffix → initial value: Parameters for what is learned, tensors for the fixed numbers of the prior."""
    with torch.inference_mode(False):
        values: dict[str, Tensor] = {
            suffix: nn.Parameter(value) for suffix, value in distribution.initial(parameter).items()
        }
        prior = distribution.prior
        if prior is not None:
            assert isinstance(prior, Prior)
            at_least_single = torch.promote_types(parameter.dtype, torch.float32)
            for name, value in prior.numbers().items():
                number = value.detach().to(parameter.device, at_least_single, copy=True)
                values[prior.suffix_of(name)] = nn.Parameter(number.log()) if name in prior.learned else number
        return values


def learn(layer: "Perturbed", name: str, values: dict[str, Tensor]) -> None:
    """Register the companions of Parameter `name`: learned ones as Parameters, fixed ones as buffers."""
    from .pending import mark_pending

    plan = layer.flipout
    plan.has_factors |= type(plan.distributions[name]).factors is not Distribution.factors
    plan.prior_suffixes[name] = tuple(suffix for suffix in values if suffix.startswith(PREFIX))
    plan.learned[name] = tuple(suffix for suffix in values if suffix not in plan.prior_suffixes[name])
    owner, _, local = name.rpartition(".")
    for suffix, value in values.items():
        if isinstance(value, nn.Parameter):
            layer.get_submodule(owner).register_parameter(f"{local}_{suffix}", value)
        else:
            layer.get_submodule(owner).register_buffer(f"{local}_{suffix}", value)
    mark_pending(layer)


def unlearn(layer: "Perturbed", name: str) -> None:
    """Take the noise of Parameter `name` back, with its companions. The Parameter itself may be gone already."""
    plan = layer.flipout
    owner, _, _ = name.rpartition(".")
    for companion in companion_names(layer, name):
        delattr(layer.get_submodule(owner), companion.rpartition(".")[2])
        plan.pending.pop(companion, None)
    for names in (plan.distributions, plan.learned, plan.prior_suffixes, plan.quiet_rows):
        names.pop(name, None)
    plan.roots = [(root, {key: value for key, value in keys.items() if key != name}) for root, keys in plan.roots]
    plan.is_checked, plan.remembered, plan.own_roster = False, None, None
    for root, _ in plan.roots:
        root.forget_roster()


def companion_names(layer: "Perturbed", name: str) -> list[str]:
    """Return the names of a Parameter's companions: `weight_rho`, and the numbers of its prior."""
    plan = layer.flipout
    return [f"{name}_{suffix}" for suffix in plan.learned.get(name, ()) + plan.prior_suffixes.get(name, ())]


def learned_companions(layer: "Perturbed", name: str) -> dict[str, Tensor]:
    """Return suffix → value of the companions that the spread of a Parameter is computed from."""
    return {suffix: parameter_of(layer, f"{name}_{suffix}") for suffix in layer.flipout.learned.get(name, ())}


def prior_numbers(layer: "Perturbed", name: str, *, copies: bool = True) -> dict[str, Tensor]:
    """Return the present numbers of a Parameter's prior.

    Args:
        layer: The layer.
        name: The name of the Parameter in the layer.
        copies: Copy the numbers, which data parallelism writes into. Without it the caller has to copy them itself.
    """
    prior = getattr(layer.flipout.distributions[name], "prior", None)
    numbers = {}
    if not isinstance(prior, Prior):
        return numbers
    for suffix in layer.flipout.prior_suffixes.get(name, ()):
        value, number = attrgetter(f"{name}_{suffix}")(layer), prior.number_of(suffix)
        if number in prior.learned:
            numbers[number] = value.exp()
        else:
            numbers[number] = value.clone() if copies else value
    return numbers


def prior_changes(layer: "Perturbed", name: str) -> str:
    """Say which numbers of the prior were learned or loaded since it was made: " (prior now std=9)"."""
    prior = getattr(layer.flipout.distributions[name], "prior", None)
    if not isinstance(prior, Prior) or any(
        companion in layer.flipout.pending for companion in companion_names(layer, name)
    ):
        return ""
    initial, changes = prior.numbers(), []
    for number, value in prior_numbers(layer, name).items():
        expected = initial[number].float()
        expected = expected.log().to(value).exp() if number in prior.learned else expected.to(value)
        if type(value) is Tensor and not value.is_meta and not torch.allclose(value, expected):
            changes.append(f"{number}={value.item():.6g}" if value.numel() == 1 else f"another {number}")
    return f" (prior now {', '.join(changes)})" if changes else ""


def initial_companions(layer: "Perturbed", name: str, mean: Tensor) -> dict[str, Tensor]:
    """Return full name → initial value of the companions of Parameter `name`, for this mean."""
    distribution = layer.flipout.distributions[name]
    assert isinstance(distribution, LearnedDistribution)
    return {f"{name}_{suffix}": value for suffix, value in companion_values(distribution, mean.detach()).items()}


@torch.no_grad()
def reset_companions(layer: "Perturbed") -> None:
    """Give all companions of the layer's Parameters their initial values, in place."""
    for name in layer.flipout.learned:
        for companion, value in initial_companions(layer, name, attrgetter(name)(layer)).items():
            write_value(attrgetter(companion)(layer), value)
            layer.flipout.pending.pop(companion, None)


def write_value(target: Tensor, value: Tensor) -> None:
    """Copy a value into a tensor; into this rank's part, if the tensor is sharded."""
    shard = Shard.of(target)
    held_here(target).copy_(value if shard is None else shard.part(value))
