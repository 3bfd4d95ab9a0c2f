"""Detects changes of a converted model: layers added, Parameters replaced, tied or parametrised."""

import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from operator import attrgetter, is_not, methodcaller
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .._torch_internals import traced_values
from .layers import is_perturbed

if TYPE_CHECKING:
    from .base import Perturbed
    from .root import Root

_MOST_SETS = 16  # of Parameters that are known to have the present keys: FSDP2 swaps between two
_children, _parameters = attrgetter("_modules"), attrgetter("_parameters")
_keys, _values, _shape = methodcaller("keys"), methodcaller("values"), attrgetter("shape")
_is_there = partial(is_not, None)


def _nowhere() -> None:
    """Stand in for the weak reference to a module that the root has lost, or that was not copied with it."""


class _Conversions:
    """How many times `perturb` and `freeze` have changed any model."""

    count = 0


conversions = _Conversions()


class Structure:
    """What a root knows of its module: which modules and Parameters it had when it was last checked.

    A check costs no Python call per module. Modules are held weakly, since a strong reference would close a cycle and
    keep the memory of a deleted model until the next garbage collection. Parameters are compared by id: a deleted
    module shows, and of the Parameters it only matters which of them are the same object.
    """

    def __init__(self, module: Callable[[], nn.Module | None] | None = None) -> None:
        self.module = module  # the root's; None if not known yet, after unpickling
        self.is_placed = module is not None and module is not _nowhere
        self.conversions = -1  # their count at the last check
        self.modules: list[weakref.ref[nn.Module]] = []
        self.names: tuple[Any, ...] = ()
        self.parameters: set[tuple[Any, ...]] = set()
        # The perturbed layers by label, and the types that they had before.
        self.perturbed: dict[str, tuple[weakref.ref[nn.Module], type[nn.Module]]] = {}

    @classmethod
    def gone(cls) -> "Structure":
        """Return the structure of a root that no longer belongs to a module."""
        return cls(_nowhere)

    @property
    def is_gone(self) -> bool:
        """Return True if the root's module no longer exists, so that the root can take no draw."""
        return self.module is not None and self.module() is None

    def is_of(self, module: nn.Module) -> bool:
        """Return True if this is the structure of that module."""
        return self.module is not None and self.module() is module

    def copied(self, memo: dict[int, Any]) -> "Structure":
        """Return the structure for a copy of the root. The memo of the copy knows whether its module is copied too."""
        if self.module is None:
            return Structure()
        copy = memo.get(id(self.module()))
        return Structure(_nowhere if copy is None else weakref.ref(copy))

    def remember_layers(self, layers: "Mapping[str, Perturbed]") -> None:
        """Remember which layers are perturbed."""
        self.perturbed = {label: (weakref.ref(layer), layer._plain_type) for label, layer in layers.items()}

    def replaced_layers(self, module: nn.Module) -> list[str]:
        """Return the labels of perturbed layers in whose place there is another layer of their plain type now."""
        present = dict(module.named_modules())
        return [
            label
            for label, (layer, plain_type) in self.perturbed.items()
            if isinstance(present.get(label), plain_type)
            and present[label] is not layer()
            and not is_perturbed(present[label])
        ]

    def is_known(self, module: nn.Module) -> bool:
        """Return True if this is the root's module and nothing that noise depends on has changed in it."""
        if self.conversions != conversions.count:
            return False  # a part of the module may have been frozen, or may have its own root now
        modules = [ref() for ref in self.modules]
        if not modules or modules[0] is not module or None in modules:
            return False
        names, parameters = _fingerprint(modules)
        return names == self.names and parameters in self.parameters

    def record(self, module: nn.Module, *, same_keys: bool) -> None:
        """Remember the present modules and Parameters."""
        modules = list(module.modules())
        names, parameters = _fingerprint(modules)
        if not same_keys or names != self.names or len(self.parameters) >= _MOST_SETS:
            self.parameters.clear()
        self.module, self.modules, self.names = weakref.ref(module), [weakref.ref(m) for m in modules], names
        self.parameters.add(parameters)
        self.is_placed = True
        self.conversions = conversions.count


def _fingerprint(modules: Iterable[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the ids of the modules inside with the names of their Parameters; the Parameters' ids and shapes."""
    owned = list(map(_parameters, modules))
    inside = tuple(map(id, chain.from_iterable(map(_values, map(_children, modules)))))
    names = (inside, tuple(chain.from_iterable(map(_keys, owned))))
    parameters = tuple(chain.from_iterable(map(_values, owned)))
    shapes = tuple(map(_shape, filter(_is_there, parameters)))  # `resize_token_embeddings` changes them in place
    return names, (tuple(map(id, parameters)), shapes)


def follow(root: "Root", module: nn.Module) -> None:
    """Check whether the root's module has changed. If so, follow the change or refuse it.

    A compiled model is checked while it is traced, and guards on what the check found.
    """
    if torch.compiler.is_compiling():
        # Not torch.compiler.assume_constant_result: it guards on the identity of its arguments, so every copy of a
        # model would be compiled separately.
        from torch._dynamo.comptime import comptime

        comptime(_check_while_tracing)
        for layer in module.modules():
            if not is_perturbed(layer):
                continue
            plan = layer.flipout
            if not (plan.is_checked and plan.roots[-1][0].structure.is_placed):
                return  # never after the check, but reading these fields makes guards that a later change fails
    else:
        _check(root, module)


def _check(root: "Root", module: nn.Module) -> None:
    if not root.structure.is_known(module):
        from .followed_changes import follow_change

        follow_change(root, module)


def _check_while_tracing(context: Any) -> None:
    from .followed_changes import follow_change

    follow_change(*traced_values(context, "root", "module"))


def follow_all(modules: Iterable[nn.Module], layers: Iterable["Perturbed"]) -> None:
    """Check every root on, inside or around a model, and the layers that have none.

    Args:
        modules: All modules of the model, itself included.
        layers: The perturbed ones.
    """
    from .rooting import roots_on

    roots = {root: module for module in modules if module._forward_pre_hooks for root in roots_on(module)}
    for layer in layers:
        for root, _ in layer.flipout.roots:
            module = root.structure.module and root.structure.module()
            if module is not None:
                roots.setdefault(root, module)
    for root, module in roots.items():
        if not root.structure.is_gone:  # following the change of another root may have ended it
            follow(root, module)
    for layer in layers:
        if not any(root in roots for root, _ in layer.flipout.roots):
            from .followed_changes import check_layer

            check_layer(layer)


def check_without_root(layer: "Perturbed") -> None:
    """Check a layer that is called outside every root, or has none."""
    if layer.flipout.pending or any(layer._parameters.get(name) is None for name in layer.flipout.distributions):
        from .followed_changes import check_layer

        check_layer(layer)
