"""SECURITY.md and docs/reliability.md name tests that are there, and one for each thing that is not trusted."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECURITY = (ROOT / "SECURITY.md").read_text()


def named(page: str) -> set[str]:
    """Return the files of tests that a page names."""
    return set(re.findall(r"`(tests/[\w/]+\.py)`", page))


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/reliability.md"])
def test_every_named_test_is_there(page: str) -> None:
    for name in named((ROOT / page).read_text()):
        content = ast.parse((ROOT / name).read_text())
        assert any(isinstance(part, ast.FunctionDef) and part.name.startswith("test_") for part in content.body), name


def test_all_that_is_not_trusted_has_a_test() -> None:
    table = SECURITY.partition("## What is not trusted")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 9
    for row in rows:
        assert len(row) == 3, row
        assert named(row[2]), row[0]
