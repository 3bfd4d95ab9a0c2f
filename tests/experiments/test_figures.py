"""Committed figures, drawn again, are the same. Their text can be read, panels are not crowded, lines have names.

A figure takes long to draw, so both tests look at the same one.
"""

import re
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any, NamedTuple

import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text

from flipout._drawing import DARK, REFERENCE, WIDTH
from flipout.experiments.cli import main
from flipout.experiments.running.runs import Run
from tests.experiments.toy_experiment import content

RESULTS = Path(__file__).parents[2] / "results"
FOLDERS = sorted(path.parent.name for path in RESULTS.glob("*/result.json"))
NEUTRAL = {"#000000", "#ffffff"}


class Redrawn(NamedTuple):
    folder: Path  # a copy of the committed run, with figures of today
    figures: dict[str, Any]  # as matplotlib has them


@pytest.fixture(scope="module", params=FOLDERS)
def redrawn(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Redrawn:
    """Draw the figures of a committed run again, from its other files."""
    figures: dict[str, Any] = {}
    place = tmp_path_factory.mktemp("redrawn")
    folder = copytree(RESULTS / request.param, place / request.param)
    rmtree(folder / "figures")
    draw = Run.draw
    with pytest.MonkeyPatch.context() as patch:

        def kept(run: Run, name: str, caption: str, figure: Any) -> None:
            figures[name] = figure
            draw(run, name, caption, figure)

        patch.setattr(Run, "draw", kept)
        assert main(["report", str(folder), "--out", str(place / "report.html"), "--redraw"]) == 0
    return Redrawn(folder, figures)


def places(svg: bytes) -> list[float]:
    """Return the coordinates of what is drawn inside axes, without text, whose outlines depend on the font."""
    found = re.findall(rb'<path d="([^"]*)" clip-path', svg)
    for markers in re.findall(rb"(?s)<g clip-path[^>]*>(.*?)</g>", svg):
        found += re.findall(rb' [xy]="([^"]*)"', markers)
    return [float(number) for match in found for number in re.findall(rb"-?\d+\.?\d*", match)]


def test_figures_are_drawn_again_from_committed_data(redrawn: Redrawn) -> None:
    before, after = content(RESULTS / redrawn.folder.name), content(redrawn.folder)
    assert before.keys() == after.keys()
    for file, held in before.items():
        if file.endswith(".svg"):
            assert places(held)
            assert places(after[file]) == pytest.approx(places(held), abs=0.5)  # points, of 1/72 inch
        elif not file.endswith(".png"):
            assert after[file] == held


def test_figures_can_be_read(redrawn: Redrawn) -> None:
    assert redrawn.figures
    name = redrawn.folder.name
    for figure in redrawn.figures.values():
        assert figure.get_figwidth() <= WIDTH  # so the docs show it at its own size
        texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
        assert texts
        assert min(text.get_fontsize() for text in texts) >= 8
        for axes in figure.axes:
            lines = [line for line in axes.get_lines() if len(line.get_xdata()) > 1 and line.get_linestyle() != "None"]
            data = [line for line in lines if to_hex(line.get_color()) != REFERENCE]
            curves = [line for line in data if len(line.get_xdata()) > 2]
            assert len(curves) <= 6, (name, axes.get_title())
            named = figure.legends or any(other.get_legend() for other in figure.axes)
            styles = {(to_hex(line.get_color()), line.get_linestyle()) for line in curves}
            assert named or len(styles) < 2, (name, axes.get_title())
            for line in curves:
                assert to_hex(line.get_color()) in DARK.keys() | NEUTRAL
