"""Making a module the root of the perturbed layers inside."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from torch import nn

from .base import Perturbed, no_effect
from .contexts import keys_in, perturbed_layers
from .fast_path import leave_fast_path
from .plan import Keys, parameter_key
from .root import Root


def _roots_on(module: nn.Module) -> list[Root]:
    owners = (getattr(hook, "__self__", None) for hook in module._forward_pre_hooks.values())
    return [owner for owner in owners if isinstance(owner, Root)]


def adopt(model: nn.Module, first_names: dict[int, str], share_base: bool | None, process_group: Any) -> None:
    """Make the model the one root of every perturbed layer inside; roots outside of it keep theirs."""
    layers = perturbed_layers(model)
    own = _roots_on(model)
    root = own[0] if own else Root()
    if share_base is not None:
        root.share_base = share_base
    if process_group is not None:
        root.process_group = process_group
    inner = {old for module in model.modules() for old in _roots_on(module)} - {root}
    for module in model.modules():
        for old in _roots_on(module):
            if old is not root:
                old.detach(module)
    for label, layer in layers.items():
        parts = label.split(".")
        for depth in range(len(parts) if label else 0):
            leave_fast_path(model.get_submodule(".".join(parts[:depth])))
        for handle in [handle for handle, hook in layer._forward_pre_hooks.items() if hook is no_effect]:
            del layer._forward_pre_hooks[handle]
    outer = _outer_keys(layers.values(), first_names, inner | {root})
    quiet: dict[int, int] = {}
    for label, layer in layers.items():
        plan = layer.plan
        plan.roots, plan.rooted, plan.label = [*outer[layer], (root, keys_in(first_names, layer))], True, label
        padding = getattr(layer, "padding_idx", None)
        if padding is not None and "weight" in plan.distributions:
            quiet[id(attrgetter("weight")(layer))] = padding
    for layer in layers.values():
        for name in layer.plan.distributions:
            row = quiet.get(id(attrgetter(name)(layer)))
            if row is not None:
                layer.plan.quiet_rows[name] = row
    if not own:
        root.attach(model)


def _outer_keys(
    layers: Iterable[Perturbed], first_names: dict[int, str], known: set[Root]
) -> dict[Perturbed, list[tuple[Root, Keys]]]:
    """For each layer, the roots around or beside this model, with keys for what became perturbed only now."""
    before = {layer: dict(layer.plan.roots) if layer.plan.rooted else {} for layer in layers}
    roots = [root for root in dict.fromkeys(root for keys in before.values() for root in keys) if root not in known]
    made: dict[Perturbed, list[tuple[Root, Keys]]] = {layer: [] for layer in before}
    for root in roots:
        # The names of new Parameters in that root are not known here: any key that no other Parameter there has.
        tag = min(key for keys in before.values() for key in keys.get(root, {}).values())
        for layer, keys in before.items():
            names = {name: first_names[id(attrgetter(name)(layer))] for name in layer.plan.distributions}
            fresh = {name: parameter_key(f"{tag}/{full}") for name, full in names.items()}
            made[layer].append((root, fresh | keys.get(root, {})))
    return made
