"""Contexts that choose the draw, and what is to be seen inside them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from operator import attrgetter

import torch
from torch import Tensor, nn

from ..draw import Draw, from_seed
from ..errors import NoExampleWeights, NotPerturbed
from ..schemes import Scheme, scheme_of
from .base import Perturbations, Perturbed, parameter_key


def perturbed_layers(model: nn.Module) -> dict[str, Perturbed]:
    layers = {name: module for name, module in model.named_modules() if isinstance(module, Perturbed)}
    if not layers:
        raise NotPerturbed(
            f"{type(model).__name__} has no perturbed layers. Convert it first: flipout.perturb(model, distribution)."
        )
    return layers


def parameter_names(model: nn.Module) -> dict[int, str]:
    """id of a Parameter → its first name."""
    return {id(parameter): name for name, parameter in model.named_parameters()}


def keys_in(model_names: dict[int, str], layer: Perturbed) -> dict[str, int]:
    """What a layer's signs are keyed by in a model whose Parameters have these names."""
    return {name: parameter_key(model_names[id(attrgetter(name)(layer))]) for name in layer.plan.distributions}


@contextmanager
def hold(
    model: nn.Module,
    seed: int | Tensor | None = None,
    *,
    sign_seed: int | Tensor | None = None,
    first: int = 0,
    rows: int = 1,
    group: int | None = None,
    antithetic: bool = False,
) -> Iterator[None]:
    """One draw for every call inside, in training and in eval mode.

    With `seed` it can be replayed anywhere; `first` is the index of the batch's first example (chunks and ranks of one
    batch), `rows` the number of rows of an example, `group` the number of examples that share one ΔŴ (overriding the
    scheme's), and `antithetic` negates every perturbation. `sign_seed` draws other signs over the same base.
    """
    layers = perturbed_layers(model)
    names = parameter_names(model)
    roots = {layer.plan.root for layer in layers.values()}
    device = next(iter(model.parameters())).device
    fields = {"first": first, "rows": rows, "group": group, "antithetic": antithetic}
    if seed is None:
        fresh = next(iter(roots)).take(device)
        signs = fresh.sign_keys if sign_seed is None else from_seed(sign_seed, device=device).sign_keys
        draw = replace(fresh, sign_keys=signs, **fields)
    else:
        draw = from_seed(seed, sign_seed, device, **fields)
    for layer in layers.values():
        keys = (
            layer.plan.keys if layer.plan.rooted else keys_in(names, layer)
        )  # made by hand: the model at hand is the root
        layer.plan.held.append((draw, keys))
    for root in roots:
        root.open_hold()
    try:
        with _every_submodule_called():
            yield
    finally:
        for layer in layers.values():
            layer.plan.held.pop()
        for root in roots:
            root.close_hold(draw)


@contextmanager
def sampling(model: nn.Module) -> Iterator[None]:
    """Draw in eval mode too: BatchNorm and Dropout stay as they are, only the weights vary."""
    layers = perturbed_layers(model)
    for layer in layers.values():
        layer.plan.sampling += 1
    try:
        with _every_submodule_called():
            yield
    finally:
        for layer in layers.values():
            layer.plan.sampling -= 1


@contextmanager
def using(model: nn.Module, *, scheme: str | Scheme) -> Iterator[None]:
    """The same weights and the same noise, shared in another way."""
    layers = perturbed_layers(model)
    chosen = scheme_of(scheme)
    for name, layer in layers.items():
        layer.check_scheme(chosen, layer.plan.distributions, layer.plan.label or name)
    before = {name: layer.plan.scheme for name, layer in layers.items()}
    for layer in layers.values():
        layer.plan.scheme = chosen
    try:
        yield
    finally:
        for name, layer in layers.items():
            layer.plan.scheme = before[name]


@contextmanager
def _every_submodule_called() -> Iterator[None]:
    """torch's transformer fast path reads weights instead of calling layers: without this the noise would vanish."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


def held_draw(layer: Perturbed) -> tuple[Draw, dict[str, int]]:
    if not layer.plan.held:
        raise NoExampleWeights(f"{layer.label}: no draw is held. Ask inside of `with flipout.hold(model):`.")
    return layer.plan.held[-1]


def example_weights(layer: nn.Module) -> dict[str, Tensor]:
    """name → (N, *shape): the Parameters that each example of the held batch really sees."""
    if not isinstance(layer, Perturbed):
        raise NotPerturbed(
            f"{type(layer).__name__} is not a perturbed layer; example_weights takes one layer, such as model.fc1."
        )
    draw, keys = held_draw(layer)
    if draw.examples is None:
        raise NoExampleWeights(
            f"{layer.label}: the number of examples is not known yet. Call the model first, inside of hold."
        )
    return weights_of(layer, draw, keys)


def weights_of(layer: Perturbed, draw: Draw, keys: dict[str, int], example: int | None = None) -> dict[str, Tensor]:
    """The weights of all examples of the draw, or of one."""
    weights = {}
    for name in layer.perturbable(layer):
        parameter = attrgetter(name)(layer)
        noise = Perturbations(layer, draw.to(parameter.device), keys, parameter.dtype)
        count = 1 if example is not None else draw.examples or 0
        if name in noise:
            p = noise.under(name, draw.first + example, 1) if example is not None else noise[name]
            weights[name] = layer.plan.scheme.weights(p, layer.groups_of(name))
        else:
            weights[name] = parameter.expand(count, *parameter.shape)
    return weights
