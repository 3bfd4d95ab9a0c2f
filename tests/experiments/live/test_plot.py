"""Plots show every line inside their frame, at most six of them."""

import re

from flipout._drawing import COLOURS
from flipout.experiments.live.plot import _HEIGHT, _WIDTH, MOST_POINTS, STYLES, panel, thinned


def places(markup: str) -> list[list[tuple[float, float]]]:
    found = re.findall(r'<polyline points="([^"]*)"', markup)
    return [[tuple(map(float, pair.split(","))) for pair in points.split()] for points in found]  # pyright: ignore[reportReturnType]


def test_points_are_where_they_belong():
    (line,) = places(panel("loss", {"a": [(0.0, 2.0), (5.0, 1.0), (10.0, 2.0)]}))
    xs, ys = zip(*line, strict=True)
    assert xs[1] == (xs[0] + xs[2]) / 2
    assert ys[0] == ys[2] < ys[1]  # larger values are higher up
    assert all(0 <= x <= _WIDTH for x in xs)
    assert all(0 <= y <= _HEIGHT for y in ys)


def test_long_spans_are_logarithmic():
    (line,) = places(panel("variance", {"a": [(1.0, 1.0), (10.0, 0.1), (100.0, 0.01)]}))
    (x0, y0), (x1, y1), (x2, y2) = line
    assert abs((x0 + x2) / 2 - x1) < 0.2
    assert abs((y0 + y2) / 2 - y1) < 0.2


def test_axes_say_what_they_show_and_whether_they_are_logarithmic():
    markup = panel("variance", {"a": [(1.0, 1.0), (8192.0, 0.01)]})
    assert ">8,192<" in markup
    assert ">step (logarithmic)<" in markup
    assert ">logarithmic<" in markup
    markup = panel("loss", {"a": [(0.0, 2.0), (10.0, 1.0)]})
    assert ">step<" in markup
    assert "logarithmic" not in markup


def test_equal_values_and_single_points_have_a_place():
    for points in ([(1.0, 1.0)], [(1.0, 0.0), (2.0, 0.0)], [(-1.0, -1e29), (3.0, 1e29)]):
        assert places(panel("a", {"a": points}))


def test_at_most_six_lines_of_different_looks():
    markup = panel("loss", {f"seed {i}": [(0.0, float(i))] for i in range(9)})
    assert len(places(markup)) == 6
    assert "and 3 more" in markup
    assert "seed 8" in markup
    assert "seed 2" not in markup
    assert len(set(STYLES)) == len({colour for colour, _ in STYLES}) == len({dashes for _, dashes in STYLES}) == 6


def test_schemes_have_the_colours_of_all_figures():
    markup = panel("loss", {"variance.flipout": [(0.0, 1.0)], "shared.0": [(0.0, 1.0)], "other": [(0.0, 1.0)]})
    colours = re.findall(r'<polyline [^>]*stroke="(#\w+)"', markup)
    assert colours == [COLOURS["flipout"], COLOURS["shared"], STYLES[2][0]]


def test_names_are_escaped():
    markup = panel("<script>", {'"><script>': [(0.0, 1.0)]})
    assert "<script>" not in markup


def test_long_lines_are_thinned_and_keep_their_ends():
    points = [(float(i), 1.0) for i in range(10_000)]
    kept = thinned(points)
    assert len(kept) == MOST_POINTS
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert thinned(points[:3]) == points[:3]
