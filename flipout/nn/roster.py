"""Rosters: lists of the Parameters that are drawn together, for all layers under a root or inside a `hold`."""

import math
import weakref
from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..draws.at_once import Item, Roster
from ..draws.signs import matrix_dims
from ..schemes import RankOne
from .declaration import sign_groups
from .layers import is_perturbed, label_of

if TYPE_CHECKING:
    from .root import Root


def layers_under(root: "Root", module: nn.Module) -> list[tuple[Any, dict[str, int]]]:
    """Return the layers of a module that take their draw from this root, with the keys of their Parameters."""
    found = []
    for layer in module.modules():
        for layer_root, keys in layer.flipout.roots if is_perturbed(layer) else ():
            if layer_root is root:
                found.append((layer, keys))
    return found


class LayerRoster(Roster):
    """A roster that knows the device of its model."""

    def __init__(
        self, items: tuple[Item, ...], advice: dict[str, str], plans: list[Any], owner: nn.Module | None, name: str
    ) -> None:
        super().__init__(items, advice=advice)
        # Weak references: the module has its root, and the root has the roster.
        self.owner, self.name = (lambda: None) if owner is None else weakref.ref(owner), name
        self.plans = [weakref.ref(plan) for plan in plans]

    def lists(self, plans: Iterable[Any]) -> bool:
        """Return True if the roster was made from exactly these layers."""
        return [plan() for plan in self.plans] == list(plans)

    @property
    def device(self) -> torch.device:
        """The device of the model's first Parameter, whose generator is read."""
        owner = self.owner()
        parameter = None if owner is None else owner._parameters[self.name]
        return torch.device("cpu") if parameter is None else parameter.device


def roster_of(model: nn.Module, layers: Iterable[tuple[Any, dict[str, int]]]) -> LayerRoster:
    """List what the perturbed layers of a model draw.

    Args:
        model: The module whose first Parameter says on which device its draws are made.
        layers: Perturbed layers with the keys of their Parameters.
    """
    items, plans, advice = [], [], {}
    for layer, keys in layers:
        if layer.__dict__.get("batch_first", True) is False:
            advice[label_of(layer)] = _of_time_first(label_of(layer))
        plans.append(layer.flipout)
        for name, distribution in layer.flipout.distributions.items():
            shape, groups = tuple(attrgetter(name)(layer).shape), sign_groups(layer, name)
            over: tuple[tuple[int, int], ...] = ((0, math.prod(shape)),)
            is_rank_one = isinstance(layer.flipout.converted_scheme, RankOne)
            if groups is not None and is_rank_one:
                over = matrix_dims(shape) if len(shape) > 1 else ()
            elif groups is not None:
                # A sharded Parameter that is gathered only while its layer runs has no shape yet.
                over = ((0, shape[0]), (1, groups * shape[1])) if len(shape) > 1 else ()
            kind = getattr(type(distribution).noise, "kind", lambda _: None)(distribution)
            is_normal = kind == "normal" and layer._declared.reads_all_noise and not is_rank_one
            items.append(Item(keys[name], shape, is_normal, over))
    owners = ((module, name) for module in model.modules() for name, p in module._parameters.items() if p is not None)
    return LayerRoster(tuple(items), advice, plans, *next(owners, (None, "")))


def _of_time_first(label: str) -> str:
    """Return the advice for a layer with batch_first=False, which expects the examples in dimension 1 of its input."""
    return (
        f"{label} has batch_first=False: it takes dimension 1 of its input for the examples. If they are in dimension "
        "0, make it with batch_first=True. If the model's inputs have them in dimension 1 too: perturb(…, batch_dim=1)."
    )
