"""Short reprs: every number is shown, with few digits, and a large tensor is shown as its shape."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor


def short_repr(value: Any) -> str:
    """Return the repr of a value, shortened where it would have many digits or elements."""
    if isinstance(value, Tensor):
        if value.dim() or value.is_meta:
            return f"<{'×'.join(map(str, value.shape))} tensor>" if value.dim() else "<tensor>"
        value = value.item()
    if isinstance(value, float):
        return repr(float(f"{value:.4g}"))
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {short_repr(item)}' for key, item in value.items())}}}"
    parameters = getattr(type(value), "__dataclass_params__", None)
    return fields_repr(value) if parameters is not None and parameters.repr else repr(value)


def fields_repr(value: Any) -> str:
    """Return the repr of a dataclass, without fields that are None or False."""
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return call_repr(value, {name: item for name, item in fields.items() if item is not None and item is not False})


def call_repr(value: Any, arguments: Mapping[str, Any]) -> str:
    """Return the call of the value's class with these arguments."""
    return f"{type(value).__name__}({', '.join(f'{name}={short_repr(item)}' for name, item in arguments.items())})"


def first_few(names: Iterable[str], most: int = 8) -> str:
    """Return the first few names, and how many there are."""
    listed = list(names)
    return ", ".join(listed[:most]) + (f", … ({len(listed)} in all)" if len(listed) > most else "")
