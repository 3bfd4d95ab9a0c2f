"""Noticing that a model was changed after its conversion: layers put in, Parameters replaced, tied or parametrised."""

import weakref
from collections.abc import Callable, Iterable
from itertools import chain
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .layers import is_perturbed

if TYPE_CHECKING:
    from .base import Perturbed
    from .root import Root

_KEPT = 16  # sets of Parameters that are known to have the present keys: FSDP2 swaps between two
_children, _parameters = attrgetter("_modules"), attrgetter("_parameters")
_keys, _values = methodcaller("keys"), methodcaller("values")


def _nowhere() -> None:
    """Stands for a module that is not there: not copied together with its root, or the root of another one."""


class _Conversions:
    """How many times `perturb` and `freeze` have changed a model, of any kind."""

    count = 0


conversions = _Conversions()


class Structure:
    """What a root knows of its module: which modules and Parameters were inside at the last look.

    A look costs no Python call per module. Modules are held weakly: a strong reference would close a cycle, and keep
    the memory of a deleted model until the next garbage collection. Ids suffice, since a module that is gone shows,
    and what counts of the Parameters is which of them are one.
    """

    def __init__(self, module: Callable[[], nn.Module | None] | None = None) -> None:
        self.module = module  # that of the root; None where it is not known yet, after unpickling
        self.is_placed = module is not None and module is not _nowhere
        self.conversions = -1  # as many as there had been at the last look
        self.modules: list[weakref.ref[nn.Module]] = []
        self.names: tuple[Any, ...] = ()
        self.parameters: set[tuple[int, ...]] = set()

    @classmethod
    def gone(cls) -> "Structure":
        """That of a root which is no module's any longer."""
        return cls(_nowhere)

    @property
    def is_gone(self) -> bool:
        """Return True if the root's module no longer exists, so that the root can take no draw."""
        return self.module is not None and self.module() is None

    def copied(self, memo: dict[int, Any]) -> "Structure":
        """The structure for a copy of the root: whether its module is copied too stands in the memo."""
        if self.module is None:
            return Structure()
        copy = memo.get(id(self.module()))
        return Structure(_nowhere if copy is None else weakref.ref(copy))

    def is_known(self, module: nn.Module) -> bool:
        """Return True if the module is the root's, and nothing in it changed that noise depends on."""
        if self.conversions != conversions.count:
            return False  # a part of the module may have been frozen, or been given a root of its own
        modules = [ref() for ref in self.modules]
        if not modules or modules[0] is not module or None in modules:
            return False
        names, parameters = _looks(modules)
        return names == self.names and parameters in self.parameters

    def record(self, module: nn.Module, *, same_keys: bool) -> None:
        """Remember the module as it is now."""
        modules = list(module.modules())
        names, parameters = _looks(modules)
        if not same_keys or names != self.names or len(self.parameters) >= _KEPT:
            self.parameters.clear()
        self.module, self.modules, self.names = weakref.ref(module), [weakref.ref(m) for m in modules], names
        self.parameters.add(parameters)
        self.is_placed = True
        self.conversions = conversions.count


def _looks(modules: Iterable[Any]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """The modules inside and the names of the Parameters; and the Parameters themselves."""
    held = list(map(_parameters, modules))
    inside = tuple(map(id, chain.from_iterable(map(_values, map(_children, modules)))))
    names = (inside, tuple(chain.from_iterable(map(_keys, held))))
    return names, tuple(map(id, chain.from_iterable(map(_values, held))))


def follow(root: "Root", module: nn.Module) -> None:
    """Look whether the root's module has changed; if so, follow the change or refuse it.

    A compiled model is looked at while it is traced, and guards what the look found.
    """
    if torch.compiler.is_compiling():
        # Not torch.compiler.assume_constant_result: it guards the identity of its arguments, and copies of a model
        # could no longer share their code.
        from torch._dynamo.comptime import comptime

        comptime(_look_while_tracing)
        for layer in module.modules():
            if not is_perturbed(layer):
                continue
            plan = layer.flipout
            if not (plan.seen and plan.roots[-1][0].structure.is_placed):
                return  # never, after the look; but reading makes guards, and a later change fails one of them
    else:
        _look(root, module)


def _look(root: "Root", module: nn.Module) -> None:
    if not root.structure.is_known(module):
        from .adopt import follow_change

        follow_change(root, module)


def _look_while_tracing(context: Any) -> None:
    from .adopt import follow_change

    traced = [context.get_local(name) for name in ("root", "module")]
    root, module = (variable._i_will_not_complain_if_bc_breaks_VariableTracker().value for variable in traced)
    follow_change(root, module)


def follow_all(model: nn.Module, layers: Iterable["Perturbed"]) -> None:
    """Look at every root on, inside or around the model, and at the layers that have none."""
    from .adopt import check_layer, roots_on

    roots = {root: module for module in model.modules() for root in roots_on(module)}
    for layer in layers:
        for root, _ in layer.flipout.roots:
            module = root.structure.module and root.structure.module()
            if module is not None:
                roots.setdefault(root, module)
    for root, module in roots.items():
        if not root.structure.is_gone:  # following another may end it
            follow(root, module)
    for layer in layers:
        if not any(root in roots for root, _ in layer.flipout.roots):
            check_layer(layer)


def look_alone(layer: "Perturbed") -> None:
    """Look at a layer that is called outside of every root, or has none."""
    if layer.flipout.pending or not all(name in layer._parameters for name in layer.flipout.distributions):
        from .adopt import check_layer

        check_layer(layer)
