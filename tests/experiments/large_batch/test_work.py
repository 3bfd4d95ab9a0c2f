"""Large batches: a captured step learns as an eager one, and bad settings are refused."""

from dataclasses import replace

import pytest
import torch

import flipout
from flipout.errors import InvalidArgument
from flipout.experiments.large_batch.work import LargeBatchConfig
from flipout.experiments.registry import EXPERIMENTS
from flipout.experiments.training.bayes import BayesTraining


def uncaptured(step):
    captured = flipout.Captured(step)
    captured._can_capture = False
    return captured


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("name", ["large-batch-fc", "large-batch-convle"])
def test_a_captured_step_learns_as_an_eager_one(name, tmp_path, monkeypatch):
    experiment = EXPERIMENTS[name]
    config = replace(experiment.config("smoke"), device="cuda")
    losses = []
    for folder in ("captured", "eager"):
        result = experiment.run(config, tmp_path / folder, preset="smoke")
        assert result.broken == []
        losses.append(float(str(result.measured["flipout: total loss at the end"]).partition(" ")[0]))
        monkeypatch.setattr(flipout, "capture", uncaptured)
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schemes": ("flipout",)}, "the claims compare shared and flipout"),
        ({"seeds": 1}, "seeds=1: expected at least 2"),
        ({"fractions": (0.0, 1.0)}, "above 0 and up to 1"),
        ({"fractions": ()}, "above 0 and up to 1"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(InvalidArgument, match=message):
        LargeBatchConfig(**changes)
    with pytest.raises(InvalidArgument, match=r"training\.batch=0"):
        BayesTraining(batch=0)
