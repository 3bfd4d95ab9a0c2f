"""Coverage of intervals at many levels, where the truth is known."""

from pathlib import Path

import numpy as np
import pytest
import torch

from flipout.bayes import Prediction, likelihoods
from flipout.bayes._calibration import calibration_curve, coverages
from tests.bayes.test_mixture import Laplace

GENERATOR = torch.Generator().manual_seed(5)
CENTRES = torch.randn(1, 4000, 1, generator=GENERATOR)
NOISE = torch.randn(4000, 1, generator=GENERATOR)


def test_targets_of_the_prediction_are_covered_as_often_as_it_says() -> None:
    """Binomial: √(0.25 / 4000) = 0.008 is the largest standard error. Noise half as large as claimed is seen."""
    prediction = Prediction.from_outputs(CENTRES, likelihoods.Gaussian(2.0))
    curve = calibration_curve(prediction, CENTRES[0] + 2 * NOISE)
    assert np.abs(curve.coverage - curve.levels).max() < 0.035
    assert curve.error < 0.02
    assert calibration_curve(prediction, CENTRES[0] + NOISE).error > 0.1


def test_the_short_way_is_the_interval() -> None:
    prediction = Prediction.from_outputs(torch.cat((CENTRES, -CENTRES, CENTRES + 1)), likelihoods.Gaussian(0.5))
    for level, share in coverages(prediction, NOISE, [0.5, 0.9]).items():
        low, high = prediction.interval(level)
        assert share == ((low <= NOISE) & (high >= NOISE)).double().mean()


@pytest.mark.parametrize("likelihood", [likelihoods.Poisson(), Laplace()], ids=["counts", "samples"])
def test_counts_and_what_has_no_cdf(likelihood: likelihoods.Likelihood) -> None:
    outputs = torch.full((1, 400), 3.0)
    prediction = Prediction.from_outputs(outputs, likelihood)
    target = prediction.sample(1, torch.Generator().manual_seed(1))[0]
    found = coverages(prediction, target, [0.5, 0.9])
    for level, share in found.items():
        most = 1 if likelihood.counts else level + 0.1
        assert level - 0.1 < share < most


def test_it_is_drawn_and_shown(tmp_path: Path) -> None:
    curve = calibration_curve(Prediction.from_outputs(CENTRES, likelihoods.Gaussian(2.0)), CENTRES[0] + 2 * NOISE)
    curve.plot(tmp_path / "calibration.svg")
    assert (tmp_path / "calibration.svg").stat().st_size > 1000
    assert repr(curve).startswith("CalibrationCurve(levels=19, examples=4000, error=0.0")
