"""Perturbed classes that are made on the fly: for any module, and for those that derive from a known layer."""

import re
from dataclasses import fields
from functools import cache
from typing import Any

from torch import nn

from .base import Perturbed
from .declaration import Declaration


class Derived(Perturbed, reads_itself=False):
    """Mixed into a class that was written elsewhere: its methods read the Parameters, and reads add the noise."""

    _origin: tuple[Any, ...]  # what the class was made of

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Copies and pickles name what the class was made of, since it was made while the program ran."""
        _, _, *state = super().__reduce_ex__(protocol)  # pyright: ignore[reportAssignmentType]
        return _new, self._origin, *state


class ByReads(Derived, stacks_weights=True):
    """Mixed in before a module of an unknown type: every read of its own Parameters is noisy."""


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
    return _named(
        plain,
        (ByReads, plain),
        ("by_reads", plain, matrices, others, is_default),
        default=escaped if is_default else (),
        optional=vectors if is_default else escaped + vectors,
        vectors=vectors,
    )


@cache
def derived_layer(plain: type[nn.Module], known: type[Perturbed]) -> type[Perturbed]:
    """Return the perturbed class of a module whose class derives from that of a known layer.

    The module's own methods come first: a `forward` that ends in `super().forward(…)` arrives at the perturbed layer,
    and one that reads `self.weight` reads it noisy. Without a forward of its own the perturbed layer's is inherited.
    """
    return _named(plain, (plain, _mixed(known)), ("derived", plain, known))


@cache
def _mixed(known: type[Perturbed]) -> type[Perturbed]:
    declared = {field.name: getattr(known._declared, field.name) for field in fields(Declaration)}
    body = {"__module__": known.__module__}
    return type(known.__name__, (Derived, known), body, **{**declared, "reads_itself": False})


@cache
def mixed_into(plain: type[nn.Module], mixin: type[Derived]) -> type[Perturbed]:
    """Return the perturbed class of a foreign module for which a layer was written here."""
    return _named(plain, (mixin, plain), ("mixed", plain, mixin))


def _named(plain: type, bases: tuple[type, ...], origin: tuple[Any, ...], **declared: Any) -> type[Perturbed]:
    body = {"__module__": plain.__module__, "__qualname__": plain.__qualname__, "__doc__": plain.__doc__}
    perturbed: Any = type(plain.__name__, bases, {**body, "_origin": origin}, **declared)
    return perturbed


def _new(kind: str, *origin: Any) -> nn.Module:
    derived_type = {"by_reads": by_reads, "derived": derived_layer, "mixed": mixed_into}[kind](*origin)
    return derived_type.__new__(derived_type)
