"""The palette for readers who see no red or no green: distances in Lab, by the simulation of Machado et al. (2009)."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flipout import _drawing
from flipout._drawing import COLOURS, DARK, REFERENCE

SEEN = {
    "all": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
PAGES = {"white": ("#ffffff", list(COLOURS.values())), "dark": ("#1e2129", [DARK[c] for c in COLOURS.values()])}


def linear(colour: str) -> NDArray[Any]:
    encoded = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)


def lab(light: NDArray[Any]) -> NDArray[Any]:
    """CIE L*a*b* under D65."""
    relative = XYZ @ np.clip(light, 0, 1) / np.array([0.95047, 1, 1.08883])
    x, y, z = np.where(relative > 0.008856, np.cbrt(relative), 7.787 * relative + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("seen", SEEN)
def test_any_two_colours_are_told_apart(page: str, seen: str) -> None:
    _, colours = PAGES[page]
    places = [lab(SEEN[seen] @ linear(colour)) for colour in colours]
    assert min(np.linalg.norm(a - b) for a, b in combinations(places, 2)) >= 20


@pytest.mark.parametrize("page", PAGES)
def test_colours_stand_out_from_the_page(page: str) -> None:
    """A contrast of 3, as WCAG asks of graphics."""
    background, colours = PAGES[page]
    reference = REFERENCE if page == "white" else DARK[REFERENCE]
    ground = XYZ[1] @ linear(background) + 0.05
    for colour in (*colours, reference):
        ratio = ground / (XYZ[1] @ linear(colour) + 0.05)
        assert max(ratio, 1 / ratio) >= 3, colour


def test_the_style_ends_with_the_figure_and_its_text_can_be_read() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    before = dict(matplotlib.rcParams)

    @_drawing.styled
    def draw() -> Any:
        figure, grid = _drawing.panels(1, 2, height=2.0)
        for axes in grid.flat:
            axes.plot([0, 1], [0, 1], label="one")
            axes.set(title="title", xlabel="x")
        _drawing.legend_outside(figure)
        return figure

    figure = draw()
    assert dict(matplotlib.rcParams) == before
    figure.draw_without_rendering()
    texts = [text for text in figure.findobj(matplotlib.text.Text) if text.get_text()]
    assert min(text.get_fontsize() for text in texts) >= 8
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one"]
