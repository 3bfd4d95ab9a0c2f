"""The figure of variances: what is drawn where."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flipout.errors import InvalidArgument
from flipout.variance import Decomposition, Measurements, Record, Term
from flipout.variance._figures import figure

pytest.importorskip("matplotlib", reason="matplotlib is not installed")
SIZES = (1, 4, 16)


def record(parameter: str, scheme: str, size: int, repeats: int = 5) -> Record:
    variance = 0.1 + 2 / size if scheme == "shared" else 2 / size
    return Record(parameter, scheme, size, variance, 0.1, 0.8 * variance, 1.3 * variance, 10, repeats)


def measurements(parameters: tuple[str, ...] = ("w",), **changes: Any) -> Measurements:
    schemes = ("shared", "flipout")
    return Measurements(record(p, s, size, **changes) for p in parameters for s in schemes for size in SIZES)


def test_points_have_their_intervals_and_curves_their_fits() -> None:
    (axes,) = figure(measurements(), None, None).axes
    bars, _ = axes.containers  # of shared, of flipout
    ends = np.array(bars.lines[2][0].get_segments())[:, :, 1]
    variances = np.array([0.1 + 2 / size for size in SIZES])
    assert ends == pytest.approx(np.stack([0.8 * variances, 1.3 * variances], 1))
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    assert lines["shared"] == pytest.approx(variances, rel=1e-6)  # the fit a + b/N meets points of that form
    assert lines["flipout"] == pytest.approx([2 / size for size in SIZES], rel=1e-6)
    assert (axes.get_xscale(), axes.get_yscale(), axes.get_title()) == ("log", "log", "w")


def test_single_repeats_are_joined_by_lines_instead_of_fits() -> None:
    (axes,) = figure(measurements(repeats=1), None, None).axes
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    assert lines["shared"] == pytest.approx([0.1 + 2 / size for size in SIZES])


def test_predictions_are_crosses() -> None:
    terms = [Term(value, 0.01) for value in (2.1, 0.06, 0.04, 0.1)]
    found = Decomposition("w", *terms)
    (axes,) = figure(measurements(), None, [found]).axes
    crosses = [line.get_ydata() for line in axes.lines if line.get_marker() == "x" and len(line.get_ydata())]
    expected = [[found.predict(scheme, size).value for size in SIZES] for scheme in ("shared", "flipout")]
    assert np.array(crosses) == pytest.approx(np.array(expected))


@pytest.mark.parametrize(("count", "shape"), [(1, (1, 1)), (3, (1, 3)), (4, (2, 2)), (7, (3, 3))])
def test_each_parameter_has_a_panel(count: int, shape: tuple[int, int]) -> None:
    names = tuple(f"layer{i}" for i in range(count))
    axes = figure(measurements(names), None, None).axes
    assert [panel.get_title() for panel in axes] == list(names)
    grid = axes[0].get_gridspec()
    assert (grid.nrows, grid.ncols) == shape
    assert [bool(panel.get_xlabel()) for panel in axes] == [i + shape[1] >= count for i in range(count)]


def test_it_is_saved(tmp_path: Path) -> None:
    measurements().plot(tmp_path / "f.png")
    assert (tmp_path / "f.png").stat().st_size > 1000


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="there are no records"):
        figure(Measurements([]), None, None)
