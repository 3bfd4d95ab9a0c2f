"""Which perturbed class a module becomes."""

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedParameter

from ..errors import Unsupported
from .base import Perturbed
from .derived import by_reads, derived_layer, mixed_into
from .foreign import MIXINS, READ_BY_DEFAULT

Layers = Mapping[type[nn.Module], type[Perturbed]]


def class_path(kind: type) -> str:
    """Return the module and the name of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"


def kind_of(module: nn.Module, layers: Layers) -> type[Perturbed] | None:
    """Return the perturbed class for a module, None for one without Parameters of its own.

    Args:
        module: A module that is not perturbed yet.
        layers: The layer types that are known, each with its perturbed class.
    """
    plain = type(module)
    if plain in layers:
        return layers[plain]
    if class_path(plain).startswith("flipout."):
        return None  # a layer with rules of its own, whose code here reads the means
    mixin: Any = MIXINS.get(class_path(plain))
    if mixin is not None:
        return mixed_into(plain, mixin)
    known = next((layers[base] for base in plain.__mro__ if base in layers), None)
    if known is not None and not issubclass(plain, LazyModuleMixin):
        return derived_layer(plain, known)
    parameters = {name: parameter for name, parameter in module._parameters.items() if parameter is not None}
    if not parameters or any(isinstance(p, UninitializedParameter) for p in parameters.values()):
        return None
    matrices = tuple(name for name, parameter in parameters.items() if parameter.dim() > 1)
    others = tuple(name for name in parameters if name not in matrices)
    return by_reads(plain, matrices, others, class_path(plain) in READ_BY_DEFAULT)


def check_free_names(module: nn.Module, kind: type[Perturbed], label: str) -> None:
    """Refuse a module whose own attribute `flipout` the plan of a perturbed layer would hide."""
    if isinstance(module, Perturbed):
        return
    if hasattr(module, "flipout"):
        raise Unsupported(
            f"{label}: a {class_path(type(module))} has an attribute 'flipout', which a perturbed layer needs for "
            "itself. Leave its Parameters out with `where`, or rename the attribute."
        )
