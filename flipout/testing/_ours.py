"""The claim of a model of this library, read from its layers."""

import copy
from collections.abc import Callable
from functools import partial
from operator import attrgetter

import torch
from torch import Tensor, nn

from .._freeze import freeze
from ..bayes import Normal, kl
from ..distributions import Distribution, LearnedDistribution, LowRankNormal
from ..draws.noise import Stream
from ..errors import Unsupported
from ..nn.base import Perturbed
from ..nn.companions import learned_companions, prior_numbers
from ..nn.contexts import hold
from ..nn.held_weights import example_weights
from ..nn.models import parameter_names, perturbed_layers
from ..schemes import LocalReparam, LowRank, RankOne
from ._claim import Claim, Value
from ._quiet import eval_call


def claim_of(model: nn.Module) -> Claim:
    """Return what a model with perturbed layers claims: the spreads of its distributions, its KL and its modes.

    Args:
        model: A converted model, or a layer of `flipout.nn`.

    Returns:
        A claim for `check`, which makes one itself unless another is given.

    Raises:
        NotPerturbed: The model has no perturbed layers.
        Unsupported: A layer has low-rank noise, whose weights are not independent.

    Example:
        >>> claim = dataclasses.replace(testing.claim_of(model), weights=None)
        >>> testing.check(model, x, claim)  # as a black box
    """
    layers, names = perturbed_layers(model), parameter_names(model)
    spread: dict[str, Value] = {}
    noise: dict[str, Callable[[torch.Size], Tensor]] = {}
    prior: dict[str, tuple[Value, Value]] = {}
    is_learned = True
    for label, layer in layers.items():
        structured = any(isinstance(noise, LowRankNormal) for noise in layer.flipout.distributions.values())
        if structured or isinstance(layer.flipout.scheme, (LowRank, RankOne)):
            raise Unsupported(
                f"{label or type(layer).__name__}: low-rank noise has dependent weights, so no Claim describes it. "
                "Check it with MeanField and scheme='flipout'."
            )
        for local, distribution in layer.flipout.distributions.items():
            name = names[id(attrgetter(local)(layer))]
            spread[name] = partial(_spread, layer, local)
            noise[name] = torch.randn if distribution.gaussian else partial(_noise, distribution)
            if isinstance(distribution, LearnedDistribution) and isinstance(distribution.prior, Normal):
                prior[name] = partial(_prior, layer, local, "mean"), partial(_prior, layer, local, "std")
            else:
                is_learned = False
    has_weights = not any(isinstance(layer.flipout.scheme, LocalReparam) for layer in layers.values())
    plain = freeze(copy.deepcopy(model))
    return Claim(
        plain=plain,
        mean={name: partial(_parameter, model, name) for name, _ in plain.named_parameters()},
        spread=spread,
        noise=noise,
        disabled={"eval()": eval_call(model), "freeze": lambda x: freeze(copy.deepcopy(model))(x)},
        kl=partial(_kl, model) if is_learned else None,
        prior=prior if is_learned else None,
        weights=partial(_weights, model, names) if has_weights else None,
        parameters=[p for name, p in model.named_parameters() if "_prior_" not in name],
    )


def _spread(layer: Perturbed, local: str) -> Tensor:
    parameter = attrgetter(local)(layer)
    spread = layer.flipout.distributions[local].spread(parameter, **learned_companions(layer, local))
    row = layer.flipout.quiet_rows.get(local)
    if row is None:
        return spread
    return spread.expand_as(parameter).index_fill(0, torch.tensor(row, device=parameter.device), 0.0)


def _noise(distribution: Distribution, shape: torch.Size) -> Tensor:
    start = torch.randint(2**63 - 1, (1,))
    return distribution.noise(Stream(start, tuple(shape), torch.float64))[0]


def _prior(layer: Perturbed, local: str, number: str) -> Tensor:
    return prior_numbers(layer, local)[number]


def _parameter(model: nn.Module, name: str) -> Tensor:
    return attrgetter(name)(model)


def _kl(model: nn.Module, x: Tensor) -> Tensor:
    model(x)
    return kl(model)


def _weights(model: nn.Module, names: dict[int, str], x: Tensor) -> tuple[object, dict[str, Tensor]]:
    seen = {}
    with hold(model):
        y = model(x)
        for layer in perturbed_layers(model).values():
            weights = example_weights(layer)
            seen |= {names[id(attrgetter(local)(layer))]: weights[local] for local in layer.flipout.distributions}
    return y, seen
