"""torch's fast path of transformers, which reads weights instead of calling the layers that perturb them.

Before it takes the fast path, a `TransformerEncoderLayer` or a `TransformerEncoder` asks an attribute of its own
whether that can serve. In a converted model the attribute says no while a layer inside is noisy. Nothing else reads it,
no switch of the whole process is touched, and the mean still takes the fast path.
"""

from functools import cache
from typing import Any

from torch import nn

from .layers import is_noisy_now, is_perturbed


def _is_noisy_inside(module: nn.Module) -> bool:
    return any(is_perturbed(layer) and is_noisy_now(layer) for layer in module.modules())


def _unless_noisy(name: str) -> property:
    """The attribute of the instance, but False while a layer inside is noisy."""

    def read(module: nn.Module) -> Any:
        return False if _is_noisy_inside(module) else module.__dict__[name]

    def write(module: nn.Module, value: Any) -> None:
        module.__dict__[name] = value

    return property(read, write)


class _CallsLayers(nn.Module):
    """Mixed into a transformer module, before it."""

    _plain: type[nn.Module]

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Copies and pickles name the plain class, since this one was made while the program ran."""
        _, _, *state = super().__reduce_ex__(protocol)  # pyright: ignore[reportAssignmentType]
        return _new, (self._plain,), *state


_ATTRIBUTES = {nn.TransformerEncoderLayer: "activation_relu_or_gelu", nn.TransformerEncoder: "use_nested_tensor"}


@cache
def _calling(plain: type[nn.Module], name: str) -> type[nn.Module]:
    body = {"_plain": plain, "__module__": plain.__module__, "__qualname__": plain.__qualname__}
    return type(plain.__name__, (_CallsLayers, plain), {**body, name: _unless_noisy(name)})


def _new(plain: type[nn.Module]) -> nn.Module:
    name = next(name for kind, name in _ATTRIBUTES.items() if issubclass(plain, kind))
    return _calling(plain, name).__new__(_calling(plain, name))


def leave_fast_path(module: nn.Module) -> None:
    """Have a transformer module, of torch's type or derived from it, call the layers inside while one is noisy."""
    for kind, name in _ATTRIBUTES.items():
        if isinstance(module, kind) and not isinstance(module, _CallsLayers):
            module.__class__ = _calling(type(module), name)


def allow_fast_path(module: nn.Module) -> None:
    """Undo `leave_fast_path`."""
    if isinstance(module, _CallsLayers):
        plain: Any = module
        plain.__class__ = module._plain
