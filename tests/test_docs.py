"""Every Python block of the README and the docs runs; one whose optional package is not here is skipped."""

import ast
import re
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest

from flipout.errors import MissingExtra
from flipout.experiments.registry import EXPERIMENTS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.name}:{page.read_text()[: match.start()].count(chr(10)) + 2}")
    for page in PAGES
    for match in re.finditer(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    for block in [match.group(1)]
]

OPTIONAL = {
    "bayesian_torch": "pip install --no-deps bayesian-torch",
    "evotorch": "pip install --no-deps evotorch, and pandas",
    "gymnasium": "pip install 'flipout[rl]'",
    "lightning": "pip install lightning",
}


@pytest.mark.parametrize("block", BLOCKS)
def test_block_runs(block: str) -> None:
    imported = {
        alias.name.partition(".")[0]
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in (node.names if isinstance(node, ast.Import) else [ast.alias(node.module or "")])
    }
    for name in imported & OPTIONAL.keys():
        if find_spec(name) is None:
            pytest.skip(f"needs {name}: {OPTIONAL[name]}")
    with warnings.catch_warnings():
        if imported & {"evotorch", "lightning"}:
            warnings.simplefilter("ignore")  # they warn of themselves: names of torch they still use, workers, tips
        try:
            exec(compile(block, "<docs>", "exec"), {"__name__": "docs"})
        except MissingExtra as error:
            pytest.skip(str(error))


def test_pages_that_teach_have_blocks() -> None:
    without = {"paper.md", "speed.md"}
    taught = [page for page in PAGES if page.name not in without and page.parent.name != "api"]
    assert not [page.name for page in taught if "```python\n" not in page.read_text()]


@pytest.mark.parametrize("recorded", sorted((ROOT / "docs/migration/peers").glob("*.txt")), ids=lambda path: path.stem)
def test_what_a_peer_printed_is_quoted_as_recorded(recorded: Path) -> None:
    page = recorded.parents[1] / f"{recorded.stem.removeprefix('with_').replace('_', '-')}.md"
    assert f"```\n{recorded.read_text()}```\n" in page.read_text()


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="needs pip install 'flipout[docs]'")
def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """Strictly: no broken link, no page outside of the navigation, no name without an entry."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    loaded = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*(?:src|href)=["']?(?:https?:)?//""")
    assert not [page for page in tmp_path.rglob("*.html") if loaded.search(page.read_text(encoding="utf-8"))]


PROSE = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text())
    assert not [target for target in targets if not (page.parent / target).exists()]


def test_the_page_of_the_paper_knows_every_experiment_and_what_was_run() -> None:
    text = (ROOT / "docs" / "paper.md").read_text()
    for name in EXPERIMENTS:
        assert f"`{name}`" in text, name
        assert ((ROOT / "results" / name).exists()) == (f"](../results/{name})" in text), name
