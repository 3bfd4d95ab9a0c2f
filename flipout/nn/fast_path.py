"""Keeps torch's transformers off their fast path, which reads weights instead of calling the layers.

A `TransformerEncoderLayer` or `TransformerEncoder` checks one of its own attributes before it takes the fast path. In a
converted model this attribute is False while a layer inside is noisy. Nothing else reads the attribute, and no global
switch is changed. A pass with the mean weights still takes the fast path.
"""

from functools import cache
from typing import Any

from torch import nn

from .layers import is_noisy_now, is_perturbed


def _is_noisy_inside(module: nn.Module) -> bool:
    return any(is_perturbed(layer) and is_noisy_now(layer) for layer in module.modules())


def _unless_noisy(name: str) -> property:
    """Return a property: the attribute of the instance, but False while a layer inside is noisy."""

    def read(module: nn.Module) -> Any:
        return False if _is_noisy_inside(module) else module.__dict__[name]

    def write(module: nn.Module, value: Any) -> None:
        module.__dict__[name] = value

    return property(read, write)


class _CallsLayers(nn.Module):
    """Mixed into the type of a transformer module, so that it calls its layers."""

    _plain: type[nn.Module]

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Name the plain class in copies and pickles: this class was created at run time."""
        _, _, *state = super().__reduce_ex__(protocol)  # pyright: ignore[reportAssignmentType]
        return _new, (self._plain,), *state


_ATTRIBUTES = {nn.TransformerEncoderLayer: "activation_relu_or_gelu", nn.TransformerEncoder: "use_nested_tensor"}


@cache
def _calling_type(plain: type[nn.Module], name: str) -> type[nn.Module]:
    attributes = {"_plain": plain, "__module__": plain.__module__, "__qualname__": plain.__qualname__}
    return type(plain.__name__, (_CallsLayers, plain), {**attributes, name: _unless_noisy(name)})


def _new(plain: type[nn.Module]) -> nn.Module:
    name = next(name for kind, name in _ATTRIBUTES.items() if issubclass(plain, kind))
    return _calling_type(plain, name).__new__(_calling_type(plain, name))


def leave_fast_path(module: nn.Module) -> None:
    """Have a transformer module, of torch's type or a subclass, call its layers while one of them is noisy."""
    for kind, name in _ATTRIBUTES.items():
        if isinstance(module, kind) and not isinstance(module, _CallsLayers):
            module.__class__ = _calling_type(type(module), name)


def allow_fast_path(module: nn.Module) -> None:
    """Undo `leave_fast_path`."""
    if isinstance(module, _CallsLayers):
        plain: Any = module
        plain.__class__ = module._plain
