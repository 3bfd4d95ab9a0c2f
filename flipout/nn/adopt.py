"""Making a module the root of the perturbed layers inside."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from torch import nn

from ..errors import Unsupported
from .base import Perturbed, no_effect
from .changed import check_shapes, refuse_computed, refuse_plain_readers, refuse_two_noises
from .contexts import keys_in, parameter_names, perturbed_layers, refuse_reuse
from .fast_path import leave_fast_path
from .layers import own_parameter
from .pending import settle
from .plan import Keys, parameter_key
from .root import Root
from .structure import conversions


def roots_on(module: nn.Module) -> list[Root]:
    owners = (getattr(hook, "__self__", None) for hook in module._forward_pre_hooks.values())
    return [owner for owner in owners if isinstance(owner, Root)]


def adopt(model: nn.Module, first_names: dict[int, str], share_base: bool | None, process_group: Any) -> None:
    """Make the model the one root of every perturbed layer inside; roots outside of it keep theirs."""
    conversions.count += 1
    layers = perturbed_layers(
        model,
        "flipout.perturb(model, flipout.Gaussian(0.1)). Without a distribution, perturb only makes a model the root of "
        "layers that were made by hand",
    )
    own = roots_on(model)
    root = own[0] if own else Root()
    if share_base is not None:
        root.share_base = share_base
    if process_group is not None:
        root.process_group = process_group
    outer = _outer_keys(layers.values(), first_names, _detached(root, model) | {root})
    for label, layer in layers.items():
        plan = layer.flipout
        plan.roots, plan.rooted, plan.label = [*outer[layer], (root, keys_in(first_names, layer))], True, label
        plan.seen, plan.quick, plan.alone = True, None, None
        _receive(layer, label, model)
    root.forget_roster()
    _share_quiet_rows(layers.values())
    if not own:
        root.attach(model)


def _receive(layer: Perturbed, label: str, model: nn.Module) -> None:
    """Have the modules around a layer call it, and the layer itself follow its root's hooks alone."""
    parts = label.split(".")
    for depth in range(len(parts) if label else 0):
        leave_fast_path(model.get_submodule(".".join(parts[:depth])))
    for handle in [handle for handle, hook in layer._forward_pre_hooks.items() if hook is no_effect]:
        del layer._forward_pre_hooks[handle]


def _outer_keys(
    layers: Iterable[Perturbed], first_names: dict[int, str], known: set[Root]
) -> dict[Perturbed, list[tuple[Root, Keys]]]:
    """For each layer, the roots around or beside this model, with keys for what became perturbed only now."""
    before = {layer: _lasting(layer) if layer.flipout.rooted else {} for layer in layers}
    roots = [root for root in dict.fromkeys(root for keys in before.values() for root in keys) if root not in known]
    made: dict[Perturbed, list[tuple[Root, Keys]]] = {layer: [] for layer in before}
    for root in roots:
        # The names of new Parameters in that root are not known here: any key that no other Parameter there has.
        tag = min(key for keys in before.values() for key in keys.get(root, {}).values())
        for layer, keys in before.items():
            names = {name: first_names[id(attrgetter(name)(layer))] for name in layer.flipout.distributions}
            fresh = {name: parameter_key(f"{tag}/{full}") for name, full in names.items()}
            made[layer].append((root, fresh | keys.get(root, {})))
    return made


def _lasting(layer: Perturbed) -> dict[Root, Keys]:
    """The layer's roots, without those whose module is gone: of a layer that was copied out of its model."""
    return {root: keys for root, keys in layer.flipout.roots if not root.structure.is_gone}


def _share_quiet_rows(layers: Iterable[Perturbed]) -> None:
    """The padding row of an embedding is quiet in every layer that uses its table."""
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


def check_layer(layer: Perturbed) -> None:
    """Look at a layer that is its own root."""
    refuse_computed(layer)
    check_shapes([layer])
    settle(layer, layer)


check_layer._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]


