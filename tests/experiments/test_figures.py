"""Committed figures, drawn again: their text can be read, panels are not crowded, and lines have names."""

from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text

from flipout._drawing import DARK, REFERENCE, WIDTH
from flipout.experiments.report.redraw import redraw_figures
from flipout.experiments.running.runs import Run

RESULTS = Path(__file__).parents[2] / "results"
FOLDERS = sorted(path.parent.name for path in RESULTS.glob("*/result.json"))
NEUTRAL = {"#000000", "#ffffff"}


def drawn(name: str, tmp_path: Path) -> dict[str, Any]:
    """Draw the figures of a committed run again, and return them."""
    figures: dict[str, Any] = {}
    folder = copytree(RESULTS / name, tmp_path / name)
    draw = Run.draw
    with pytest.MonkeyPatch.context() as patch:

        def kept(run: Run, figure_name: str, caption: str, figure: Any) -> None:
            figures[figure_name] = figure
            draw(run, figure_name, caption, figure)

        patch.setattr(Run, "draw", kept)
        redraw_figures(folder)
    return figures


@pytest.mark.parametrize("name", FOLDERS)
def test_figures_can_be_read(name: str, tmp_path: Path) -> None:
    for figure in drawn(name, tmp_path).values():
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
