"""Read JSON as typed values, with the standard library alone: the core and `flipout.es` need no reader of schemas."""

import json
import math
from dataclasses import MISSING, fields, is_dataclass
from reprlib import Repr
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

SHORT = Repr()
SHORT.maxstring = SHORT.maxother = SHORT.maxlong = 60


class Mismatch(ValueError):
    """The content of a file is not as expected. The message names the field, what was found and what was expected."""

    def __init__(self, message: str) -> None:
        super().__init__(in_one_line(message))


def in_one_line(text: str) -> str:
    """Return a text with line breaks and other control characters escaped."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def parse_json(content: bytes) -> Any:
    """Parse JSON. NaN and infinities are numbers here, as they are for json.dumps.

    Raises:
        Mismatch: It is not JSON.
    """
    try:
        return json.loads(content.decode())
    except RecursionError as error:
        raise Mismatch("it is nested too deeply") from error
    except ValueError as error:
        raise Mismatch(f"it is not JSON: {error}") from error


def typed(content: Any, kind: Any, place: str = "the file") -> Any:
    """Return parsed JSON as a value of a type: a dataclass, list[…], dict[str, …], a union, or a plain type.

    Args:
        content: What `parse_json` returned.
        kind: The type.
        place: The field, for the message.

    Raises:
        Mismatch: It is of another type.
    """
    if is_dataclass(kind):
        return _record(content, kind, place)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        if content is None and type(None) in arguments:
            return None
        (kind,) = (part for part in arguments if part is not type(None))
        return typed(content, kind, place)
    if origin in (list, tuple) and isinstance(content, list):
        return origin(typed(part, arguments[0], f"{place}[{i}]") for i, part in enumerate(content))
    if origin is dict and isinstance(content, dict):
        return {key: typed(part, arguments[1], f"{place}[{SHORT.repr(key)}]") for key, part in content.items()}
    if origin is None and _is(content, kind):
        return float(content) if kind is float else content
    noun = {list: "a list", tuple: "a list", dict: "an object"}.get(origin or kind, f"a value of type {kind}")
    noun = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}.get(kind, noun)
    raise Mismatch(f"{place}: {SHORT.repr(content)} found; expected {noun}")


def _record(content: Any, kind: Any, place: str) -> Any:
    if not isinstance(content, dict):
        raise Mismatch(f"{place}: {SHORT.repr(content)} found; expected an object")
    known = {field.name: field for field in fields(kind)}
    required = {name for name, field in known.items() if field.default is field.default_factory is MISSING}
    wrong = [f"no field {name!r}" for name in known if name in required - content.keys()]
    wrong += [f"an unknown field {SHORT.repr(name)}" for name in content if name not in known]
    if wrong:
        raise Mismatch(f"{place}: {wrong[0]}; expected {', '.join(known)}")
    hints = get_type_hints(kind)
    return kind(**{name: typed(part, hints[name], f"{place}.{name}") for name, part in content.items()})


def _is(content: Any, kind: type) -> bool:
    """Return True for a value of a plain type. True is no number, and a number must fit in 64 bits."""
    if kind is object:
        return True
    if kind is bool or isinstance(content, bool):
        return kind is type(content)
    if kind is int:
        return isinstance(content, int) and -(2**63) <= content < 2**63
    if kind is float:
        return isinstance(content, float) or (isinstance(content, int) and math.log2(abs(content) + 1) < 64)
    return isinstance(content, kind)
