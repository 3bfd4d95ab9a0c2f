"""Tensors in the safetensors format, which holds numbers and text alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ._extras import import_extra as import_extra
from ._files import LARGEST, read_plain
from ._typed import Mismatch, parse_json

LARGEST_HEADER = 100_000_000  # bytes; the format allows no more


def pack_tensors(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """Return the content of a file of tensors.

    It is made in memory: safetensors.torch.save_file writes by a temporary file of its own, which a killed process
    would leave behind.
    """
    plain = {
        key: value.detach().to("cpu", memory_format=torch.contiguous_format).contiguous()
        for key, value in tensors.items()
    }
    return _safetensors().torch.save(plain, metadata)


def read_tensor_file(path: Path, *, follow: bool = False) -> bytes:
    """Return the content of a file of tensors, which may be as large as its header says.

    Args:
        path: The file.
        follow: Read through a link.

    Raises:
        OSError: It cannot be read, is larger than its header says, is a link, or is no plain file.
    """
    size = int.from_bytes(read_plain(path, follow=follow, first=8), "little")
    head = read_plain(path, follow=follow, first=8 + min(size, LARGEST_HEADER))
    return read_plain(path, follow=follow, largest=max(LARGEST, _size_by_header(head)))


def _size_by_header(head: bytes) -> int:
    """Return the bytes of a whole file by its first ones, or 0 if they are of no file of tensors."""
    try:
        header = parse_json(head[8:])
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        return len(head) + max(ends, default=0)
    except (Mismatch, AttributeError, LookupError, TypeError):
        return 0


def load_tensors(content: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors, on the CPU, and the metadata of a file's content.

    Raises:
        Mismatch: The content is something else.
    """
    safetensors = _safetensors()
    try:
        tensors = safetensors.torch.load(content)
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise Mismatch(f"no safetensors file of {len(content):,} bytes ({type(error).__name__}: {error})") from error
    header = parse_json(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return tensors, header.get("__metadata__", {})


def _safetensors() -> Any:
    import_extra("safetensors.torch", "A file of tensors", "es")
    return import_extra("safetensors", "A file of tensors", "es")
