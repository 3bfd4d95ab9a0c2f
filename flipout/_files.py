"""Files that are written whole or not at all."""

import os
from pathlib import Path


def write_atomically(path: str | os.PathLike[str], text: str) -> None:
    """The file, or what was there before; never a part."""
    target = Path(path)
    fresh = target.with_name(target.name + ".new")
    fresh.write_text(text, encoding="utf-8", newline="\n")
    fresh.replace(target)
