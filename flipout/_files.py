"""Safe access to files: they are written completely or not at all, and read only if they are plain files."""

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LARGEST = 2**30  # bytes of a file; files of tensors may be larger, see _tensor_files
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{16}\.new")


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Replace the file by the content. If writing fails, the old file stays."""
    with replacing(path) as fresh:
        fresh.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give an empty file to write to, which then replaces `path`.

    No link is followed: a link at `path` is replaced itself, and the name of the new file cannot be guessed. An error
    of the disk names `path`.

    Raises:
        OSError: It cannot be written, or there is a device or a pipe, or a link to one: a user who names /dev/null does
            not want it to become a file.
    """
    target = Path(path)
    _refuse_devices(target)
    fresh = _unfinished(target)
    try:
        with fresh.open("xb"):  # fails if anything has this name
            pass
        yield fresh
        fresh.replace(target)
    except BaseException as error:
        with suppress(OSError):
            fresh.unlink()
        if isinstance(error, OSError) and error.filename in (None, str(fresh)):
            error.filename = str(target)  # what a user knows
        raise


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give an empty folder to fill, which then appears as `path`: with all of its files, or not at all."""
    fresh = _unfinished(path)
    fresh.mkdir(parents=True)
    try:
        yield fresh
        fresh.rename(path)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def append(path: Path, content: bytes) -> None:
    """Add to the end of a file, completely or not at all, and never through a link.

    A file that has other names too, which are hard links, becomes a file of its own first.
    """
    if _has_other_names(path):
        write_atomically(path, read_plain(path))
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _flags("O_NOFOLLOW", "O_BINARY", "O_CLOEXEC")
    with open(path, "ab", buffering=0, opener=lambda name, _: os.open(name, flags, 0o666)) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            if file.write(content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        except OSError as error:
            os.ftruncate(file.fileno(), size)
            raise OSError(error.errno, error.strerror, str(path)) from error


def is_unfinished(path: Path) -> bool:
    """Return True for a file or a folder that a killed process was writing."""
    return _UNFINISHED.fullmatch(path.name) is not None


def remove_unfinished(folder: Path) -> None:
    """Delete the files and folders that killed processes were writing."""
    for path in folder.iterdir():
        if is_unfinished(path) and path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif is_unfinished(path):
            path.unlink(missing_ok=True)


def read_plain(
    path: Path, *, follow: bool = False, first: int | None = None, last: int | None = None, largest: int = LARGEST
) -> bytes:
    """Return the content of a plain file.

    Args:
        path: The file.
        follow: Read through a link. Otherwise a link is refused: it may lead out of a folder that somebody sent.
        first: Read at most this many bytes, from the beginning of the file.
        last: Read at most this many bytes, from the end of the file.
        largest: The most bytes that a file which is read whole may have. A file with a hole claims any number of them
            and takes no space.

    Raises:
        OSError: It cannot be read, is a link, is too large, or is no plain file. A pipe would keep the reader waiting
            for ever.
    """
    if not follow and path.is_symlink():
        raise OSError(errno.ELOOP, "it is a link; expected the file itself", str(path))
    flags = os.O_RDONLY | _flags("O_NONBLOCK", "O_BINARY", "O_CLOEXEC", *([] if follow else ["O_NOFOLLOW"]))
    with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no plain file", str(path))
        if first is None and last is None and status.st_size > largest:
            raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes; expected at most {largest:,}", str(path))
        if last is not None:
            file.seek(max(0, status.st_size - last))
        count = first if last is None else last
        try:
            return file.read(-1 if count is None else count)
        except MemoryError as error:
            raise OSError(errno.ENOMEM, f"there is no memory for its {status.st_size:,} bytes", str(path)) from error


def _refuse_devices(path: Path) -> None:
    """Refuse a path where a device, a pipe or a socket is. A link to a plain file or to nothing will be replaced."""
    try:
        mode = os.stat(path).st_mode
        is_special = path.is_symlink() and os.readlink(path).startswith(("/dev/", "/proc/"))  # /dev/stdout
    except OSError:
        return  # there is nothing, or writing will say what is wrong
    if is_special or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "it is no plain file", str(path))


def _has_other_names(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_nlink > 1


def _unfinished(target: Path) -> Path:
    """Return a name that cannot be guessed, for what will be renamed to the target."""
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}.new")


def _flags(*names: str) -> int:
    """Return the flags of this system; Windows lacks some."""
    return sum(getattr(os, name, 0) for name in names)
