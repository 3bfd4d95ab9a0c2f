"""Changes of a converted model that cannot be followed, and what to do instead."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

from ..errors import InvalidArgument, Unsupported
from .base import Perturbed
from .companions import companion_names
from .layers import label_of, own_parameter


def refuse_computed(layer: Perturbed) -> None:
    """Refuse a perturbed weight that is computed: its mean would lose its noise, or have it under the wrong spread."""
    for name in layer.flipout.distributions:
        owner, _, local = name.rpartition(".")
        module = layer.get_submodule(owner)
        # FullyShardedDataParallel (the first one) puts views of its flat Parameter in place of Parameters.
        if local in module._parameters or getattr(module, "_is_fsdp_managed_module", False):
            continue
        label = layer.flipout.label or "layer"
        what, fix = _computed_by(module, local, f"model.{label}" if layer.flipout.label else label)
        raise Unsupported(
            f"{label_of(layer)}: its {name} is perturbed, but was {what} since: it is computed, not a Parameter. "
            f"{fix} A weight that is to be computed stays plain: leave it out with `where` of flipout.perturb(model, "
            f"…)."
        )


def _computed_by(module: nn.Module, local: str, label: str) -> tuple[str, str]:
    """What was done to a weight, and how to undo it."""
    if parametrize.is_parametrized(module, local):
        return "parametrised", f"Undo it: torch.nn.utils.parametrize.remove_parametrizations({label}, {local!r})."
    for hook in module._forward_pre_hooks.values():
        kind = type(hook).__name__
        if isinstance(hook, prune.BasePruningMethod) and hook._tensor_name == local:
            return "pruned", f"Make it permanent: torch.nn.utils.prune.remove({label}, {local!r})."
        if kind in _OLD and getattr(hook, "name", None) == local:
            return f"put under {_OLD[kind]}", f"Undo it: torch.nn.utils.remove_{_OLD[kind]}({label}, {local!r})."
    return "taken away", f"Make it a Parameter again: {label}.{local} = torch.nn.Parameter(…)."


_OLD = {"WeightNorm": "weight_norm", "SpectralNorm": "spectral_norm"}


def refuse_plain_readers(model: nn.Module, layers: dict[str, Perturbed]) -> None:
    """Refuse a perturbed Parameter that a layer without noise uses too: it would see the mean."""
    perturbed: dict[int, str] = {}
    readers: set[tuple[nn.Module, str]] = set()
    for label, layer in layers.items():
        for name in layer.flipout.distributions:
            owner, _, local = name.rpartition(".")
            readers.add((layer.get_submodule(owner), local))
            perturbed.setdefault(id(own_parameter(layer, name)), f"{label}.{name}".lstrip("."))
    for label, module in model.named_modules():
        for local, parameter in module._parameters.items():
            if id(parameter) in perturbed and (module, local) not in readers:
                full = f"{label}.{local}".lstrip(".")
                raise Unsupported(
                    f"{full} of a {type(module).__name__} is the Parameter {perturbed[id(parameter)]}, which is "
                    f"perturbed, but {full} is read without noise. Tie them before flipout.perturb(model, …), or untie "
                    f"them: model.{full} = torch.nn.Parameter(model.{full}.detach().clone())."
                )


def refuse_two_noises(layers: dict[str, Perturbed]) -> None:
    """Refuse layers that share a Parameter but not its noise: its spread, its scheme, or what is learned beside it."""
    users: dict[int, tuple[str, Perturbed, str]] = {}
    for label, layer in layers.items():
        for name in layer.flipout.distributions:
            full = f"{label}.{name}".lstrip(".")
            first, other, local = users.setdefault(id(own_parameter(layer, name)), (full, layer, name))
            if other is layer and local == name:
                continue
            both = [(other, local), (layer, name)]
            noises = [(each.flipout.distributions[own], each.flipout.converted_scheme) for each, own in both]
            if not all(map(_same, *noises)):
                said = " and ".join(f"{distribution} ({scheme.name})" for distribution, scheme in noises)
                raise Unsupported(
                    f"{first} and {full} are one Parameter with two noises, {said}. Tie the weights before "
                    "flipout.perturb(model, …)."
                )
            pairs = zip(companion_names(other, local), companion_names(layer, name), strict=True)
            for theirs, ours in pairs:
                one, two = own_parameter(other, theirs), own_parameter(layer, ours)
                if one is not two:
                    before = first.removesuffix(local)
                    raise InvalidArgument(
                        f"{first} and {full} are one Parameter with two learned spreads, so it has no one posterior. "
                        f"Tie what stands beside it too, model.{label}.{ours} = model.{before}{theirs}, or tie the "
                        "weights before flipout.perturb(model, …)."
                    )


def _same(one: Any, other: Any) -> bool:
    """Return True if two distributions are the same kind with the same numbers."""
    if one is other:
        return True
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one, other.to(one))
    ours, theirs = getattr(one, "__dict__", None), getattr(other, "__dict__", None)
    if type(one) is not type(other) or not ours or not theirs:
        return bool(one == other)
    return ours.keys() == theirs.keys() and all(_same(ours[field], theirs[field]) for field in ours)


def check_shapes(layers: Iterable[Perturbed]) -> None:
    """Refuse a replaced Parameter that no longer fits what was learned beside it."""
    for layer in layers:
        for name in layer.flipout.learned:
            parameter = own_parameter(layer, name)
            for own in companion_names(layer, name):
                value = own_parameter(layer, own)
                if parameter is None or value is None or value.dim() != parameter.dim():
                    continue
                if any(size not in (1, whole) for size, whole in zip(value.shape, parameter.shape, strict=True)):
                    raise Unsupported(
                        f"{label_of(layer)}: its {name} has shape {tuple(parameter.shape)} now, but its {own} is of "
                        f"shape {tuple(value.shape)}. flipout.freeze(model) before a Parameter of another shape is "
                        "put in, then flipout.perturb(model, …) again."
                    )
