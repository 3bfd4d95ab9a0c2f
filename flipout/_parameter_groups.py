"""Groups of Parameters for an optimiser with weight decay."""

from typing import Any

from torch import nn

from .errors import InvalidArgument
from .nn.base import Perturbed
from .nn.companions import companion_names
from .nn.layers import own_parameter
from .nn.models import perturbed_layers
from .nn.walk import named_modules


def parameter_groups(model: nn.Module, *, weight_decay: float) -> list[dict[str, Any]]:
    """Return the Parameters in two groups, so that weight decay spares learned spreads, priors, scales and noise.

    A spread is softplus(ρ). Decay pulls ρ to 0, and so the standard deviation to 0.69, whatever the data say. It would
    pull the noise that a likelihood learns to 1. The scales of `flipout.bayes.rank_one` belong near 1, not near 0.

    Args:
        model: A model with perturbed layers, or the `flipout.bayes.ELBO` around it, whose likelihood may learn too.
        weight_decay: The decay of all other Parameters.

    Returns:
        Groups for an optimiser: the Parameters with weight decay, and those without, if there are any.

    Raises:
        NotPerturbed: The model has no perturbed layers.
        InvalidArgument: `weight_decay` is not a number ≥ 0.

    Example:
        >>> groups = flipout.parameter_groups(elbo, weight_decay=0.01)
        >>> optimizer = torch.optim.AdamW(groups, lr=1e-3)
    """
    if not isinstance(weight_decay, (int, float)) or isinstance(weight_decay, bool) or not 0 <= weight_decay < 1e308:
        raise InvalidArgument(f"parameter_groups(weight_decay={weight_decay!r}): expected a finite number ≥ 0.")
    perturbed_layers(model)  # refuses a model without any
    spared_ids = undecayed_ids(model)
    decayed = [parameter for parameter in model.parameters() if id(parameter) not in spared_ids]
    spared = [parameter for parameter in model.parameters() if id(parameter) in spared_ids]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": spared, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def undecayed_ids(model: nn.Module) -> set[int]:
    """Return the ids of the Parameters for which 0 is no natural value.

    These are the companions of perturbed Parameters, and the Parameters that a module's class names in `undecayed`.
    """
    modules = named_modules(model).values()
    declared = {
        id(module._parameters.get(name)) for module in modules for name in getattr(type(module), "undecayed", ())
    }
    layers = [module for module in modules if isinstance(module, Perturbed)]
    companions = {
        id(own_parameter(layer, companion))
        for layer in layers
        for name in layer.flipout.learned
        for companion in companion_names(layer, name)
    }
    return (declared | companions) - {id(None)}
