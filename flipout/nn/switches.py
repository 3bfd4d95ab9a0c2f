"""Modules that switch perturbed layers inside them on and off, as adapters are."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import nn

from .walk import named_modules

if TYPE_CHECKING:
    from .base import Perturbed


class Switch:
    """Mixed into a module that does not always call its perturbed layers."""

    @abstractmethod
    def idle(self) -> Iterator[tuple["Perturbed", str]]:
        """Yield the perturbed Parameters that calls of this module do not use at present: a layer, and a name there."""


def idle_parameters(model: nn.Module) -> set[tuple["Perturbed", str]]:
    """Return the perturbed Parameters that a module inside the model has switched off."""
    return {idle for module in named_modules(model).values() if isinstance(module, Switch) for idle in module.idle()}
