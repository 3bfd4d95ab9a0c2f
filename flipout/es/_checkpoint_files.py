"""Checkpoints in a folder: tensors as safetensors, everything else as JSON. Nothing is pickled.

`checkpoint.json` names the tensor file that belongs to it, and is replaced last, in one step. A process that dies at
any moment leaves either the old state or the new one.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._extras import import_extra as import_extra
from .._files import write_atomically as write_atomically
from ..errors import RunError

INDEX = "checkpoint.json"
_TENSORS = "generation-{}.safetensors"


def has_checkpoint(folder: Path) -> bool:
    return (folder / INDEX).exists()


def write_checkpoint(folder: Path, generation: int, state: Any) -> None:
    """Write the state, then delete the tensor files of earlier states."""
    safetensors = _safetensors()
    tensors: dict[str, Tensor] = {}
    encoded = _encoded(state, "", tensors)
    name = _TENSORS.format(generation)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fresh = folder / (name + ".new")
        safetensors.torch.save_file(tensors, fresh)
        fresh.replace(folder / name)
        write_atomically(folder / INDEX, json.dumps({"tensors": name, "state": encoded}))
        for old in folder.glob(_TENSORS.format("*")):
            if old.name != name:
                old.unlink()
    except OSError as error:
        raise RunError(f"A checkpoint cannot be written to {folder} ({error}): choose another folder.") from error


def read_checkpoint(folder: Path) -> Any:
    """Return the state, even while another process writes a new one.

    If the tensor file vanishes between reading the index and opening the file, the index has a successor. The file is
    opened only once: safetensors.torch.load_file opens it twice, and it may vanish in between.
    """
    safetensors, index = _safetensors(), None
    try:
        while True:
            before, index = index, json.loads((folder / INDEX).read_text(encoding="utf-8"))
            try:
                content = (folder / index["tensors"]).read_bytes()
            except FileNotFoundError:
                if index == before:
                    raise
            else:
                return _decoded(index["state"], safetensors.torch.load(content))
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
        raise RunError(
            f"{folder} holds no complete checkpoint of a strategy ({type(error).__name__}: {error}). Choose the folder "
            "that was given to save, or start again in another one."
        ) from error


def _encoded(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Return the value for JSON, and collect its tensors: {"tensor": name}, {"dict": …}, {"list": …}, {"tuple": …}."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        tensors[name] = value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
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


def _decoded(value: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: _decoded(part, tensors) for key, part in content}
    parts = [_decoded(part, tensors) for part in content]
    return tuple(parts) if kind == "tuple" else parts


def _safetensors() -> Any:
    import_extra("safetensors.torch", "A checkpoint", "es")
    return import_extra("safetensors", "A checkpoint", "es")
