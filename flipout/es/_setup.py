"""Prepare a model and its optimiser for a strategy."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from .._convert import perturb
from .._shards import refuse_shards
from ..distributions import Distribution
from ..errors import AlreadyPerturbed, InvalidArgument, UnknownParameter
from ..nn.base import Perturbed
from ..schemes import Scheme

_WHOLE = (
    "Every worker of a fleet has the whole model, since members are made from a seed and the whole update from fitness "
    "numbers. Give the strategy a model that is not sharded."
)


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the Parameters that require a gradient, of a model without noise."""
    if any(isinstance(module, Perturbed) for module in model.modules()):
        raise AlreadyPerturbed(
            f"{type(model).__name__} has perturbed layers already, and a strategy adds its own noise. Make them plain "
            "first: flipout.freeze(model)."
        )
    refuse_shards(model, "EvolutionStrategy", _WHOLE)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise InvalidArgument(f"{type(model).__name__} has no Parameter that requires a gradient: nothing to train.")
    return trained


def perturb_trained(
    model: nn.Module,
    noise: Distribution,
    scheme: Scheme,
    batch_dim: int | Mapping[str, int] | None,
    example_inputs: Any = None,
) -> None:
    """Perturb every Parameter that requires a gradient, biases and norms included."""
    named = dict(model.named_parameters())
    is_all = all(parameter.requires_grad for parameter in named.values())
    where = "*" if is_all else [name for name, parameter in named.items() if parameter.requires_grad]
    try:
        perturb(model, noise, scheme=scheme, where=where, batch_dim=batch_dim, example_inputs=example_inputs)
    except UnknownParameter as error:
        raise UnknownParameter(
            f"An evolution strategy perturbs every Parameter that requires a gradient. {error} To leave a Parameter "
            "out of the training: parameter.requires_grad_(False)."
        ) from error


def adam(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Make the default optimiser. Centred ranks give updates of one scale, so one rate serves most models."""
    return torch.optim.Adam(parameters, 1e-2)


def checked_optimizer(optimizer: Any, trained: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Make the optimiser, and check that it has all trained Parameters and descends."""
    built = optimizer(trained) if callable(optimizer) else None
    if not isinstance(built, torch.optim.Optimizer):
        raise InvalidArgument(
            f"optimizer of type {type(optimizer).__name__} given; expected a function from Parameters to a torch "
            "optimiser, such as lambda parameters: torch.optim.Adam(parameters, 1e-2)."
        )
    if any(group.get("maximize") for group in built.param_groups):
        raise InvalidArgument(
            "optimizer: maximize=True would minimise the fitness, which is maximised already. Leave it out."
        )
    ids = {id(parameter) for group in built.param_groups for parameter in group["params"]}
    if ids != {id(parameter) for parameter in trained}:
        raise InvalidArgument(
            f"optimizer: it has {len(ids)} Parameters, but {len(trained)} are perturbed. Pass on every Parameter that "
            "the function is called with. To leave one out of the training: parameter.requires_grad_(False)."
        )
    return built
