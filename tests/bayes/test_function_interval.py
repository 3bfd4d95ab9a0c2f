"""An interval of functions holds functions that were not drawn, as often as it says."""

import warnings
from typing import Any

import pytest
import torch
from torch import nn

import flipout
from flipout.bayes import Prediction, predict
from flipout.bayes._function_interval import function_levels
from tests.statistics import assert_mean

INPUTS = 1000


def covered(prediction: Prediction, level: float) -> torch.Tensor:
    """Return for each input the share of N(0, 1), the distribution of its function, that is inside."""
    low, high = prediction.function_interval(level)
    return (torch.special.ndtr(high.double()) - torch.special.ndtr(low.double())).flatten()


def predicted(inputs: torch.Tensor, samples: int, **settings: Any) -> Prediction:
    """Return the prediction of y = w·x with weights N(0, 1)."""
    model = flipout.perturb(nn.Linear(inputs.shape[1], 1, bias=False), flipout.Gaussian(1.0)).double()
    nn.init.zeros_(model.weight)
    return predict(model, inputs.double(), samples, seed=4, keep=True, **settings)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize(("level", "samples"), [(0.5, 3), (0.5, 15), (0.8, 9), (0.9, 19), (0.9, 39), (0.95, 79)])
def test_functions_of_a_known_posterior_are_inside(level: float, samples: int, joint: bool) -> None:
    """For these numbers the ends are samples, so that theory is exact. The inputs see different weights."""
    assert_mean(covered(predicted(torch.eye(INPUTS), samples, joint=joint, group=1), level), level)


@pytest.mark.parametrize("group", [1, 8])
@pytest.mark.parametrize("joint", [False, True])
def test_the_default_number_of_samples_is_enough(joint: bool, group: int) -> None:
    torch.manual_seed(0)
    inputs = nn.functional.normalize(torch.randn(INPUTS, 200))
    shares = covered(predicted(inputs, 32, joint=joint, group=group), 0.9)
    assert 0.885 < shares.mean() < 0.915, shares.mean()  # 0.85 between the samples' own quantiles


@pytest.mark.parametrize("samples", [2, 3, 10])
def test_too_few_samples_are_said_to_hold_less(samples: int) -> None:
    prediction = predicted(torch.eye(INPUTS), samples, group=1)
    share = (samples - 1) / (samples + 1)
    with pytest.warns(RuntimeWarning, match=rf"outermost of {samples} samples hold {share:.0%}.*samples=19\)"):
        found = covered(prediction, 0.9)
    assert_mean(found, share)
    assert prediction.outputs is not None
    with pytest.warns(RuntimeWarning):
        low, high = prediction.function_interval(0.9)
    assert torch.equal(low, prediction.outputs.amin(0))
    assert torch.equal(high, prediction.outputs.amax(0))


def test_an_ensemble_is_all_there_is() -> None:
    outputs = torch.randn(5, 7, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        low, high = Prediction.from_outputs(outputs).function_interval(0.9)
    torch.testing.assert_close(low, outputs.quantile(0.05, 0))
    torch.testing.assert_close(high, outputs.quantile(0.95, 0))


def test_the_ends_are_symmetric_and_the_least_number_is_enough() -> None:
    for level, least in ((0.9, 19), (0.8, 9), (0.5, 3), (0.99, 199)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert function_levels(level, least, False) == pytest.approx((0, 1))
        with pytest.warns(RuntimeWarning, match=f"samples={least}"):
            function_levels(level, least - 1, False)
    low, high = function_levels(0.9, 32, False)
    assert (low, high) == (pytest.approx(0.65 / 31), pytest.approx(1 - 0.65 / 31))