def follow_change(root: Root, module: nn.Module) -> None:
    """Give every perturbed layer in the root's module this root and the keys of its Parameters' names, or refuse.

    Tensors that stand in for Parameters (`torch.func.functional_call`) keep the Parameters' keys.
    """
    if getattr(module, "_is_replica", False):
        return  # of nn.DataParallel, which each layer refuses
    layers = {label: layer for label, layer in module.named_modules() if isinstance(layer, Perturbed)}
    for layer in layers.values():
        refuse_computed(layer)
    used = [own_parameter(layer, name) for layer in layers.values() for name in layer.flipout.distributions]
    swapped = not all(isinstance(parameter, nn.Parameter) for parameter in used)
    if not swapped:
        check_shapes(layers.values())
        refuse_plain_readers(module, layers)
        refuse_two_noises(layers)
        refuse_reuse(
            (label, layer, layer.flipout.distributions, layer.flipout.converted_scheme)
            for label, layer in layers.items()
        )
    for layer in layers.values():
        settle(layer, module)
    names, changed = parameter_names(module), dict[str, Keys]()
    for label, layer in layers.items():
        before = dict(layer.flipout.roots).get(root)
        keys = before if before is not None and swapped else keys_in(names, layer)
        if keys != before:
            changed[label] = keys
    if changed:
        _refuse_inside_contexts(layers, next(iter(changed)))
    inner = (
        _detached(root, module) if any(root not in dict(layer.flipout.roots) for layer in layers.values()) else set()
    )
    for label, keys in changed.items():
        _join(layers[label], label, root, keys, module, inner)
    if changed:
        _share_quiet_rows(layers.values())
    for label, layer in layers.items():
        layer.flipout.seen = True
        if layer.flipout.roots[-1][0] is root:
            layer.flipout.label = label
    if not swapped:
        root.structure.record(module, same_keys=not changed)
        root.forget_roster()
        for layer in layers.values():
            layer.flipout.quick = layer.flipout.alone = None


def _detached(root: Root, model: nn.Module) -> set[Root]:
    """The roots inside of this one, which take no draws any longer."""
    inner = {(old, module) for module in model.modules() for old in roots_on(module) if old is not root}
    for old, module in inner:
        old.detach(module)
    return {old for old, _ in inner}


def _join(layer: Perturbed, label: str, root: Root, keys: Keys, module: nn.Module, inner: set[Root]) -> None:
    """Make this root the layer's own in place of the inner ones, or renew its keys."""
    plan, roots = layer.flipout, _lasting(layer) if layer.flipout.rooted else {}
    before = roots.get(root, {})
    for name in plan.distributions:
        if keys[name] != before.get(name):
            plan.quiet_rows.pop(name, None)
    if root in roots:
        plan.roots = [(own, keys if own is root else others) for own, others in plan.roots]
        return
    if not plan.rooted:
        plan.follows, plan.sequences = followed_dim(module, label), sees_sequences(module, label)
    plan.roots = [*((own, others) for own, others in roots.items() if own not in inner), (root, keys)]
    plan.rooted = True
    _receive(layer, label, module)


def _refuse_inside_contexts(layers: dict[str, Perturbed], label: str) -> None:
    """A context has the layers and keys of the moment that it was opened."""
    if any(layer.flipout.opened for layer in layers.values()):
        raise Unsupported(
            f"{label or 'The model'}: put in, tied or untied inside of `hold`, `sampling` or `using`, which keeps to "
            "the layers that it was opened on. Change the model first, then open it."
        )


def followed_dim(model: nn.Module, label: str) -> int:
    """The example's dimension that the transformer around a layer has, else 0."""
    parts = label.split(".")
    for depth in range(len(parts) - 1, -1, -1):
        parent = model.get_submodule(".".join(parts[:depth]))
        attention = next((m for m in parent.modules() if isinstance(m, nn.MultiheadAttention)), None)
        if isinstance(parent, _TRANSFORMERS) and attention is not None:
            return 0 if attention.batch_first else 1
    return 0


def sees_sequences(model: nn.Module, label: str) -> bool:
    """Whether a layer is torch's own part of a transformer, which sees a batch of sequences or one alone."""
    owner, _, name = label.rpartition(".")
    parent = model.get_submodule(owner)
    if isinstance(parent, _BLOCKS):
        return name in ("linear1", "linear2", "norm1", "norm2", "norm3")
    return isinstance(parent, _STACKS) and name == "norm"


_BLOCKS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
_STACKS = (nn.TransformerEncoder, nn.TransformerDecoder)
_TRANSFORMERS = (nn.Transformer, *_STACKS, *_BLOCKS)
