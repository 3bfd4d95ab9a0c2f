"""A file is written completely or not at all."""

from pathlib import Path

import pytest

from flipout._files import write_atomically


def test_a_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    for text in ("first\n", "α, β\n"):
        write_atomically(path, text)
        assert path.read_bytes() == text.encode()
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new \ud800")  # a lone surrogate cannot be encoded
    assert path.read_text() == "old"
