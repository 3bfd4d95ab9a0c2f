"""Checkpoints in a folder: tensors as safetensors, everything else as JSON. Nothing is pickled.

`checkpoint.json` names the tensor file that belongs to it, with the sizes and hashes of both, and is replaced last, in
one step. A process that dies at any moment leaves either the old state or the new one. The typed reader of `_typed` is
used here, not msgspec, so that a checkpoint needs nothing but safetensors.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from .._files import read_plain, remove_unfinished, write_atomically
from .._tensor_files import load_tensors, pack_tensors, read_tensor_file
from .._typed import SHORT, Mismatch, parse_json, typed
from ..errors import RunError

INDEX = "checkpoint.json"
_TENSORS = "generation-{}.safetensors"


@dataclass(frozen=True)
class Index:
    """What checkpoint.json says. Early versions wrote neither size nor hashes: their checkpoints are read unchecked."""

    tensors: str
    state: dict[str, object]
    size: int | None = None  # bytes of the tensor file
    sha256: str | None = None
    state_sha256: str | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"generation-\d{1,19}\.safetensors", self.tensors):
            raise Mismatch(f"tensors: {SHORT.repr(self.tensors)} found; expected generation-N.safetensors")
        checks = (self.size, self.sha256, self.state_sha256)
        if None in checks and checks != (None, None, None):
            raise Mismatch(f"size, sha256, state_sha256: {checks} found; expected all of them or none")
        if self.state_sha256 is not None and self.state_sha256 != _hash(json.dumps(self.state).encode()):
            raise Mismatch("state: other values than were saved; their hash is not state_sha256")

    def read(self, folder: Path) -> bytes:
        """Return the content of the tensor file."""
        path = folder / self.tensors
        return read_tensor_file(path) if self.size is None else read_plain(path, largest=self.size)

    def check(self, content: bytes) -> None:
        """Refuse a tensor file that is not the one that was saved."""
        if self.size is not None and self.size != len(content):
            raise Mismatch(f"{self.tensors}: {len(content):,} bytes found; expected {self.size:,}")
        if self.sha256 is not None and self.sha256 != _hash(content):
            raise Mismatch(f"{self.tensors}: SHA-256 {_hash(content)} found; expected {SHORT.repr(self.sha256)}")


def has_checkpoint(folder: Path) -> bool:
    try:
        return (folder / INDEX).exists()
    except OSError as error:
        raise RunError(f"{folder} cannot be read ({error.strerror}): choose another folder.") from error


def write_checkpoint(folder: Path, generation: int, state: Any) -> None:
    """Write the state, then delete the tensor files of earlier states."""
    tensors: dict[str, Tensor] = {}
    text = json.dumps(_encoded(state, "", tensors))
    name, packed = _TENSORS.format(generation), pack_tensors(tensors)
    index = {"tensors": name, "size": len(packed), "sha256": _hash(packed), "state_sha256": _hash(text.encode())}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_unfinished(folder)
        write_atomically(folder / name, packed)
        write_atomically(folder / INDEX, f'{json.dumps(index)[:-1]}, "state": {text}}}')
        for old in folder.glob(_TENSORS.format("*")):
            if old.name != name:
                old.unlink()
    except OSError as error:
        raise RunError(
            f"A checkpoint cannot be written to {folder} ({error.strerror or error}): free some space there, or choose "
            "another folder. The checkpoint before it is still there."
        ) from error


def read_checkpoint(folder: Path) -> Any:
    """Return the state, even while another process writes a new one.

    If the tensor file vanishes between reading the index and opening the file, the index has a successor. The file is
    opened only once: safetensors.torch.load_file opens it twice, and it may vanish in between.
    """
    text = None
    try:
        while True:
            before, text = text, read_plain(folder / INDEX)
            index = typed(parse_json(text), Index)
            try:
                content = index.read(folder)
            except FileNotFoundError:
                if text == before:
                    raise
            else:
                index.check(content)
                return _decoded(index.state, load_tensors(content)[0], "state")
    except (OSError, ValueError, RecursionError) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else f"{INDEX}: {error}"
        raise RunError(
            f"{folder} holds no complete checkpoint of a strategy ({reason}). Copy it again, choose the folder that "
            "was given to save, or start again in another one."
        ) from error


def _encoded(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Return the value for JSON, and collect its tensors: {"tensor": name}, {"dict": …}, {"list": …}, {"tuple": …}."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, dict) and all(isinstance(key, (int, str)) for key in value):
        return {"dict": [[key, _encoded(part, f"{name}/{key}", tensors)] for key, part in value.items()]}
    if isinstance(value, (list, tuple)):
        parts = [_encoded(part, f"{name}/{i}", tensors) for i, part in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": parts}
    raise RunError(
        f"{name}: a {type(value).__name__} cannot be kept in a checkpoint, which holds tensors, numbers, strings, and "
        "lists and dictionaries of those. Use an optimiser or a schedule with such a state_dict."
    )


def _decoded(value: Any, tensors: dict[str, Tensor], place: str) -> Any:
    """Return what `_encoded` was given, or refuse a value that it never writes."""
    if not isinstance(value, (dict, list)):
        return value
    kind, content = next(iter(value.items())) if isinstance(value, dict) and len(value) == 1 else ("", None)
    if kind == "tensor" and isinstance(content, str) and content in tensors:
        return tensors[content]
    if isinstance(content, list) and kind in ("list", "tuple"):
        parts = [_decoded(part, tensors, f"{place}[{i}]") for i, part in enumerate(content)]
        return tuple(parts) if kind == "tuple" else parts
    if isinstance(content, list) and kind == "dict" and all(_is_entry(entry) for entry in content):
        return {key: _decoded(part, tensors, f"{place}[{SHORT.repr(key)}]") for key, part in content}
    expected = 'a number, a text, or one of {"tensor": …}, {"list": …}, {"tuple": …}, {"dict": …}'
    raise Mismatch(f"{place}: {SHORT.repr(value)} found; expected {expected}")


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], (int, str))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
