"""Perturbed classes that are made on the fly: for any module, and for those that derive from a known layer."""

import re
from functools import cache
from typing import Any

from torch import nn

from .base import Perturbed


class Derived(Perturbed):
    """Mixed into a class that was written elsewhere: its methods read the Parameters, and reads add the noise."""

    reads_itself = False
    plain_type: type[nn.Module]  # what `freeze` makes of it again
    _origin: tuple[Any, ...]  # what the class was made of

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Copies and pickles name what the class was made of, since it was made while the program ran."""
        _, _, *state = super().__reduce_ex__(protocol)  # pyright: ignore[reportAssignmentType]
        return _new, self._origin, *state


class ByReads(Derived):
    """Mixed into a module of a type that nobody knows, before it: every read of its own Parameters is noisy."""

    stacks_weights = True

    def groups_of(self, name: str) -> int | None:
        """1 for a Parameter of two or more dimensions, None for a vector: the module's `groups` may mean anything."""
        return super().groups_of(name) and 1


@cache
def by_reads(plain: type[nn.Module], matrices: tuple[str, ...], others: tuple[str, ...], is_default: bool) -> Any:
    """Return the perturbed class of a module of any type.

    Args:
        plain: The module's own class.
        matrices: Its own Parameters of two or more dimensions.
        others: Its vectors and numbers.
        is_default: The matrices are perturbed unless `where` says otherwise.
    """
    escaped = tuple(map(re.escape, matrices))
    vectors = tuple(map(re.escape, others))
    body = {
        "torch_type": plain,
        "plain_type": plain,
        "default": escaped if is_default else (),
        "optional": vectors if is_default else escaped + vectors,
        "vectors": vectors,
        "_origin": ("by_reads", plain, matrices, others, is_default),
    }
    return _named(plain, (ByReads, plain), body)


@cache
def derived(plain: type[nn.Module], known: type[Perturbed]) -> type[Perturbed]:
    """Return the perturbed class of a module whose class derives from that of a known layer.

    The module's own methods come first: a `forward` that ends in `super().forward(…)` arrives at the perturbed layer,
    and one that reads `self.weight` reads it noisy. Without a forward of its own the perturbed layer's is inherited.
    """
    origin = ("derived", plain, known)
    return _named(plain, (plain, _mixed(known)), {"plain_type": plain, "_origin": origin})


@cache
def _mixed(known: type[Perturbed]) -> type[Perturbed]:
    return type(known.__name__, (Derived, known), {"__module__": known.__module__})


@cache
def mixed_into(plain: type[nn.Module], mixin: type[Derived]) -> type[Perturbed]:
    """Return the perturbed class of a foreign module for which a layer was written here."""
    return _named(plain, (mixin, plain), {"torch_type": plain, "plain_type": plain, "_origin": ("mixed", plain, mixin)})


def _named(plain: type, bases: tuple[type, ...], body: dict[str, Any]) -> type[Perturbed]:
    named = {"__module__": plain.__module__, "__qualname__": plain.__qualname__, "__doc__": plain.__doc__}
    made: Any = type(plain.__name__, bases, {**named, **body})
    return made


def _new(kind: str, *origin: Any) -> nn.Module:
    made = {"by_reads": by_reads, "derived": derived, "mixed": mixed_into}[kind](*origin)
    return made.__new__(made)
