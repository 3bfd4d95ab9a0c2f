"""The metrics of a run: one JSON object per line, with the piece and the step that it belongs to.

When a piece is finished, the checksum of its lines is written down, as if they were a file metrics.jsonl/PIECE.
"""

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ..door import SHORT, Mismatch, append, read_plain, write_atomically
from .files import RunFiles
from .reader import decode_lines
from .results import finite

METRICS = "metrics.jsonl"


class Metrics:
    """The lines of metrics.jsonl."""

    def __init__(self, files: RunFiles) -> None:
        self.files = files
        self._added: dict[str, list[bytes]] = {}  # lines of pieces that are being made, by piece

    def add(self, piece: str, step: int, values: Mapping[str, float]) -> dict[str, Any]:
        """Append a line, and return it."""
        line = finite({"piece": piece, "step": step, **values})
        text = json.dumps(line).encode() + b"\n"
        append(self.files.folder / METRICS, text)
        self._added.setdefault(piece, []).append(text)
        return line

    def seal(self, piece: str) -> None:
        """Write down the checksum of the lines of a finished piece."""
        added = self._added.pop(piece, [])
        if added:
            self.files.note(_name(piece), b"".join(added))

    def read(self) -> list[dict[str, Any]]:
        """Return all lines but an incomplete last one.

        Raises:
            OSError: The file cannot be read.
            Mismatch: A line is something else, or the lines of a piece are not those that were written.
        """
        return [line for line, _ in self._lines()]

    def keep(self, pieces: Collection[str], is_kept: Callable[[str], bool]) -> list[dict[str, Any]]:
        """Delete the lines of other pieces, and an incomplete last line.

        Args:
            pieces: Pieces whose lines must be there if any were logged.
            is_kept: Tells whether a piece is finished, by its name.

        Returns:
            The lines that stay.

        Raises:
            OSError: The file cannot be read.
            Mismatch: A line is something else, or the lines of a finished piece are not those that were written.
        """
        try:
            kept = [(line, text) for line, text in self._lines(is_kept) if is_kept(line["piece"])]
        except FileNotFoundError:
            kept = []
        there = {line["piece"].replace("/", ".") for line, _ in kept}
        lost = [piece for piece in pieces if piece not in there and self.files.noted(_name(piece))]
        if lost:
            raise Mismatch(f"no lines of {SHORT.repr(lost[0])} found; expected those that were logged")
        write_atomically(self.files.folder / METRICS, b"".join(text for _, text in kept))
        return [line for line, _ in kept]

    def _lines(self, is_checked: Callable[[str], bool] = lambda _: True) -> list[tuple[dict[str, Any], bytes]]:
        """Return the lines as values and as they stand in the file. The lines of checked pieces are verified."""
        content = read_plain(self.files.folder / METRICS)
        lines = decode_lines(content, dict[str, Any])
        texts = [text + b"\n" for text in content.split(b"\n") if text]
        by_piece: dict[str, list[bytes]] = {}
        for number, (line, text) in enumerate(zip(lines, texts, strict=False), 1):  # texts may have an incomplete one
            _check_line(line, number)
            by_piece.setdefault(line["piece"], []).append(text)
        for piece, part in by_piece.items():
            if is_checked(piece):
                try:
                    self.files.check(_name(piece), b"".join(part))
                except Mismatch as error:
                    raise Mismatch(f"the lines of {SHORT.repr(piece)}: {error}") from error
        return list(zip(lines, texts, strict=False))


def _check_line(line: dict[str, Any], number: int) -> None:
    fields: dict[str, tuple[type, ...]] = {"piece": (str,), "step": (int,)}
    for name in (*fields, *line):
        expected = fields.get(name, (int, float, type(None)))
        if name not in line or not isinstance(line[name], expected) or isinstance(line[name], bool):
            found = SHORT.repr(line[name]) if name in line else "nothing"
            nouns = {str: "a text", int: "a whole number", float: "a number", type(None): "null"}
            wanted = " or ".join(nouns[kind] for kind in expected)
            raise Mismatch(f"line {number}: {SHORT.repr(name)}: {found} found; expected {wanted}")


def _name(piece: str) -> str:
    """Return the name of a piece's lines among the checksums. As in the names of files, a dot stands for a slash."""
    return f"{METRICS}/{piece.replace('/', '.')}"
