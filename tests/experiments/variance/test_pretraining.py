"""Networks that are trained to a certain accuracy, then frozen and perturbed."""

from dataclasses import replace

import pytest
import torch

import flipout
from flipout.errors import InvalidArgument, RunError
from flipout.experiments.running.runs import Run
from flipout.experiments.training import networks
from flipout.experiments.variance import pretraining
from flipout.experiments.variance.pretraining import Pretraining

TINY = Pretraining(hidden=(16,), data="digits", accuracy=0.4, learning_rate=1e-2, batch=64, every=5)


@pytest.mark.parametrize("noise", [False, True])
def test_training_stops_at_the_accuracy(run: Run, noise: bool) -> None:
    frozen = replace(TINY, noise=noise).freeze(0.5, run)
    reached = frozen.reached["training accuracy"]
    assert reached == pytest.approx(networks.accuracy(frozen.model, *frozen.data))
    assert isinstance(reached, float)
    assert 0.4 <= reached < 0.9  # far from the end of training
    logged = [line["accuracy"] for line in run.metrics_of("network")]
    assert logged[-1] == reached
    assert max(logged[:-1], default=0.0) < 0.4
    assert ("under flipout" in frozen.setting) == noise


def test_weights_are_noisy_and_measured_and_biases_neither(run: Run) -> None:
    model = TINY.freeze(0.5, run).model
    measured = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert measured == {"fc1.weight", "fc2.weight"}
    noisy = {row.parameter: row.noise for row in flipout.summary(model).rows if row.noise}
    assert noisy.keys() == measured
    assert set(noisy.values()) == {"MultiplicativeGaussian(std=0.5)"}


def test_a_run_trains_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    first = TINY.freeze(0.5, run).model.state_dict()
    monkeypatch.setattr(pretraining, "_train", lambda *_: pytest.fail("it was trained again"))
    again = TINY.freeze(0.5, run).model.state_dict()
    assert first.keys() == again.keys()
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_an_accuracy_out_of_reach_is_an_error(run: Run) -> None:
    with pytest.raises(RunError, match=r"of the training set in 10 steps, not 99%: give another --pretraining\.learn"):
        replace(TINY, accuracy=0.99, most=10).freeze(0.5, run)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"pretraining\.every=0"):
        Pretraining(every=0)
