"""A state in a folder: tensors as safetensors, the rest as JSON. Nothing is pickled.

`checkpoint.json` names the file of tensors that it belongs to and is replaced as a whole, last: a process that dies at
any moment leaves the state before or the state after.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._extras import import_extra
from .._files import write_atomically
from ..errors import RunError

INDEX = "checkpoint.json"
_TENSORS = "generation-{}.safetensors"


def held(folder: Path) -> bool:
    return (folder / INDEX).exists()


def write(folder: Path, generation: int, state: Any) -> None:
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


def read(folder: Path) -> Any:
    """Also while another process writes: tensors that are gone by the time they are opened have a successor.

    They are opened once: safetensors.torch.load_file opens a path twice, and the file may be gone in between.
    """
    safetensors, index = _safetensors(), None
    try:
        while True:
            before, index = index, json.loads((folder / INDEX).read_text(encoding="utf-8"))
            try:
                held = (folder / index["tensors"]).read_bytes()
            except FileNotFoundError:
                if index == before:
                    raise
            else:
                return _decoded(index["state"], safetensors.torch.load(held))
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
        raise RunError(
            f"{folder} holds no whole checkpoint of a strategy ({type(error).__name__}: {error}). Choose the folder "
            "that was given to save, or start anew in another one."
        ) from error


def _encoded(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Plain values as they are; a tensor by its name among the tensors; containers by their kind."""
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
        f"{name}: a {type(value).__name__} cannot be kept in a checkpoint, which holds tensors, numbers, strings, "
        "lists and dictionaries of such. Use an optimiser or a schedule whose state_dict has no others."
    )


def _decoded(value: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, held),) = value.items()
    if kind == "tensor":
        return tensors[held]
    if kind == "dict":
        return {key: _decoded(part, tensors) for key, part in held}
    parts = [_decoded(part, tensors) for part in held]
    return tuple(parts) if kind == "tuple" else parts


def _safetensors() -> Any:
    import_extra("safetensors.torch", "A checkpoint", "es")
    return import_extra("safetensors", "A checkpoint", "es")
