"""Questions about one perturbed layer that files below the mixin ask."""

from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeGuard

from torch import Tensor, nn

if TYPE_CHECKING:
    from .base import Perturbed


def is_perturbed(module: Any) -> "TypeGuard[Perturbed]":
    """Return True if a module is a perturbed layer, without importing the mixin."""
    return hasattr(type(module), "_declared")


def label_of(layer: "Perturbed") -> str:
    """Return what errors call a layer: its name in the model, and its type."""
    kind = type(layer).__name__
    return f"{layer.flipout.label} ({kind})" if layer.flipout.label else kind


def is_noisy_now(layer: "Perturbed") -> bool:
    """Return True if a call of the layer is perturbed now, without regard to a checkpoint that replays an answer."""
    plan = layer.flipout
    # Dynamo of torch 2.11 does not trace bool() of a dict, and would break every layer's graph here.
    return len(plan.distributions) > 0 and (layer.training or plan.sampled)


def needs_root_draw(layer: "Perturbed") -> bool:
    """Return True if the next call of the layer will ask its root for the draw."""
    return is_noisy_now(layer) and layer.flipout.held is None


def parameter_of(layer: nn.Module, name: str) -> Tensor:
    """Return the Parameter of that (dotted) name, or the tensor that stands in for it."""
    try:
        parameter = layer._parameters[name]
    except KeyError:
        parameter = None
    return attrgetter(name)(layer) if parameter is None else parameter


def own_parameter(layer: nn.Module, name: str) -> nn.Parameter | None:
    """Return the Parameter of that (dotted) name; None if there is none, or if it is computed (parametrised)."""
    owner, _, local = name.rpartition(".")
    return layer.get_submodule(owner)._parameters.get(local)
