"""Classes that are created at run time: a mixin of this package before a class of PEFT."""

from functools import cache
from typing import Any

from torch import nn


class Mixin:
    """Mixed into a class of PEFT by `mix_in`. Copies and pickles name what the class was made of."""

    _origin: tuple[type["Mixin"], type[nn.Module]]

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        _, _, *state = super().__reduce_ex__(protocol)  # pyright: ignore[reportAssignmentType]
        return _new, self._origin, *state


def mix_in(mixin: type[Mixin], module: nn.Module) -> None:
    """Change the class of a module, in place, into one that has the mixin before it; once only."""
    if not isinstance(module, mixin):
        module.__class__ = _mixed(mixin, type(module))


@cache
def _mixed(mixin: type[Mixin], plain: type[nn.Module]) -> Any:
    body = {"__module__": plain.__module__, "__qualname__": plain.__qualname__, "__doc__": plain.__doc__}
    return type(plain.__name__, (mixin, plain), {**body, "_origin": (mixin, plain)})


def _new(mixin: type[Mixin], plain: type[nn.Module]) -> nn.Module:
    mixed = _mixed(mixin, plain)
    return mixed.__new__(mixed)
