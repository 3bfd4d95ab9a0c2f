"""Refusals of changes of a converted model that cannot be followed, with what to do instead."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

from ..errors import InvalidArgument, Unsupported
from .base import Perturbed
from .companions import companion_names
from .layers import label_of, own_parameter

_OLD_HOOKS = {"WeightNorm": "weight_norm", "SpectralNorm": "spectral_norm"}


def refuse_computed(layer: Perturbed) -> None:
    """Refuse a perturbed weight that is computed or gone: it would lose its noise, or get a wrong spread."""
    for name in layer.flipout.distributions:
        owner, _, local = name.rpartition(".")
        module = layer.get_submodule(owner)
        # FullyShardedDataParallel, the older API, replaces Parameters by views of its flat Parameter.
        if module._parameters.get(local) is not None or getattr(module, "_is_fsdp_managed_module", False):
            continue
        label = layer.flipout.label or "layer"
        if local in module._parameters:
            raise Unsupported(
                f"{label_of(layer)}: its {name} is perturbed, but was set to None since. Put a Parameter back, or call "
                "flipout.freeze(model) before you take it out, then flipout.perturb(model, …) again."
            )
        done, fix = _computed_by(module, local, f"model.{label}" if layer.flipout.label else label)
        raise Unsupported(
            f"{label_of(layer)}: its {name} is perturbed, but was {done} since: it is computed, not a Parameter. "
            f"{fix} To keep it computed, leave it without noise: flipout.perturb(model, …, where=…)."
        )


def _computed_by(module: nn.Module, local: str, label: str) -> tuple[str, str]:
    """Return what was done to a weight, and how to undo it."""
    if parametrize.is_parametrized(module, local):
        return "parametrised", f"Undo it: torch.nn.utils.parametrize.remove_parametrizations({label}, {local!r})."
    for hook in module._forward_pre_hooks.values():
        kind = type(hook).__name__
        if isinstance(hook, prune.BasePruningMethod) and hook._tensor_name == local:
            return "pruned", f"Make it permanent: torch.nn.utils.prune.remove({label}, {local!r})."
        if kind in _OLD_HOOKS and getattr(hook, "name", None) == local:
            function = _OLD_HOOKS[kind]
            return f"put under {function}", f"Undo it: torch.nn.utils.remove_{function}({label}, {local!r})."
    return "removed", f"Make it a Parameter again: {label}.{local} = torch.nn.Parameter(…)."


def refuse_plain_readers(model: nn.Module, layers: dict[str, Perturbed]) -> None:
    """Refuse a perturbed Parameter that a layer without noise uses too: that layer would see the mean."""
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
                full_name = f"{label}.{local}".lstrip(".")
                raise Unsupported(
                    f"{full_name} of a {type(module).__name__} is the Parameter {perturbed[id(parameter)]}, which is "
                    f"perturbed, but {full_name} is read without noise. Tie them before flipout.perturb(model, …), or "
                    f"untie them: model.{full_name} = torch.nn.Parameter(model.{full_name}.detach().clone())."
                )


def refuse_two_noises(layers: dict[str, Perturbed]) -> None:
    """Refuse layers that share a Parameter but not its distribution, its scheme or its learned companions."""
    users: dict[int, tuple[str, Perturbed, str]] = {}
    for label, layer in layers.items():
        for name in layer.flipout.distributions:
            full_name = f"{label}.{name}".lstrip(".")
            user = users.setdefault(id(own_parameter(layer, name)), (full_name, layer, name))
            first_name, first_layer, local = user
            if first_layer is layer and local == name:
                continue
            noises = [
                (first_layer.flipout.distributions[local], first_layer.flipout.converted_scheme),
                (layer.flipout.distributions[name], layer.flipout.converted_scheme),
            ]
            if not all(map(_are_equal, *noises)):
                both = " and ".join(f"{distribution} ({scheme.name})" for distribution, scheme in noises)
                raise Unsupported(
                    f"{first_name} and {full_name} are one Parameter with two noises, {both}. Tie the weights before "
                    "flipout.perturb(model, …)."
                )
            pairs = zip(companion_names(first_layer, local), companion_names(layer, name), strict=True)
            for first_companion, companion in pairs:
                if own_parameter(first_layer, first_companion) is not own_parameter(layer, companion):
                    prefix = first_name.removesuffix(local)
                    raise InvalidArgument(
                        f"{first_name} and {full_name} are one Parameter with two learned spreads, so it has no single "
                        f"posterior. Tie the spreads too, model.{label}.{companion} = model.{prefix}{first_companion}, "
                        "or tie the weights before flipout.perturb(model, …)."
                    )


def _are_equal(left: Any, right: Any) -> bool:
    """Return True if two distributions, or two schemes, are of one type and have the same numbers."""
    if left is right:
        return True
    if isinstance(left, Tensor) or isinstance(right, Tensor):
        return isinstance(left, Tensor) and isinstance(right, Tensor) and torch.equal(left, right.to(left))
    left_fields, right_fields = getattr(left, "__dict__", None), getattr(right, "__dict__", None)
    if type(left) is not type(right) or not left_fields or not right_fields:
        return bool(left == right)
    return left_fields.keys() == right_fields.keys() and all(
        _are_equal(left_fields[field], right_fields[field]) for field in left_fields
    )


def check_companion_shapes(layers: Iterable[Perturbed]) -> None:
    """Refuse a replaced Parameter whose shape no longer fits its companions."""
    for layer in layers:
        for name in layer.flipout.learned:
            parameter = own_parameter(layer, name)
            for companion in companion_names(layer, name):
                value = own_parameter(layer, companion)
                if parameter is None or value is None or value.dim() != parameter.dim():
                    continue
                if any(size not in (1, full) for size, full in zip(value.shape, parameter.shape, strict=True)):
                    raise Unsupported(
                        f"{label_of(layer)}: its {name} now has shape {tuple(parameter.shape)}, but its {companion} "
                        f"has shape {tuple(value.shape)}. Call flipout.freeze(model) before you put in a Parameter of "
                        "another shape, then flipout.perturb(model, …) again."
                    )
