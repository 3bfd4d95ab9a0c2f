"""What a question to a prediction needs, and how it is refused without."""

import math
from typing import Any

import pytest
import torch

from flipout.bayes import Prediction, evaluate, likelihoods, predict, recalibrate
from flipout.errors import InvalidArgument, InvalidInput, Unsupported
from tests.bayes.test_predict import X, bayesian
from tests.bayes.test_prediction import linear


@pytest.mark.parametrize("name", ["interval", "mean_interval", "function_interval"])
@pytest.mark.parametrize("level", [0, 1, -0.1, 1.5, 90, math.nan, "0.9", True])
def test_levels_are_probabilities(name: str, level: Any) -> None:
    with pytest.raises(InvalidArgument, match=rf"{name}\(level=.*\): expected a probability between 0 and 1"):
        getattr(linear(), name)(level)


@pytest.mark.parametrize("name", ["interval", "mean_interval", "function_interval"])
def test_one_sample_has_no_interval(name: str) -> None:
    prediction = predict(bayesian(), X, 1, likelihood=likelihoods.Gaussian(0.3))
    with pytest.raises(Unsupported, match=rf"{name}: one sample says nothing.*samples=32"):
        getattr(prediction, name)()


def test_without_a_likelihood_the_other_two_intervals_are_named() -> None:
    prediction = predict(bayesian(), X, 20)
    for name, arguments in (("interval", ()), ("sample", (3,)), ("log_prob", (X,)), ("cdf", (X,))):
        with pytest.raises(Unsupported, match=rf"{name}: without a likelihood.*gaussian.*function_interval.*mean_"):
            getattr(prediction, name)(*arguments)


def test_samples_that_were_not_kept_are_asked_for() -> None:
    prediction = predict(bayesian(), X, 20, likelihood=likelihoods.Gaussian(0.3), keep=False)
    for name, arguments in (("interval", ()), ("sample", (3,)), ("log_prob", (prediction.mean,))):
        with pytest.raises(Unsupported, match=rf"{name} needs the 20 samples of each input.*keep=True"):
            getattr(prediction, name)(*arguments)
    with pytest.raises(Unsupported, match="function_interval needs the 20 samples"):
        prediction.function_interval()
    assert prediction.mean_interval()[0].isfinite().all()


def test_targets_have_the_shape_of_the_prediction() -> None:
    for function in (linear().log_prob, linear().cdf):
        with pytest.raises(InvalidInput, match=r"shape \(5,\).*has targets of shape \(5, 1\).*target\.view\(5, 1\)"):
            function(torch.zeros(5))
        with pytest.raises(InvalidInput, match="infinite or not a number"):
            function(torch.full((5, 1), math.inf))


@pytest.mark.parametrize("name", ["cdf", "log_prob"])
def test_complex_targets_are_refused(name: str) -> None:
    prediction = linear()
    with pytest.raises(InvalidInput, match=rf"{name}: complex targets, of dtype torch.complex128"):
        getattr(prediction, name)(prediction.mean * 1j)


@pytest.mark.parametrize("ask", [evaluate, recalibrate, lambda prediction, y: prediction.log_prob(y)])
def test_targets_that_are_no_tensor_are_told_how_to_be_one(ask: Any) -> None:
    prediction = Prediction.from_outputs(torch.randn(2, 5, 3), "categorical")
    for target in (torch.zeros(5, dtype=torch.long).numpy(), [0] * 5):
        with pytest.raises(InvalidInput, match=r"targets of <class .*Write torch\.as_tensor\(target\)\."):
            ask(prediction, target)
