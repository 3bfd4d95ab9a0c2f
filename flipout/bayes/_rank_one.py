"""Rank-one posteriors: Gaussian scales of the input and output features around plain weights."""

import warnings
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from .._convert import perturb
from .._left import left_plain
from ..distributions import MeanField
from ..distributions.prior import Prior
from ..errors import InvalidArgument, LeftPlain, UnknownParameter, Unsupported
from ..nn import scaled
from ..nn.base import Perturbed
from ..nn.checks import Where, check_module, matcher
from ..nn.scaled import SCALES, add_scales
from ..schemes import Scheme, SchemeName
from .priors import Normal

M = TypeVar("M", bound=nn.Module)

_SCALED: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: scaled.ScaledLinear,
    nn.Conv1d: scaled.ScaledConv1d,
    nn.Conv2d: scaled.ScaledConv2d,
    nn.Conv3d: scaled.ScaledConv3d,
}


def rank_one(
    model: M,
    *,
    std: float = 0.05,
    prior: Prior | torch.distributions.Distribution | None = None,
    scheme: SchemeName | Scheme = "flipout",
    where: Where | None = None,
    batch_dim: int | Mapping[str, int] | None = None,
    example_inputs: Any = None,
) -> M:
    """Give a model a rank-one posterior, in place: each example sees the weights r ∘ W ∘ s.

    The scales r of a layer's outputs and s of its inputs are Parameters with a learned Gaussian spread, at first around
    1. The weights W are trained as usual, without noise. There are few scales, so the posterior costs little memory and
    its KL is small. The model's mean is unchanged.

    Args:
        model: A model with linear layers or convolutions, not perturbed yet.
        std: The initial standard deviation of the scales.
        prior: The prior of the scales, `Normal(1.0, 0.1)` unless given.
        scheme: Who in the batch shares the noise.
        where: The layers to convert, by the names of their weights: a glob, several globs, or a predicate. By default
            all linear layers and convolutions.
        batch_dim: As in `flipout.perturb`.
        example_inputs: As in `flipout.perturb`.

    Returns:
        The model itself. An optimiser made before does not know the new Parameters.

    Raises:
        UnknownParameter: `where` names no weight, or one of a layer that has no scales.
        Unsupported: A layer is perturbed or parametrised already, or has an attribute of the scales' name.

    Warns:
        LeftPlain: Without `where`, layers of other types keep their weights without scales.

    Example:
        >>> flipout.bayes.rank_one(model, prior=flipout.bayes.Normal(1.0, 0.1))
        >>> elbo = flipout.bayes.ELBO(model, "categorical", num_data=len(dataset))
    """
    check_module(model)
    layers = _chosen(model, where)
    for label, layer in layers.items():
        _check(label, layer)
    noise = MeanField(std=std, prior=Normal(1.0, 0.1) if prior is None else prior)
    classes = {layer: type(layer) for layer in layers.values()}
    for layer in classes:
        add_scales(layer)
        layer.__class__ = _SCALED[type(layer)]
    names = [f"{label}.{scale}".lstrip(".") for label in layers for scale in SCALES]
    try:
        perturb(
            model, noise, scheme=scheme, where=names.__contains__, batch_dim=batch_dim, example_inputs=example_inputs
        )
    except BaseException:
        for layer, kind in classes.items():
            _remove_scales(layer, kind)
        raise
    if where is None:
        _warn_of_left(model, len(layers))
    return model


def absorb_scales(model: M) -> M:
    """Multiply the scales of a frozen rank-one model into its weights, in place, and give torch's own layers back.

    Args:
        model: A model that `rank_one` converted and `flipout.freeze` made plain again.

    Returns:
        The model itself, with layers of torch alone.

    Raises:
        InvalidArgument: The model still has noise, or no scales.

    Example:
        >>> plain = flipout.bayes.absorb_scales(flipout.freeze(model))
    """
    kinds = {kind: plain for plain, kind in _SCALED.items()}
    if any(isinstance(layer, Perturbed) for layer in model.modules()):
        raise InvalidArgument(
            "absorb_scales: the model has noise. Freeze it first: absorb_scales(flipout.freeze(model))."
        )
    layers = [layer for layer in model.modules() if type(layer) in kinds]
    if not layers:
        raise InvalidArgument(
            f"absorb_scales: {type(model).__name__} has no layers with scales. flipout.bayes.rank_one makes them."
        )
    for layer in layers:
        plain: Any = layer
        spatial = [1] * (plain.weight.dim() - 2)
        with torch.no_grad():
            rows = plain.output_scale.view(-1, 1, *spatial)
            columns = plain.input_scale.view(getattr(layer, "groups", 1), -1)
            # Each group of a convolution's outputs has its own input channels.
            by_group = plain.weight.unflatten(0, (len(columns), -1)) * columns.view(len(columns), 1, -1, *spatial)
            plain.weight.copy_(rows * by_group.flatten(0, 1))
        _remove_scales(layer, kinds[type(layer)])
    return model


def _chosen(model: nn.Module, where: Where | None) -> dict[str, nn.Module]:
    """Return label → layer of the layers that get scales."""
    is_selected = (lambda name: True) if where is None else matcher(where)
    layers, others = {}, []
    for label, layer in model.named_modules():
        for local in layer._parameters:
            name = f"{label}.{local}".lstrip(".")
            if local == "weight" and type(layer) in _SCALED and is_selected(name):
                layers[label] = layer
            elif where is not None and is_selected(name) and local != "bias":
                others.append(name)
    if others or not layers:
        found = f"{', '.join(others[:6])}, which has no scales" if others else "no weight of such a layer"
        raise UnknownParameter(
            f"rank_one(where={where!r}) names {found}; expected weights of nn.Linear, nn.Conv1d, nn.Conv2d or "
            "nn.Conv3d. For other layers use flipout.perturb(model, flipout.MeanField(…), where=…)."
        )
    return layers


def _check(label: str, layer: nn.Module) -> None:
    taken = [name for name in SCALES if hasattr(layer, name)]
    if taken or layer._parameters.get("weight") is None:
        why = f"the name {taken[0]} is taken" if taken else "its weight is parametrised"
        raise Unsupported(f"rank_one: {label} ({type(layer).__name__}): {why}. Leave it out with `where`.")


def _remove_scales(layer: nn.Module, kind: type[nn.Module]) -> None:
    layer.__class__ = kind
    for name in SCALES:
        layer._parameters.pop(name, None)


def _warn_of_left(model: nn.Module, count: int) -> None:
    left = [name for names in left_plain(model).values() for name in names]
    if left:
        warnings.warn(
            f"rank_one gave scales to {count} layers of {type(model).__name__}, and left these weights "
            f"without: {', '.join(left[:6])}{', …' if left[6:] else ''}. Only linear layers and convolutions have "
            "scales. For the others use flipout.perturb(model, flipout.MeanField(…), where=…); to leave them out "
            "without this warning, name the layers: rank_one(model, where=…).",
            LeftPlain,
            stacklevel=3,
        )
