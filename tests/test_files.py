"""A file is written completely or not at all, and never through a link."""

import io
import os
import resource
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from flipout import _files
from flipout._files import (
    LARGEST,
    append,
    is_unfinished,
    new_folder,
    read_plain,
    remove_unfinished,
    replacing,
    write_atomically,
)


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


def test_no_link_is_followed(tmp_path: Path) -> None:
    precious, link = tmp_path / "precious", tmp_path / "link"
    for write in (write_atomically, append):
        precious.write_bytes(b"mine")
        link.unlink(missing_ok=True)
        link.symlink_to(precious)
        with suppress(OSError):
            write(link, b"yours")
        assert precious.read_bytes() == b"mine"


def test_names_of_unfinished_files_cannot_be_guessed(tmp_path: Path) -> None:
    names = set()
    for _ in range(2):
        with replacing(tmp_path / "file") as fresh:
            names.add(fresh.name)
    assert len(names) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in (".file.0123456789abcdef.new", "file.new", ".file.new"):
        (tmp_path / name).touch()
    assert is_unfinished(tmp_path / ".file.0123456789abcdef.new")
    remove_unfinished(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".file.new", "file.new"]


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with suppress(FileNotFoundError), new_folder(tmp_path / "run") as fresh:
        (fresh / "first").touch()
        assert is_unfinished(fresh)
        (fresh / "other" / "second").touch()
    assert not list(tmp_path.iterdir())
    with new_folder(tmp_path / "deep" / "run") as fresh:
        (fresh / "first").touch()
        assert not (tmp_path / "deep" / "run").exists()
    assert [path.name for path in (tmp_path / "deep" / "run").iterdir()] == ["first"]


def test_a_folder_that_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    left, precious = tmp_path / ".run.0123456789abcdef.new", tmp_path / "precious"
    for folder in (left, precious):
        folder.mkdir()
        (folder / "file").touch()
    (tmp_path / ".link.0123456789abcdef.new").symlink_to(precious)
    remove_unfinished(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
    assert (precious / "file").exists()


def test_the_end_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"0123456789")
    assert [read_plain(tmp_path / "lines", last=count) for count in (3, 10, 99)] == [b"789", *[b"0123456789"] * 2]


def test_an_append_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append(path, b"first\n")
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
        with pytest.raises(OSError, match="lines"):
            append(path, b"second\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    append(path, b"third\n")
    assert path.read_bytes() == b"first\nthird\n"


def test_only_plain_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"content")
    (tmp_path / "link").symlink_to("plain")
    os.mkfifo(tmp_path / "pipe")
    assert read_plain(tmp_path / "plain") == b"content"
    assert read_plain(tmp_path / "link", follow=True) == b"content"
    for name, says in (("link", "it is a link"), ("pipe", "no plain file"), (".", "directory|no plain file")):
        with pytest.raises(OSError, match=says):
            read_plain(tmp_path / name)
    with pytest.raises(OSError, match="no plain file"):
        read_plain(Path("/dev/zero"))


def test_a_file_of_no_sane_size_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(LARGEST + 1)
    with pytest.raises(OSError, match="expected at most"):
        read_plain(tmp_path / "sparse")


def test_a_file_that_claims_more_bytes_than_it_may_have_is_not_read(tmp_path: Path) -> None:
    """A file with a hole has any size, and takes no space."""
    path = tmp_path / "hollow"
    path.write_bytes(b"content")
    os.truncate(path, 2**34)
    assert read_plain(path, first=7) == b"content"
    with pytest.raises(OSError, match="it has 17,179,869,184 bytes; expected at most 7"):
        read_plain(path, largest=7)


class Crowded(io.FileIO):
    """A file that memory has no room for."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise MemoryError


def test_a_file_that_memory_has_no_room_for_is_an_error_of_the_file(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "large").write_bytes(b"content")
    monkeypatch.setattr(_files, "open", Crowded, raising=False)
    with pytest.raises(OSError, match="no memory for its 7 bytes"):
        read_plain(tmp_path / "large")


@pytest.mark.parametrize("kind", ["a pipe", "a link to a pipe", "a link to a device"])
def test_a_device_or_a_pipe_is_not_replaced(tmp_path: Path, kind: str) -> None:
    pipe, path = tmp_path / "pipe", tmp_path / "path"
    os.mkfifo(pipe)
    if kind == "a pipe":
        path = pipe
    else:
        path.symlink_to(pipe if kind == "a link to a pipe" else "/dev/null")
    with pytest.raises(OSError, match="no plain file"):
        write_atomically(path, "content")
    assert sorted(found.name for found in tmp_path.iterdir()) == sorted({"pipe", path.name})
    assert path.is_fifo() or path.is_symlink()


def test_a_file_with_another_name_elsewhere_is_not_changed_there(tmp_path: Path) -> None:
    """A hard link is the file itself, so no flag of open refuses it."""
    precious, lines = tmp_path / "precious", tmp_path / "lines"
    precious.write_bytes(b"mine\n")
    os.link(precious, lines)
    append(lines, b"yours\n")
    assert lines.read_bytes() == b"mine\nyours\n"
    assert precious.read_bytes() == b"mine\n"


def test_a_failed_write_names_the_file_and_not_the_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(path, "content")
    assert caught.value.filename == str(path)
