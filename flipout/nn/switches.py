"""Modules that switch perturbed layers inside them on and off, as adapters are."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from .base import Perturbed


class Switch:
    """Mixed into a module that does not always call its perturbed layers."""

    @abstractmethod
    def idle(self) -> Iterator[tuple["Perturbed", str]]:
        """Yield the perturbed Parameters that calls of this module do not use at present: a layer, and a name there."""


def idle_parameters(modules: Iterable[nn.Module]) -> set[tuple["Perturbed", str]]:
    """Return the perturbed Parameters that one of these modules has switched off."""
    return {idle for module in modules if isinstance(module, Switch) for idle in module.idle()}
