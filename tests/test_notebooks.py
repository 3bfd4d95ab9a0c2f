"""The notebooks run, and give what is committed in them."""

import json
import re
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.printed import assert_printed
from tests.test_docs import script

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
DRAWN = re.compile(r"<(?:path|use)\b[^>]*clip-path")


def cells_of(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def test_there_are_four() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["evolution", "lstm", "regression", "variance"]


# What these two use, an LSTM and an evolution strategy, has many tests of its own; both train for long.
SLOW = ("evolution", "lstm")
EACH = [pytest.param(p, id=p.stem, marks=[pytest.mark.slow] if p.stem in SLOW else []) for p in NOTEBOOKS]


@pytest.fixture(scope="module")
def executed(request: pytest.FixtureRequest) -> dict[str, list[dict[str, Any]]]:
    """The cells of each notebook that is asked for. One kernel runs them all: to start it takes seconds."""
    if find_spec("nbclient") is None or find_spec("ipykernel") is None:
        pytest.skip("needs pip install nbclient ipykernel")
    items = [item for item in request.session.items if "executed" in getattr(item, "fixturenames", ())]
    asked = [item.callspec.params["path"] for item in items]  # pyright: ignore[reportAttributeAccessIssue]
    with script("notebooks") as notebooks, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the client of a kernel warns of: event loops and folders
        ran = notebooks.run(*asked)
    return {path.stem: notebook["cells"] for path, notebook in zip(asked, ran, strict=True)}


@pytest.mark.parametrize("path", EACH)
def test_a_notebook_gives_what_is_committed_in_it(executed: dict[str, list[dict[str, Any]]], path: Path) -> None:
    hint = f"run `python docs/notebooks.py {path.stem}`"
    for cell, committed in zip(executed[path.stem], cells_of(path), strict=True):
        outputs, kept = cell.get("outputs", []), committed.get("outputs", [])
        assert [kind(output) for output in outputs] == [kind(output) for output in kept], hint
        for output, shown in zip(outputs, kept, strict=True):
            assert_printed(text_of(output), text_of(shown))
            svg, kept_svg = (part.get("data", {}).get("image/svg+xml", "") for part in (output, shown))
            assert len(DRAWN.findall("".join(svg))) == len(DRAWN.findall("".join(kept_svg))), hint


def kind(output: dict[str, Any]) -> tuple[str, ...]:
    return output["output_type"], output.get("name", ""), *sorted(output.get("data", ()))


def text_of(output: dict[str, Any]) -> str:
    """Return the words of an output: printed, as plain text, and in a table."""
    data = output.get("data", {})
    parts = (
        output.get("text", ""),
        data.get("text/plain", ""),
        re.sub("<[^>]*>", " ", "".join(data.get("text/html", ""))),
    )
    return "\n".join("".join(part) for part in parts)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_was_run_from_top_to_bottom_and_fits_its_column(path: Path) -> None:
    code = [cell for cell in cells_of(path) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert not [output for cell in code for output in cell["outputs"] if output["output_type"] == "error"]
    assert not [line for cell in code for line in "".join(cell["source"]).splitlines() if len(line) > 78]


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="needs pip install 'flipout[docs]'")
def test_a_page_has_the_cells_and_their_outputs(tmp_path: Path) -> None:
    def cell(source: str, *outputs: dict[str, Any], **metadata: str) -> dict[str, Any]:
        return {"cell_type": "code", "source": [source], "outputs": [*outputs], "metadata": metadata}

    figure = {"output_type": "display_data", "data": {"image/svg+xml": ["<svg/>"], "text/plain": ["<Figure>"]}}
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "words"], "metadata": {}},
        cell("1 + 1", {"output_type": "execute_result", "data": {"text/plain": ["2"]}}),
        cell("t", {"output_type": "execute_result", "data": {"text/plain": ["T"], "text/html": ["<table></table>"]}}),
        cell("draw()", {"output_type": "stream", "name": "stdout", "text": ["done\n"]}, figure, alt="a line"),
    ]
    path = tmp_path / "some.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    with script("notebook_pages") as pages:
        figures: dict[str, str] = {}
        text = pages.page(path, figures)
        assert figures == {"some-1.svg": "<svg/>"}
        assert text == (
            "# Title\nwords\n\n```python\n1 + 1\n```\n\n```text\n2\n```\n\n```python\nt\n```\n\n<table></table>\n\n"
            "```python\ndraw()\n```\n\n```text\ndone\n```\n\n![a line](some-1.svg)\n\n"
            "*This page is a notebook: [some.ipynb](some.ipynb), run as it stands here.*\n"
        )
        linked = pages.on_page_markdown("[a](../notebooks/lstm.ipynb), [b](lstm.ipynb)", None, None, None)
        assert linked == "[a](../notebooks/lstm.md), [b](lstm.ipynb)"
        path.write_text(json.dumps({"cells": [cell("draw()", figure)]}))
        with pytest.raises(ValueError, match="needs `alt`"):
            pages.page(path, {})
