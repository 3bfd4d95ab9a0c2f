"""Making a module the root of the perturbed layers inside it."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from torch import nn

from .base import Perturbed, no_effect
from .fast_path import leave_fast_path
from .models import layer_keys, perturbed_layers
from .plan import Keys, parameter_key
from .root import Root
from .structure import conversions


def roots_on(module: nn.Module) -> list[Root]:
    """Return the roots whose hooks are registered on this module itself."""
    owners = (getattr(hook, "__self__", None) for hook in module._forward_pre_hooks.values())
    return [owner for owner in owners if isinstance(owner, Root)]


def make_root(model: nn.Module, first_names: dict[int, str], share_base: bool | None, process_group: Any) -> None:
    """Make the model the only root among its modules. Layers keep their roots outside of the model.

    Args:
        model: A model with perturbed layers.
        first_names: id of a Parameter → its first name in the model.
        share_base: All ranks share a base perturbation; None keeps the present choice.
        process_group: The ranks that share a batch; None keeps the present choice.
    """
    conversions.count += 1
    layers = perturbed_layers(
        model,
        "flipout.perturb(model, flipout.Gaussian(0.1)). Without a distribution, perturb only makes a model the root of "
        "layers that were made by hand",
    )
    present = roots_on(model)
    root = present[0] if present else Root()
    if share_base is not None:
        root.share_base = share_base
    if process_group is not None:
        root.process_group = process_group
    outer = _outer_keys(layers.values(), first_names, detach_inner_roots(root, model) | {root})
    for label, layer in layers.items():
        plan = layer.flipout
        plan.roots, plan.is_rooted, plan.label = [*outer[layer], (root, layer_keys(first_names, layer))], True, label
        plan.is_checked, plan.remembered, plan.own_roster = True, None, None
        join_modules_around(layer, label, model)
    root.forget_roster()
    share_quiet_rows(layers.values())
    if not present:
        root.attach(model)


def join_modules_around(layer: Perturbed, label: str, model: nn.Module) -> None:
    """Have the modules around a layer call it. The hook that a layer made by hand has for this goes."""
    parts = label.split(".")
    for depth in range(len(parts) if label else 0):
        leave_fast_path(model.get_submodule(".".join(parts[:depth])))
    for handle in [handle for handle, hook in layer._forward_pre_hooks.items() if hook is no_effect]:
        del layer._forward_pre_hooks[handle]


def _outer_keys(
    layers: Iterable[Perturbed], first_names: dict[int, str], inner_roots: set[Root]
) -> dict[Perturbed, list[tuple[Root, Keys]]]:
    """Return the roots of each layer outside the model, with keys for Parameters that are perturbed only now."""
    before = {layer: living_roots(layer) if layer.flipout.is_rooted else {} for layer in layers}
    roots = [
        root for root in dict.fromkeys(root for keys in before.values() for root in keys) if root not in inner_roots
    ]
    outer: dict[Perturbed, list[tuple[Root, Keys]]] = {layer: [] for layer in before}
    for root in roots:
        # The names of the new Parameters in that root are not known here. Any key will do that is unique there.
        tag = min(key for keys in before.values() for key in keys.get(root, {}).values())
        for layer, keys in before.items():
            names = {name: first_names[id(attrgetter(name)(layer))] for name in layer.flipout.distributions}
            fresh = {name: parameter_key(f"{tag}/{first_name}") for name, first_name in names.items()}
            outer[layer].append((root, fresh | keys.get(root, {})))
    return outer


def living_roots(layer: Perturbed) -> dict[Root, Keys]:
    """Return the layer's roots whose module still exists. A layer that was copied out of its model has others too."""
    return {root: keys for root, keys in layer.flipout.roots if not root.structure.is_gone}


def detach_inner_roots(root: Root, model: nn.Module) -> set[Root]:
    """Detach the roots inside the model, other than this one, and return them. They take no draws any longer."""
    inner = {(other, module) for module in model.modules() for other in roots_on(module) if other is not root}
    for other, module in inner:
        other.detach(module)
    return {other for other, _ in inner}


def share_quiet_rows(layers: Iterable[Perturbed]) -> None:
    """Leave the padding row of an embedding without noise in every layer that uses its table."""
    rows: dict[int, int] = {}
    for layer in layers:
        padding = getattr(layer, "padding_idx", None)
        if padding is not None and "weight" in layer.flipout.distributions:
            rows[id(attrgetter("weight")(layer))] = padding
    for layer in layers:
        for name in layer.flipout.distributions:
            row = rows.get(id(attrgetter(name)(layer)))
            if row is not None:
                layer.flipout.quiet_rows[name] = row
