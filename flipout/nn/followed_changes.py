"""Following changes of a converted model: layers that were added, Parameters that were replaced or tied."""

import warnings

from torch import nn

from .._reprs import first_few
from .._torch_internals import constant_when_compiled
from ..errors import LeftPlain, Unsupported
from .base import Perturbed
from .layers import own_parameter
from .models import layer_keys, parameter_names, refuse_reuse
from .pending import settle
from .plan import Keys
from .refused_changes import check_companion_shapes, refuse_computed, refuse_plain_readers, refuse_two_noises
from .root import Root
from .rooting import detach_inner_roots, join_modules_around, living_roots, share_quiet_rows
from .transformer_layout import takes_sequences, transformer_batch_dim


@constant_when_compiled
def check_layer(layer: Perturbed) -> None:
    """Check a layer that is its own root."""
    refuse_computed(layer)
    check_companion_shapes([layer])
    settle(layer, layer)


def follow_change(root: Root, module: nn.Module) -> None:
    """Give every perturbed layer in the root's module this root and the keys of its Parameters' names, or refuse.

    Tensors that stand in for Parameters (`torch.func.functional_call`) keep the Parameters' keys.
    """
    if getattr(module, "_is_replica", False):
        return  # of nn.DataParallel, which each layer refuses
    layers = {label: layer for label, layer in module.named_modules() if isinstance(layer, Perturbed)}
    for layer in layers.values():
        refuse_computed(layer)
    perturbed = [own_parameter(layer, name) for layer in layers.values() for name in layer.flipout.distributions]
    is_functional = not all(isinstance(parameter, nn.Parameter) for parameter in perturbed)
    if not is_functional:
        check_companion_shapes(layers.values())
        refuse_plain_readers(module, layers)
        refuse_two_noises(layers)
        refuse_reuse(
            (label, layer, layer.flipout.distributions, layer.flipout.converted_scheme)
            for label, layer in layers.items()
        )
    for layer in layers.values():
        settle(layer, module)
    changed = _changed_keys(root, module, layers, is_functional)
    if changed:
        _refuse_inside_contexts(layers, next(iter(changed)))
    joins = any(root not in dict(layer.flipout.roots) for layer in layers.values())
    inner_roots = detach_inner_roots(root, module) if joins else set()
    for label, keys in changed.items():
        _join(layers[label], label, root, keys, module, inner_roots)
    if changed:
        share_quiet_rows(layers.values())
    for label, layer in layers.items():
        layer.flipout.is_checked = True
        if layer.flipout.roots[-1][0] is root:
            layer.flipout.label = label
    if not is_functional:
        _warn_of_replaced(root.structure.replaced_layers(module))
        root.structure.remember_layers(layers)
        root.structure.record(module, same_keys=not changed)
        root.forget_roster()
        for layer in layers.values():
            layer.flipout.remembered = layer.flipout.own_roster = None


def _warn_of_replaced(labels: list[str]) -> None:
    """Name layers that lost their noise because a plain module was put in their place."""
    if labels:
        warnings.warn(
            f"Perturbed layers were replaced by plain ones, which have no noise: {first_few(labels)}. transformers' "
            "resize_token_embeddings replaces a head that is not tied, for example. Perturb them again: "
            f"flipout.perturb(model, distribution, where={[f'{label}.*' for label in labels[:8]]}).",
            LeftPlain,
            stacklevel=2,
        )


def _changed_keys(root: Root, module: nn.Module, layers: dict[str, Perturbed], is_functional: bool) -> dict[str, Keys]:
    """Return label → keys of the layers whose keys under this root have changed."""
    names, changed = parameter_names(module), dict[str, Keys]()
    for label, layer in layers.items():
        before = dict(layer.flipout.roots).get(root)
        keys = before if before is not None and is_functional else layer_keys(names, layer)
        if keys != before:
            changed[label] = keys
    return changed


def _join(layer: Perturbed, label: str, root: Root, keys: Keys, module: nn.Module, inner_roots: set[Root]) -> None:
    """Make this root the layer's root in place of the inner ones, or renew its keys."""
    plan, roots = layer.flipout, living_roots(layer) if layer.flipout.is_rooted else {}
    before = roots.get(root, {})
    for name in plan.distributions:
        if keys[name] != before.get(name):
            plan.quiet_rows.pop(name, None)
    if root in roots:
        plan.roots = [(other, keys if other is root else other_keys) for other, other_keys in plan.roots]
        return
    if not plan.is_rooted:
        plan.inherited_batch_dim = transformer_batch_dim(module, label)
        plan.takes_sequences = takes_sequences(module, label)
    plan.roots = [
        *((other, other_keys) for other, other_keys in roots.items() if other not in inner_roots),
        (root, keys),
    ]
    plan.is_rooted = True
    join_modules_around(layer, label, module)


def _refuse_inside_contexts(layers: dict[str, Perturbed], label: str) -> None:
    """Refuse a change inside a context, which has the layers and keys of the moment when it was opened."""
    if any(layer.flipout.open_contexts for layer in layers.values()):
        raise Unsupported(
            f"{label or 'The model'}: added, tied or untied inside `hold`, `sampling` or `using`. A context knows only "
            "the layers that it was opened on. Change the model first, then open the context."
        )
