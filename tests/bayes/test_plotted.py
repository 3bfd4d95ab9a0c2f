"""The figure of a prediction: bands that are its intervals, a reliability diagram, or probabilities in order."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flipout.bayes import Prediction, likelihoods
from flipout.errors import InvalidInput

GENERATOR = torch.Generator().manual_seed(1)
X = torch.tensor([[2.0], [0.0], [1.0]])
PREDICTION = Prediction.from_outputs(torch.randn(9, 3, 1, generator=GENERATOR), likelihoods.Gaussian(0.5))


def ends(figure: Any, band: int) -> tuple[np.ndarray, np.ndarray]:
    """The lower and the upper end of a band at 0, 1 and 2."""
    corners = figure.axes[0].collections[band].get_paths()[0].vertices
    found = {x: [y for place, y in corners if place == x] for x in (0.0, 1.0, 2.0)}
    return np.array([min(found[x]) for x in found]), np.array([max(found[x]) for x in found])


@pytest.mark.parametrize("x", [X, X.squeeze(1)], ids=["column", "row"])
def test_the_bands_are_the_intervals_over_x(x: torch.Tensor) -> None:
    figure = PREDICTION.plot(x, PREDICTION.mean + 1, level=0.8)
    for band, interval in enumerate((PREDICTION.interval(0.8), PREDICTION.function_interval(0.8))):
        for found, expected in zip(ends(figure, band), interval, strict=True):
            np.testing.assert_allclose(found, expected[[1, 2, 0], 0].numpy(), rtol=1e-6)
    mean, target = (line.get_ydata() for line in figure.axes[0].lines)
    np.testing.assert_allclose(target - mean, 1, rtol=1e-6)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["80 % of the targets (interval)", "80 % of the functions (function_interval)", "mean", "target"]
    assert not figure.axes[0].get_legend()  # it would cover a band


def test_a_level_is_not_rounded() -> None:
    figure = PREDICTION.plot(X, level=0.975)
    assert figure.legends[0].get_texts()[0].get_text() == "97.5 % of the targets (interval)"


def test_without_x_the_means_are_in_order(tmp_path: Path) -> None:
    figure = PREDICTION.plot(path=tmp_path / "band.svg")
    assert (np.diff(figure.axes[0].lines[0].get_ydata()) >= 0).all()
    assert (tmp_path / "band.svg").stat().st_size > 1000
    function = Prediction.from_outputs(torch.randn(9, 3, 1)).plot(X)
    assert len(function.axes[0].collections) == 1
    assert (figure.axes[0].get_ylabel(), function.axes[0].get_ylabel()) == ("target", "output")


def test_classes() -> None:
    p = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.5, 0.3, 0.2]])
    prediction = Prediction.from_outputs(p.log().unsqueeze(0), "categorical")
    np.testing.assert_allclose(prediction.plot().axes[0].lines[0].get_ydata(), [0.8, 0.7, 0.5], rtol=1e-6)
    assert prediction.plot(target=torch.tensor([0, 1, 1])).axes[0].get_ylabel() == "accuracy"


def test_what_has_no_band() -> None:
    several = Prediction.from_outputs(torch.randn(9, 3, 2), likelihoods.Gaussian())
    with pytest.raises(InvalidInput, match=r"\(3, 2\) has several numbers for an input"):
        several.plot(X)
    with pytest.raises(InvalidInput, match=r"inputs of \(3, 2\); expected \(3,\) or \(3, 1\)"):
        PREDICTION.plot(torch.zeros(3, 2))
    with pytest.raises(InvalidInput, match=r"plot: targets of shape \(3,\)"):
        PREDICTION.plot(X, torch.zeros(3))
