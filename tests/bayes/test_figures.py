"""What the figures of an evaluation show; test_reliability.py reads the reliability diagram."""

from pathlib import Path

import numpy as np
import pytest

from flipout._student import share_interval
from flipout.bayes import _figures

pytest.importorskip("matplotlib", reason="matplotlib is not installed")
X = np.linspace(0, 1, 5)


def test_coverage_has_wilsons_intervals() -> None:
    levels, coverage = np.array([0.5, 0.9]), np.array([0.4, 0.95])
    (axes,) = _figures.draw_calibration(levels, coverage, 40, None).axes
    (bars,) = axes.containers
    ends = np.array(bars.lines[2][0].get_segments())[:, :, 1]
    assert ends == pytest.approx(np.array([share_interval(share, 40) for share in coverage]))
    assert "40 targets" in bars.get_label()
    assert list(axes.lines[0].get_ydata()) == [0, 1]  # what is calibrated


def test_bands_lie_from_wide_to_narrow_around_the_mean() -> None:
    bands = {"target": (X - 2, X + 2), "function": (X - 1, X + 1)}
    figure = _figures.draw_band(X, X, bands, X + 0.5, ("x", "y"), None)
    (axes,) = figure.axes
    wide, narrow = (collection.get_paths()[0].vertices[:, 1] for collection in axes.collections)
    assert (wide.min(), wide.max()) == (-2, 3)
    assert (narrow.min(), narrow.max()) == (-1, 2)
    mean, target = (line.get_ydata() for line in axes.lines)
    assert list(mean) == list(X)
    assert list(target) == list(X + 0.5)
    (legend,) = figure.legends
    assert {text.get_text() for text in legend.get_texts()} == {"target", "function", "mean"}
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x", "y")


def test_probabilities_are_shown_by_share() -> None:
    (axes,) = _figures.draw_probabilities(np.array([0.9, 0.8, 0.6, 0.5]), None).axes
    assert list(axes.lines[0].get_xdata()) == [0.25, 0.5, 0.75, 1.0]
    assert list(axes.lines[0].get_ydata()) == [0.9, 0.8, 0.6, 0.5]


def test_a_selection_is_compared_with_keeping_all() -> None:
    (axes,) = _figures.draw_selective(X[1:], np.array([0.0, 0.1, 0.1, 0.3]), None).axes
    risk, everything = axes.lines
    assert list(risk.get_ydata()) == [0.0, 0.1, 0.1, 0.3]
    assert set(everything.get_ydata()) == {0.3}


def test_a_figure_is_saved(tmp_path: Path) -> None:
    _figures.draw_pruning([0.0, 0.5], [0.9, 0.8], tmp_path / "pruning.svg")
    assert (tmp_path / "pruning.svg").stat().st_size > 1000
