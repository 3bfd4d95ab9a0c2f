"""The JSON files of a run, read as typed records.

A file that is something else is refused with a `Mismatch`, which names the field, what was found and what was expected.
"""

import re
from datetime import datetime
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from ..door import SHORT, Mismatch

T = TypeVar("T")
# The names that msgspec has for the types of JSON.
_JSON = {dict: "object", list: "array", str: "str", bool: "bool", int: "int", float: "float", type(None): "null"}


class SavedSettings(Struct, frozen=True):
    """What every config.json says. The settings of the experiment itself are left to its own config."""

    experiment: str
    preset: str
    seed: int
    shown: tuple[str, ...] | None = None  # layers in the figure of variances


class Session(Struct, frozen=True, forbid_unknown_fields=True):
    """One process that worked on a run."""

    started: datetime
    seconds: Annotated[float, Meta(ge=0, le=1e15)]
    commit: str | None = None
    finished: bool = True  # older files do not say


class Environment(Struct, frozen=True):
    """What environment.json says of the cost of a run. It has more, which is shown as it stands."""

    device: str
    sessions: Annotated[tuple[Session, ...], Meta(min_length=1)]
    commit: str | None = None

    @classmethod
    def of(cls, content: Any) -> "Environment":
        """Convert the content of a file. A session that does not name its commit has the commit of the environment."""
        if isinstance(content, dict) and isinstance(content.get("sessions"), list):
            shared = {"commit": content.get("commit")}
            sessions = [
                {**shared, **session} if isinstance(session, dict) else session for session in content["sessions"]
            ]
            content = {**content, "sessions": sessions}
        return convert(content, cls)


def decode(content: bytes) -> Any:
    """Read strict JSON: no NaN, no infinities, valid Unicode.

    Raises:
        Mismatch: It is not JSON.
    """
    try:
        return msgspec.json.decode(content)
    except RecursionError as error:
        raise Mismatch("it is nested too deeply") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Mismatch(str(error)) from error


def decode_lines(content: bytes, kind: type[T]) -> list[T]:
    """Read one JSON object per line. An incomplete last line is left out: its writer was killed.

    Raises:
        Mismatch: A line is something else. The message has its number.
    """
    found = []
    lines = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            found += [convert(decode(line), kind)] if line else []
        except Mismatch as error:
            if number < len(lines):
                raise Mismatch(f"line {number}: {error}") from error
    return found


def convert(content: Any, kind: type[T]) -> T:
    """Turn the content of a JSON file into a record.

    Raises:
        Mismatch: A field is missing, unknown, or not of its type.
    """
    try:
        return msgspec.convert(content, kind, str_keys=True)  # JSON has no other keys
    except RecursionError as error:
        raise Mismatch("it is nested too deeply") from error
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$")
        raise Mismatch(_explained(what, place.rstrip("`").removeprefix("."), content, kind)) from error


def _explained(what: str, place: str, content: Any, kind: type) -> str:
    """Add to an error of msgspec what was found, and the options that it leaves out."""
    place, value = _found(place, content, what)
    said = what[0].lower() + what[1:]
    if what.startswith("Invalid enum value"):
        said = f"expected {' or '.join(map(repr, _options(place, kind)))}"
    elif "unknown field" in what and not place:
        said += f"; expected {', '.join(get_type_hints(kind))}"
    # Errors about a whole object, such as a missing field, would drown in its content.
    found = f"{SHORT.repr(value)} found; " if what.startswith(("Expected", "Invalid", "Number")) else ""
    return f"{place or 'the file'}: {found}{said}"


def _found(place: str, content: Any, what: str) -> tuple[str, Any]:
    """Follow a path such as checks[0].claim. msgspec writes […] for a key; the value tells which key it was."""
    got = re.search(r"got `(\w+)`", what)
    for part in re.findall(r"[^.\[\]]+|\[\.\.\.\]", place):
        if part == "[...]":
            keys = [key for key, value in content.items() if got is None or _JSON.get(type(value)) == got[1]]
            if not keys:
                break
            place, content = place.replace(part, f"[{SHORT.repr(keys[0])}]", 1), content[keys[0]]
        else:
            content = content[int(part) if isinstance(content, list) else part]
    return place, content


def _options(place: str, kind: Any) -> tuple[str, ...]:
    """Return the values that the Literal at a path allows."""
    for part in re.findall(r"[A-Za-z_]\w*|\[", place):
        kind = get_args(kind)[0] if part == "[" else get_type_hints(kind)[part]
    return get_args(kind)
