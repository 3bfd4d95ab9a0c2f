"""Write a file completely or not at all."""

import os
from pathlib import Path


def write_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Replace the file by `text`. If writing fails, the old file stays."""
    target = Path(path)
    fresh = target.with_name(target.name + ".new")
    fresh.write_text(text, encoding="utf-8", newline="\n")
    fresh.replace(target)
