"""Files that are written whole or not at all."""

from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Write a text file. A process that dies meanwhile leaves what was there before, never a part."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text, encoding="utf-8", newline="\n")
    fresh.replace(path)
