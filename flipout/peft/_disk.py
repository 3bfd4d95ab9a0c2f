"""The files of a posterior, beside those of PEFT in an adapter's folder.

`adapter_config.json` has the hashes of the other two files, and one of itself without that hash. Every file is
read and checked by this library before PEFT sees it. Nothing is unpickled.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._files import read_plain, remove_unfinished, write_atomically
from .._tensor_files import load_tensors, pack_tensors, read_tensor_file
from .._typed import SHORT, Mismatch, in_one_line, parse_json, typed
from ..errors import DataError
from ._config import PosteriorConfig, read_config
from ._refusals import peft_package

CONFIG, WEIGHTS, SPREADS = "adapter_config.json", "adapter_model.safetensors", "flipout_posterior.safetensors"
KEY = "flipout_posterior"  # in adapter_config.json; a plain load by PEFT says that it ignores it
# A plain load by PEFT warns of the keys of the config that it does not know, and shows nothing else of them.
NOTICE = (
    f"{KEY}: the spreads of this Bayesian adapter are dropped here and its means alone are loaded; use "
    "flipout.peft.load(base, folder)"
)
_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_FIX = "Copy the folder again, or save the adapter again: model.save_pretrained(…)."


class SavedPosterior(NamedTuple):
    """What the files of an adapter with a posterior say."""

    config: PosteriorConfig
    spreads: dict[str, Tensor]
    adapter: str  # the name under which it was saved
    settings: dict[str, Any]  # of PEFT


def read_posterior(folder: str | os.PathLike[str]) -> SavedPosterior | None:
    """Return what was saved in a folder; None if its adapter is plain.

    Raises:
        DataError: A file is missing or damaged, or the files are not of one call of `save_pretrained`.
    """
    path = Path(folder)
    content = _read_config(path)
    if content is None or KEY not in content:
        return None
    config, adapter, checksums = read_config(content[KEY], str(path / CONFIG))
    _check(path / CONFIG, _own_checksum(content), checksums)
    contents = {name: _read(path / name) for name in (WEIGHTS, SPREADS)}
    for name, read in contents.items():
        _check(path / name, _checksum(read), checksums)
    try:
        spreads, _ = load_tensors(contents[SPREADS])
    except Mismatch as error:
        raise _refused(path / SPREADS, error) from error
    for name, spread in spreads.items():
        if spread.dtype not in _DTYPES or not bool(torch.isfinite(spread).all()):
            raise _refused(path / SPREADS, f"{SHORT.repr(name)}: expected finite numbers in floating point")
    settings = {name: value for name, value in content.items() if name not in (KEY, NOTICE)}
    return SavedPosterior(config, spreads, adapter, settings)


def write_posterior(folder: Path, adapter: str, config: PosteriorConfig, spreads: dict[str, Tensor]) -> None:
    """Write the spreads, then their settings into PEFT's own config. Each file is replaced whole."""
    remove_unfinished(folder)
    write_tensors(folder / SPREADS, spreads)
    checksums = {name: _checksum(_read(folder / name)) for name in (WEIGHTS, SPREADS)}
    content = {**(_read_config(folder) or {}), NOTICE: True, KEY: config.saved(adapter, checksums)}
    checksums[CONFIG] = _own_checksum(content)
    write_atomically(folder / CONFIG, json.dumps(content, indent=2, sort_keys=True))


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a safetensors file completely or not at all."""
    write_atomically(path, pack_tensors(tensors, {"format": "pt"}))


def plain_config(folder: Path, saved: SavedPosterior) -> Any:
    """Return PEFT's own config of an adapter."""
    try:
        return peft_package().LoraConfig.from_peft_type(**saved.settings)
    except (TypeError, ValueError, LookupError, AttributeError) as error:  # PEFT checks values by using them
        reason = f"PEFT does not take it ({type(error).__name__}: {error})"
        raise _refused(folder / CONFIG, reason) from error


def adapter_folder(save_directory: str, adapter: str) -> Path:
    """Return where PEFT saves an adapter."""
    return Path(save_directory) if adapter == "default" else Path(save_directory) / adapter


def _read_config(folder: Path) -> dict[str, Any] | None:
    """Return what `adapter_config.json` says, None if there is none: the folder may be a name on a hub."""
    path = folder / CONFIG
    try:
        return typed(parse_json(read_plain(path, follow=True)), dict[str, object])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, Mismatch) as error:
        raise _refused(path, error) from error


def _read(path: Path) -> bytes:
    """Return the content of a file of tensors. Links are followed: the cache of a hub consists of them."""
    try:
        return read_tensor_file(path, follow=True)
    except OSError as error:
        raise _refused(path, error) from error


def _check(path: Path, found: str, checksums: dict[str, str]) -> None:
    """Refuse a file that is not the one that was saved."""
    expected = checksums.get(path.name)
    if found != expected:
        reason = f"SHA-256 {found} found; expected {SHORT.repr(expected)}: it is damaged, or saving was interrupted"
        raise _refused(path, reason)


def _own_checksum(content: dict[str, Any]) -> str:
    """Return the hash of a config, in which its own hash is left out. The order of its fields does not count."""
    posterior = content[KEY]
    others = {name: checksum for name, checksum in posterior["sha256"].items() if name != CONFIG}
    hashed = {**content, KEY: {**posterior, "sha256": others}}
    return _checksum(json.dumps(hashed, sort_keys=True).encode())


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _refused(path: Path, reason: object) -> DataError:
    if isinstance(reason, OSError):
        reason = reason.strerror or reason
    return DataError(f"{path}: {in_one_line(str(reason))}. {_FIX}")
