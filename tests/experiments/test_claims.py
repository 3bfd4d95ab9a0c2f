"""Sentences are for readers: no program looks into them."""

import ast
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from flipout import experiments
from flipout.experiments.report.page import write_page
from tests.experiments.report.pages import CHECKS, LAYERS, Parsed, finished

ROOT = Path(experiments.__file__).parent
# Those who may have a sentence in hand: the class that holds it, and what shows it to a reader.
READERS = {
    "cli.py",
    "terminal.py",
    "report/article.py",
    "report/comparison.py",
    "report/index.py",
    "running/experiment.py",
    "running/results.py",
    "language/claims.py",  # adds a remark to a check
}


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_only_readers_look_at_a_claim(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not used & {"claim", "statement", "remark"} or str(path.relative_to(ROOT)) in READERS


def links(page: Path) -> list[tuple[str, list[str]]]:
    """Return where each row of checks leads, and which rows each figure lists."""
    parsed = Parsed(page)
    rows = [row for row in parsed.all("tr") if "data-kind" in row]
    places = [*rows, *parsed.all("figure")]
    return [(place["id"], [link["href"] for link in parsed.all("a", inside=place)]) for place in places]


def test_a_changed_sentence_changes_no_link_and_no_comparison(tmp_path):
    """The new sentence has everything in it that a pattern might look for."""
    checks = (*(replace(check, figure="variance") for check in CHECKS), *LAYERS)
    said = "fc: conv9: the slope of α ≫ β, at the end the test error; never reached"
    reworded = tuple(replace(check, claim=said, remark="") for check in checks)
    pages = []
    for name, run_checks in (("first", checks), ("second", reworded)):
        folders = [finished(tmp_path / name / "a", checks=run_checks), finished(tmp_path / name / "b", checks=checks)]
        write_page(folders, tmp_path / f"{name}.html")
        pages.append(tmp_path / f"{name}.html")
    assert links(pages[0]) == links(pages[1])
    folds = [len(Parsed(page).all("details")) for page in pages]
    assert folds[0] == folds[1] > 0
    rows = [len(Parsed(page).all("tr")) for page in pages]
    assert rows[0] == rows[1]


def test_a_changed_id_is_another_check(tmp_path):
    folders = [finished(tmp_path / "a", checks=CHECKS), finished(tmp_path / "b", checks=CHECKS)]
    write_page(folders, tmp_path / "same.html")
    path = folders[1] / "result.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["checks"][0]["id"] = "another"
    path.write_text(json.dumps(content), encoding="utf-8")
    write_page(folders, tmp_path / "other.html")
    rows = [len(Parsed(tmp_path / name).all("tr")) for name in ("same.html", "other.html")]
    assert rows[1] == rows[0] + 1
