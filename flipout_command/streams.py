"""The streams of the command: a terminal that lacks signs, a closed pipe, a full disk."""

import io
import os
import sys
from contextlib import suppress
from typing import TextIO


def prepare_streams() -> None:
    """Make stdout and stderr fit for a command. Closed ones lead nowhere, and what stderr cannot take is dropped."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # `flipout doctor >&-`: the next file that is opened would become stdout
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = _Lossy.around(sys.stderr) if sys.stderr else open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    forgive_encodings()


def forgive_encodings() -> None:
    """Escape what a terminal cannot show, such as ✓ or α, instead of stopping a run."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def flush() -> OSError | None:
    """Write what is left of the output. If that fails, drop it, so that Python's own attempt does not, and say why."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        with suppress(OSError):
            sys.stdout.flush()
        return error
    return None


class _Lossy(io.TextIOWrapper):
    """A stream whose text is dropped if it cannot be written. Advice on a full disk must not stop a run."""

    @classmethod
    def around(cls, stream: TextIO) -> TextIO:
        if not isinstance(stream, io.TextIOWrapper):
            return stream
        return cls(stream.buffer, stream.encoding, "backslashreplace", line_buffering=True, write_through=True)

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()
