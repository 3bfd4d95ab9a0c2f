"""The README: its code runs and prints what stands below it, its figure shows committed results, and it is short."""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from tests.experiments.test_figures import places
from tests.printed import assert_printed
from tests.test_docs import script

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", TEXT, re.MULTILINE | re.DOTALL)


def test_there_is_a_bayesian_net_in_twelve_lines_with_its_output() -> None:
    code, output = BLOCKS[0]
    network = code.split("\n\n")[-1]
    assert "bayes.ELBO" in network
    assert len(network.splitlines()) <= 12
    assert output


@pytest.mark.parametrize(("code", "output"), BLOCKS, ids=["bayesian", "own", "noise"])
def test_code_prints_what_stands_below_it(code: str, output: str) -> None:
    printed = StringIO()
    with redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    if output:
        assert_printed(printed.getvalue(), output)


def test_the_figure_shows_the_committed_results(tmp_path: Path) -> None:
    with script("headline") as headline:
        headline.draw(tmp_path / "headline.svg")
        committed = headline.FIGURE.read_bytes()
    assert len(places(committed)) > 50
    drawn = places((tmp_path / "headline.svg").read_bytes())
    assert drawn == pytest.approx(places(committed), abs=0.5), "run `python docs/headline.py`"


def test_it_is_short_before_the_details() -> None:
    head = TEXT.partition("<details>")[0]
    assert len(head.split()) <= 400
    for needed in ("arxiv.org/abs/1803.04386", "pip install .\n", "make demo", "make test", "docs/images/headline.svg"):
        assert needed in head
