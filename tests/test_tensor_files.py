"""Tensors survive a file bit for bit. Other contents are refused."""

import json
import os
from pathlib import Path

import pytest
import torch

from flipout import _tensor_files
from flipout._files import LARGEST
from flipout._tensor_files import load_tensors, pack_tensors, read_tensor_file
from flipout._typed import Mismatch


def test_tensors_and_metadata_come_back() -> None:
    tensors = {"a": torch.randn(3, 4).T, "b": torch.arange(3, dtype=torch.bfloat16), "c": torch.tensor(True)}
    found, metadata = load_tensors(pack_tensors(tensors, {"told": "α"}))
    assert metadata == {"told": "α"}
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    assert load_tensors(pack_tensors({})) == ({}, {})


def with_header(header: object, body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        pack_tensors({"a": torch.ones(3)})[:-1],
        with_header([]),
        with_header({"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}, b"1234"),
        with_header({"a": {"dtype": "F32", "shape": [9], "data_offsets": [0, 4]}}, b"1234"),
        with_header({"a": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 4]}}, b"1234"),
        with_header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}, b"1234"),
        with_header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}, b"1234"),
        with_header({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, b"1234"),
        with_header({name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for name in "ab"}, b"1234"),
        with_header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, b"12345678"),
        with_header({"__metadata__": {"told": 1}}),
        with_header({"__metadata__": []}),
    ],
)
def test_other_contents_are_refused(content: bytes) -> None:
    with pytest.raises(Mismatch, match="no safetensors file"):
        load_tensors(content)


def test_a_file_of_tensors_is_as_large_as_its_header_says(tmp_path: Path) -> None:
    """A file with a hole claims more bytes than there is memory, and takes no space."""
    path, content = tmp_path / "file", pack_tensors({"a": torch.ones(3)})
    path.write_bytes(content)
    assert read_tensor_file(path) == content
    for start in (content, b"", b"\xff" * 8, with_header([]), with_header({"a": {"data_offsets": [0, "1"]}})):
        path.write_bytes(start)
        assert read_tensor_file(path) == start  # load_tensors refuses it
        os.truncate(path, 2**34)
        with pytest.raises(OSError, match=f"it has 17,179,869,184 bytes; expected at most {LARGEST:,}"):
            read_tensor_file(path)


def test_a_large_file_of_tensors_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_tensor_files, "LARGEST", 100)
    path, content = tmp_path / "file", pack_tensors({"a": torch.ones(99)})
    path.write_bytes(content)
    assert read_tensor_file(path) == content
