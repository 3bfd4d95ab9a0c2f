"""The files of a run: written whole and with their checksums, and checked when they are read.

`checksums.jsonl` has a line for each file that was written, with its size and hash. The line is added before the file
appears, so that a run that is killed in between has a line too many, and never a file without one. A file may have
several lines, one for each time it was written. Files of early versions have none: they are read unchecked.
"""

import errno
import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from torch import Tensor

from flipout.errors import RunError

from ..door import (
    Mismatch,
    append,
    load_tensors,
    pack_tensors,
    read_plain,
    read_tensor_file,
    remove_unfinished,
    replacing,
)
from .reader import decode, decode_lines

CHECKSUMS = "checksums.jsonl"
_LONGER = 2**20  # bytes that a file may have too many and is still read, to say by its hash that it was changed


class Checksum(Struct, frozen=True, forbid_unknown_fields=True):
    """A line of checksums.jsonl. `file` is a path in the folder, or metrics.jsonl/PIECE for the lines of a piece."""

    file: str
    size: Annotated[int, Meta(ge=0)]
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]

    @classmethod
    def of(cls, file: str, content: bytes) -> "Checksum":
        return cls(file, len(content), hashlib.sha256(content).hexdigest())


class RunFiles:
    """The files in the folder of a run, by their names in it: "pieces/network.safetensors".

    `unchecked` has the names of files that were read and have no checksum.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.unchecked: set[str] = set()
        self._known: dict[str, list[Checksum]] | None = None

    def write(self, name: str, content: str | bytes) -> None:
        """Replace a file, with its checksum."""
        content = content.encode() if isinstance(content, str) else content
        with replacing(self.folder / name) as fresh:
            fresh.write_bytes(content)
            self.note(name, content)

    def write_tensors(self, name: str, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
        """Write a file of tensors, with its checksum."""
        self.write(name, pack_tensors(tensors, metadata))

    def note(self, name: str, content: bytes) -> None:
        """Add the checksum of a content."""
        checksum = Checksum.of(name, content)
        known = self._checksums().setdefault(name, [])
        if checksum not in known:
            append(self.folder / CHECKSUMS, msgspec.json.encode(checksum) + b"\n")
            known.append(checksum)

    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            OSError: It cannot be read, is too large, is a link or in a folder that is one, or is no plain file.
            Mismatch: It has another content than was written.
        """
        path = self.folder / name
        if path.parent != self.folder and path.parent.is_symlink():
            raise OSError(errno.ELOOP, "its folder is a link; expected the folder itself", str(path))
        known = self._checksums().get(name)
        if known is not None:
            content = read_plain(path, largest=max(checksum.size for checksum in known) + _LONGER)
        else:
            content = read_tensor_file(path) if path.suffix == ".safetensors" else read_plain(path)
        self.check(name, content)
        return content

    def check(self, name: str, content: bytes) -> None:
        """Refuse a content that was never written under this name."""
        known = self._checksums().get(name)
        if known is None:
            self.unchecked.add(name)
            return
        found = Checksum.of(name, content)
        if found not in known:
            raise Mismatch(
                f"{found.size:,} bytes with SHA-256 {found.sha256[:16]}… found; expected {known[-1].size:,} with "
                f"{known[-1].sha256[:16]}…, as {CHECKSUMS} has it"
            )

    def noted(self, name: str) -> bool:
        """Return True if there is a checksum of this name."""
        return name in self._checksums()

    def load(self, name: str) -> Any:
        """Return the content of a JSON file."""
        return decode(self.read(name))

    def load_tensors(self, name: str) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Return the tensors of a file, on the CPU, and its metadata."""
        return load_tensors(self.read(name))

    def tidy(self) -> None:
        """Delete what killed processes left: half-written files, and an incomplete last line of checksums."""
        for folder in (self.folder, self.folder / "pieces", self.folder / "figures"):
            if folder.is_dir():
                remove_unfinished(folder)
        with suppress(FileNotFoundError):
            content = read_plain(self.folder / CHECKSUMS)
            complete_lines = content[: content.rfind(b"\n") + 1]
            if complete_lines != content:
                with replacing(self.folder / CHECKSUMS) as fresh:
                    fresh.write_bytes(complete_lines)

    def refuse_links(self) -> None:
        """Refuse a folder with links in it: writing would follow some of them out of the folder."""
        for place, folders, files in os.walk(self.folder):
            for name in (*folders, *files):
                if os.path.islink(os.path.join(place, name)):
                    raise RunError(
                        f"{os.path.join(place, name)} is a link, and a run is written to plain files and folders: put "
                        "what it leads to in its place, or choose another folder with --out."
                    )

    def _checksums(self) -> dict[str, list[Checksum]]:
        if self._known is None:
            known: dict[str, list[Checksum]] = {}
            with suppress(FileNotFoundError):
                try:
                    lines = decode_lines(read_plain(self.folder / CHECKSUMS), Checksum)
                except Mismatch as error:
                    raise Mismatch(f"{CHECKSUMS}: {error}") from error
                for checksum in lines:
                    known.setdefault(checksum.file, []).append(checksum)
            self._known = known
        return self._known
