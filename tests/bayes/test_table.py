"""A prediction prints as a table: its first targets, and what the columns mean."""

import torch

from flipout.bayes import Prediction, likelihoods, predict
from tests.bayes.test_mixture import Silent
from tests.bayes.test_predict import X, bayesian

OUTPUTS = torch.tensor([[[1.0], [2.0]], [[3.0], [2.0]]])


def test_numbers() -> None:
    """Means 2 and 2, noise 0.5; samples 1 and 3 have the standard deviation √2, and the standard error 1."""
    lines = repr(Prediction.from_outputs(OUTPUTS, likelihoods.Gaussian(0.5))).splitlines()
    assert lines[:4] == [
        "Prediction(mean of shape (2, 1), count=2, bases=2, likelihood=Gaussian)",
        "input  mean   90 % interval  ± noise  ± weights  ± error",
        "    0     2  0.3592 … 3.641      0.5      1.414        1",
        "    1     2   1.178 … 2.822      0.5          0        0",
    ]
    assert lines[4].startswith("interval(0.9) holds the target with probability 0.9.")


def test_classes() -> None:
    p = torch.tensor([[[0.75, 0.2, 0.05], [0.0, 1.0, 0.0]]])
    lines = repr(Prediction.from_outputs(p.log(), "categorical")).splitlines()
    assert lines[1:4] == [
        "input  class  probability  90 % set  entropy   noise  weights",
        "    0      0         0.75    {0, 1}   0.6874  0.6874        0",
        "    1      1            1       {1}        0       0        0",
    ]
    assert "weights, the mutual information, shrinks with more data." in " ".join(lines[4:])
    many = repr(Prediction.from_outputs(torch.zeros(1, 1, 12), "categorical"))
    assert "{0, 1, 2, 3, …} (11)" in many


def test_it_stays_short_and_says_what_is_missing() -> None:
    long = repr(predict(bayesian(), X, 16, likelihood="bernoulli"))
    assert "… and 10 more" in long
    assert len(long.splitlines()) == 11
    assert max(map(len, long.splitlines())) <= 78
    assert "Without a likelihood nothing is known about the noise" in repr(predict(bayesian(), X, 16))
    assert "not kept" in repr(predict(bayesian(), X, 16, likelihood=likelihoods.Gaussian(), keep=False))
    assert "unknown" in repr(predict(bayesian(), X, 16, likelihood=Silent()))
    assert "nan" in repr(predict(bayesian(), X, 1, likelihood="categorical"))


def test_transforms_print_one_line() -> None:
    shown = []

    def of(outputs: torch.Tensor) -> torch.Tensor:
        prediction = Prediction.from_outputs(outputs, "bernoulli")
        shown.append(repr(prediction))
        return prediction.mean

    torch.func.vmap(of)(torch.randn(3, 2, 4))
    assert shown == ["Prediction(mean of shape (4,), count=2, bases=2, likelihood=Bernoulli)"]
