"""Mutations of a file: of its bytes, of its JSON values, and of what lies at its path."""

import json
import math
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

HOSTILE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    7,
    "7",
    10**400,
    2**63,
    1e308,
    math.nan,
    -math.inf,
    "",
    "\ud800",
    "\x1b[2J",
    "../../outside/precious",
    "/etc/passwd",
    "a\x00b",
    "x" * 300,
    "line\nbreak",
    "<script>alert(1)</script>",
    [],
    {},
    [[]],
    ["a", 1],
    {"a": {"b": None}},
)


@dataclass(frozen=True)
class Mutation:
    """A kind of mutation and the seed of its choices."""

    kind: str
    seed: int

    def apply(self, path: Path, outside: Path) -> None:
        """Change the file. `outside` is a file of somebody else, to which a link may lead."""
        draw = random.Random(self.seed)
        if self.kind == "another name":
            os.link(path, outside.with_name("another name"))
            return
        if self.kind in PLACES:
            path.unlink()
            PLACES[self.kind](path, outside)
            return
        content = path.read_bytes()
        path.write_bytes(VALUES[self.kind](content, draw) if self.kind in VALUES else BYTES[self.kind](content, draw))


def mutations() -> st.SearchStrategy[Mutation]:
    """Return the strategy that draws a mutation. Changes of bytes and of values come more often."""
    kinds = [*BYTES, *VALUES, *VALUES, *VALUES, *PLACES, "another name"]
    return st.builds(Mutation, st.sampled_from(kinds), st.integers(0, 2**32))


def _span(content: bytes, draw: random.Random) -> tuple[int, int]:
    start = draw.randrange(len(content) + 1)
    return start, min(start + draw.choice((1, 2, 8, 64)), len(content))


def _flipped(content: bytes, draw: random.Random) -> bytes:
    if not content:
        return b"\x00"
    place = draw.randrange(len(content))
    return content[:place] + bytes([content[place] ^ (1 << draw.randrange(8))]) + content[place + 1 :]


def _replaced(content: bytes, draw: random.Random, by: Callable[[bytes], bytes]) -> bytes:
    start, end = _span(content, draw)
    return content[:start] + by(content[start:end]) + content[end:]


BYTES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "flip a bit": _flipped,
    "cut": lambda content, draw: content[: draw.randrange(len(content) + 1)],
    "empty": lambda content, draw: b"",
    "remove bytes": lambda content, draw: _replaced(content, draw, lambda part: b""),
    "repeat bytes": lambda content, draw: _replaced(content, draw, lambda part: part * 2),
    "zero bytes": lambda content, draw: _replaced(content, draw, lambda part: bytes(len(part))),
    "random bytes": lambda content, draw: _replaced(content, draw, lambda part: draw.randbytes(len(part) + 1)),
    "a byte order mark": lambda content, draw: b"\xef\xbb\xbf" + content,
    "other line breaks": lambda content, draw: content.replace(b"\n", b"\r\n"),
    "append": lambda content, draw: content + draw.randbytes(3),
    "nest deeply": lambda content, draw: b"[" * 100_000,
    "a huge header": lambda content, draw: b"\xff" * 8 + content[8:],
    "no Unicode": lambda content, draw: _no_unicode(content, draw),
    "another digit": lambda content, draw: _another_digit(content, draw),
}


def _no_unicode(content: bytes, draw: random.Random) -> bytes:
    """Put a byte into a text of JSON, as a key or a value, that no Unicode has there."""
    places = [place + 1 for place, byte in enumerate(content) if byte == ord('"')] or [0]
    place = draw.choice(places)
    return content[:place] + b"\xff" + content[place:]


def _another_digit(content: bytes, draw: random.Random) -> bytes:
    places = [place for place, byte in enumerate(content) if 48 <= byte < 58]
    if not places:
        return content
    place = draw.choice(places)
    return content[:place] + str((content[place] - 48 + draw.randint(1, 9)) % 10).encode() + content[place + 1 :]


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield from _paths(value[key], (*path, key))


def _in_json(content: bytes, draw: random.Random, change: Callable[[Any, Any, random.Random], None]) -> bytes:
    """Change one value of a JSON file, of one of its lines, or of the header of a file of tensors."""
    if content[8:9] == b"{" and content[:1] != b"{":
        size = int.from_bytes(content[:8], "little")
        header = _in_json(content[8 : 8 + size], draw, change)
        return len(header).to_bytes(8, "little") + header + content[8 + size :]
    try:
        parts = [json.loads(content)]
        is_lines = False
    except ValueError:
        try:
            parts, is_lines = [json.loads(line) for line in content.splitlines()], True
        except ValueError:
            return _flipped(content, draw)
    if not parts:
        return b"null"
    box = {"value": parts[place := draw.randrange(len(parts))]}
    path = draw.choice([("value", *path) for path in _paths(box["value"])])
    inner: Any = box
    for key in path[:-1]:
        inner = inner[key]
    change(inner, path[-1], draw)
    parts[place] = box.get("value")
    return b"".join(json.dumps(part).encode() + b"\n" for part in parts) if is_lines else json.dumps(parts[0]).encode()


def _set(inner: Any, key: Any, draw: random.Random) -> None:
    inner[key] = draw.choice(HOSTILE)


def _remove(inner: Any, key: Any, draw: random.Random) -> None:
    del inner[key]


def _rename(inner: Any, key: Any, draw: random.Random) -> None:
    if isinstance(inner, dict):
        inner[str(draw.choice(HOSTILE))] = inner.pop(key)
    else:
        inner.append(inner[key])


VALUES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "set a value": lambda content, draw: _in_json(content, draw, _set),
    "remove a value": lambda content, draw: _in_json(content, draw, _remove),
    "rename a value": lambda content, draw: _in_json(content, draw, _rename),
}
PLACES: dict[str, Callable[[Path, Path], None]] = {
    "delete": lambda path, outside: None,
    "a hole": lambda path, outside: _hollow(path),
    "a folder": lambda path, outside: path.mkdir(),
    "a pipe": lambda path, outside: os.mkfifo(path),
    "a link out": lambda path, outside: path.symlink_to(outside),
    "a link to itself": lambda path, outside: path.symlink_to(path),
}


def _hollow(path: Path) -> None:
    """Write a file that claims 16 GiB and takes no space."""
    path.touch()
    os.truncate(path, 2**34)
