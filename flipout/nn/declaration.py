"""What a layer type declares about itself: which Parameters take noise, and where it cannot."""

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import nn

from ..distributions import Distribution
from ..errors import Unsupported
from ..schemes import Scheme

if TYPE_CHECKING:
    from .base import Perturbed


@dataclass(frozen=True)
class Declaration:
    """The class arguments of a perturbed layer: `class Mine(flipout.nn.Perturbed, Plain, default=("weight",))`.

    Names of Parameters are regular expressions, dotted where a submodule owns the Parameter.
    """

    default: tuple[str, ...] = ()  # perturbed unless `where` says otherwise
    optional: tuple[str, ...] = ()  # perturbed only if `where` selects them
    vectors: tuple[str, ...] = ("bias",)  # one sign per element, instead of one per row and column
    refused_options: dict[str, str] = field(default_factory=dict)  # attribute of the plain layer → why it is refused
    refused_schemes: dict[str, str] = field(default_factory=dict)  # scheme → why it is refused, and what to use
    fixed_layout: str = ""  # the layout of the input, if `batch_dim` cannot change it
    reads_all_noise: bool = True  # a call needs the noise of the whole Parameter, not of some rows
    reads_itself: bool = True  # its own methods read the Parameters without noise, and add it themselves
    stacks_weights: bool = False  # a Parameter of three dimensions is several matrices, as experts have it
    remembered_options: tuple[str, ...] = ()  # attributes that a remembered call depends on


def perturbable(layer_type: "type[Perturbed]", layer: nn.Module) -> list[str]:
    """Return the names of the Parameters of a layer that `layer_type` can perturb."""
    declared = layer_type._declared
    names = [name for name, _ in layer.named_parameters(remove_duplicate=False)]
    return [name for pattern in declared.default + declared.optional for name in names if re.fullmatch(pattern, name)]


def is_default(layer_type: "type[Perturbed]", name: str) -> bool:
    """Return True if a Parameter is perturbed when `where` is not given."""
    return any(re.fullmatch(pattern, name) for pattern in layer_type._declared.default)


def sign_groups(layer: "Perturbed", name: str) -> int | None:
    """Return how signs run over a Parameter: groups of a convolution's kernel, 1 for a matrix, None for a vector."""
    is_vector = any(re.fullmatch(pattern, name) for pattern in layer._declared.vectors)
    if is_vector or layer._declared.stacks_weights:  # the `groups` of a foreign module may mean anything
        return None if is_vector else 1
    return getattr(layer, "groups", 1)


def check_options(layer_type: "type[Perturbed]", layer: nn.Module, label: str) -> None:
    """Refuse a layer that has an option under which it cannot be perturbed."""
    for option, reason in layer_type._declared.refused_options.items():
        value = getattr(layer, option)
        if value is not None and value is not False:
            raise Unsupported(f"{label}: {option}={value} given; {reason}")


def check_scheme(
    layer_type: "type[Perturbed]", scheme: Scheme, distributions: dict[str, Distribution], label: str
) -> None:
    """Refuse a scheme that is wrong for this layer type, or for one of the distributions."""
    refused = layer_type._declared.refused_schemes
    if scheme.name in refused:
        raise Unsupported(f"{label}: scheme '{scheme.name}' given; {refused[scheme.name]}")
    for name, distribution in distributions.items():
        scheme.check(distribution, f"{label}.{name}")
