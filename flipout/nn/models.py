"""Questions about all perturbed layers of a model."""

from collections.abc import Iterable, Mapping
from operator import attrgetter

from torch import nn

from ..errors import NotPerturbed, WeightReused
from ..schemes import LocalReparam, Scheme
from .base import Perturbed
from .checks import check_module
from .plan import Keys, parameter_key
from .structure import follow_all
from .walk import named_modules, parameters_in


def perturbed_layers(model: nn.Module, fix: str = "flipout.perturb(model, distribution)") -> dict[str, Perturbed]:
    """Return name → perturbed layer, after a check for changes of the model.

    Raises:
        NotPerturbed: There is none. The message names the `fix`.
    """
    return all_layers(model, fix)[1]


def all_layers(model: nn.Module, fix: str) -> tuple[dict[str, nn.Module], dict[str, Perturbed]]:
    """Return name → module, and `perturbed_layers`, by one walk over the model."""
    check_module(model)
    modules = named_modules(model)
    layers = {name: module for name, module in modules.items() if isinstance(module, Perturbed)}
    if not layers:
        raise NotPerturbed(f"{type(model).__name__} has no perturbed layers. Convert it first: {fix}.")
    follow_all(modules.values(), layers.values())
    return modules, layers


def parameter_names(model: nn.Module) -> dict[int, str]:
    """Return id of a Parameter → its first name."""
    return names_in(named_modules(model))


def names_in(modules: Mapping[str, nn.Module]) -> dict[int, str]:
    """Return `parameter_names` of a model from its modules."""
    return {id(parameter): name for name, parameter in parameters_in(modules)}


def layer_keys(first_names: dict[int, str], layer: Perturbed) -> Keys:
    """Return the keys of a layer's Parameters in a model where they have these first names."""
    return {name: parameter_key(first_names[id(attrgetter(name)(layer))]) for name in layer.flipout.distributions}


def refuse_reuse(layers: Iterable[tuple[str, nn.Module, Iterable[str], Scheme]]) -> None:
    """Refuse local reparameterisation of a Parameter that several layers use.

    Args:
        layers: For each layer its label, the layer, the names of its perturbed Parameters, and its scheme.
    """
    users: dict[int, tuple[str, bool]] = {}
    for label, layer, parameters, scheme in layers:
        for name in parameters:
            key, full_name, is_local = id(attrgetter(name)(layer)), f"{label}.{name}", isinstance(scheme, LocalReparam)
            if key in users and (is_local or users[key][1]):
                raise WeightReused(
                    f"{users[key][0]} and {full_name} are one Parameter: local reparameterisation would sample it in "
                    "each layer separately, which is never one weight per example. Use scheme='flipout'."
                )
            users[key] = full_name, is_local
