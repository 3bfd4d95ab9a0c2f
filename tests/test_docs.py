"""Every Python block of the README and the docs runs."""

import re
from pathlib import Path

import pytest

from flipout.errors import MissingExtra

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.name}:{page.read_text()[: match.start()].count(chr(10)) + 2}")
    for page in PAGES
    for match in re.finditer(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    for block in [match.group(1)]
]


@pytest.mark.parametrize("block", BLOCKS)
def test_block_runs(block: str) -> None:
    try:
        exec(compile(block, "<docs>", "exec"), {"__name__": "docs"})
    except MissingExtra as error:
        pytest.skip(str(error))


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 3
