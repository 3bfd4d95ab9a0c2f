"""The new meaning of `interval` is said once, and only where a call of version 0.3 could have asked for the old one."""

import warnings
from typing import Any

import pytest
import torch
from torch import nn

import flipout
from flipout.bayes import ELBO, Normal, Prediction, _target_interval, evaluate, likelihoods, predict
from flipout.bayes._target_interval import target_interval
from flipout.errors import ChangedMeaning

X = torch.zeros(4, 3)
NOISE = likelihoods.Gaussian(0.5)


@pytest.fixture(autouse=True)
def as_in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_target_interval, "_is_said", False)


@pytest.fixture
def model() -> nn.Module:
    return flipout.perturb(nn.Linear(3, 1), flipout.MeanField(std=0.1, prior=Normal()))


def test_a_call_as_of_0_3_warns_once_and_names_the_new_name(model: nn.Module) -> None:
    prediction = predict(model, X, 8, likelihood=NOISE)
    with pytest.warns(ChangedMeaning, match=r"mean_interval\(0\.95\)") as caught:
        prediction.interval()
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prediction.interval()


def test_calls_that_0_3_did_not_have_do_not_warn(model: nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predict(ELBO(model, NOISE, num_data=4), X, 8).interval()
        predict(model, X, 8, likelihood=NOISE, antithetic=True).interval()
        Prediction.from_outputs(torch.zeros(2, 4, 1), NOISE).interval()
        old = predict(model, X, 32, likelihood=NOISE)
        old.rescale(2.0).interval()
        repr(old)
        evaluate(old, torch.zeros(4, 1))
        old.plot()


@pytest.mark.parametrize(("likelihood", "outputs"), [("categorical", 3), ("bernoulli", 1), ("heteroscedastic", 2)])
def test_nobody_takes_a_set_of_classes_or_a_new_likelihood_for_the_old_interval(likelihood: Any, outputs: int) -> None:
    prediction = predict(flipout.perturb(nn.Linear(3, outputs), flipout.Gaussian(0.1)), X, 8, likelihood=likelihood)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prediction.interval(0.9)


def test_the_interval_is_that_of_the_target() -> None:
    low, high = target_interval(Prediction.from_outputs(torch.zeros(2, 4, 1), NOISE), 0.9)
    torch.testing.assert_close(high, torch.full((4, 1), 0.5 * 1.6448536))
    torch.testing.assert_close(low, -high)
