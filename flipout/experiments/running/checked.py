"""What a file says, checked against the types of the fields that it fills."""

import json
import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from pathlib import Path
from reprlib import Repr
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_PLAIN = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    NoneType: "null",
    datetime: "a date and time such as 2026-11-15T10:00:00+00:00",
}


class Mismatch(ValueError):
    """A value is not what its field may hold. The message names the field, what was found, and what was expected."""


def load(path: Path) -> Any:
    """Read JSON, and refuse what a file of a run never has: NaN, text that is no Unicode, depth without end.

    Raises:
        OSError: The file cannot be read.
        ValueError: It holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_not_finite)
        json.dumps(content, ensure_ascii=False).encode()  # half of a surrogate pair cannot be written to a page
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return content


def checked(value: Any, kind: Any, field: str = "") -> Any:
    """Turn a value of a JSON file into one of a type.

    Args:
        value: What the file holds.
        kind: A plain type, a union, a Literal, a tuple, a Mapping with string keys, or a dataclass of such.
        field: The name of the value in the file, for the message.

    Raises:
        Mismatch: The value is not of that type.
    """
    origin, options = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, UnionType):
        return _any_of(value, kind, field)
    if origin is Literal:
        return value if isinstance(value, str) and value in options else _refuse(value, kind, field)
    if origin is tuple:
        each = options[:1] * len(value) if options[1:] == (...,) and isinstance(value, (list, tuple)) else options
        if not isinstance(value, (list, tuple)) or len(value) != len(each):
            _refuse(value, kind, field)
        return tuple(checked(part, one, f"{field}[{i}]") for i, (part, one) in enumerate(zip(value, each, strict=True)))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            _refuse(value, kind, field)
        return {key: checked(part, options[1], f"{field}[{_SHORT.repr(key)}]") for key, part in value.items()}
    if is_dataclass(kind):
        return _record(value, kind, field)
    return _plain(value, kind, field)


def _plain(value: Any, kind: Any, field: str) -> Any:
    if kind is datetime and isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            _refuse(value, kind, field)
    wanted = (int, float) if kind is float else kind
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind is not bool):
        _refuse(value, kind, field)
    if isinstance(value, (int, float)) and not abs(value) <= sys.float_info.max:
        _refuse(value, kind, field)
    return value


def _any_of(value: Any, kind: Any, field: str) -> Any:
    inner: Mismatch | None = None
    for one in get_args(kind):
        try:
            return checked(value, one, field)
        except Mismatch as error:
            if isinstance(value, (list, dict)) and get_origin(one) is not None:
                inner = error  # of a part, and so nearer to the fault
    raise inner or Mismatch(_told(value, kind, field))


def _record(value: Any, kind: Any, field: str) -> Any:
    if not isinstance(value, dict):
        _refuse(value, kind, field)
    prefix = f"{field}." if field else ""
    known, types = {one.name: one for one in fields(kind)}, get_type_hints(kind)
    for name in value:
        if name not in known:
            raise Mismatch(f"{prefix}{_SHORT.repr(name)}: no such field; expected {', '.join(known)}")
    for name, one in known.items():
        if name not in value and one.default is MISSING and one.default_factory is MISSING:
            raise Mismatch(f"{prefix}{name}: not there; expected {_expected(types[name])}")
    made = {name: checked(part, types[name], prefix + name) for name, part in value.items()}
    try:
        return kind(**made)
    except ValueError as error:  # what the dataclass itself asks of its values
        raise Mismatch(f"{field}: {error}") from error


def _refuse(value: Any, kind: Any, field: str) -> NoReturn:
    raise Mismatch(_told(value, kind, field))


def _told(value: Any, kind: Any, field: str) -> str:
    return f"{field or 'the file'}: {_SHORT.repr(value)} ({type(value).__name__}) found; expected {_expected(kind)}"


def _expected(kind: Any) -> str:
    origin, options = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(map(_expected, options))
    if origin is Literal:
        return " or ".join(map(repr, options))
    if origin is tuple:
        many = options[1:] == (...,)
        return (
            f"a list, each {_expected(options[0])}"
            if many
            else f"a list of {len(options)}: " + ", ".join(map(_expected, options))
        )
    return _PLAIN.get(kind, "an object")


def _not_finite(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON; a number that is not finite is null")
