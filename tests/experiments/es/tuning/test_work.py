"""Candidates are tuned on held-out training examples, and never on the test data."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from flipout.errors import InvalidArgument
from flipout.experiments.es.tuning.presets import ES_TUNING
from flipout.experiments.es.tuning.work import TuningConfig, split
from flipout.experiments.running.experiment import Config
from flipout.experiments.training.supervised import Prepared


def smoke() -> Config:
    config = ES_TUNING.config("smoke")
    assert isinstance(config, TuningConfig)
    return replace(config, device="cpu", training=replace(config.training, updates=4))


def test_the_test_data_is_not_read_and_held_out_examples_are_not_trained_on():
    x, y = torch.arange(10.0).view(-1, 1, 1, 1), torch.arange(10)
    prepared = Prepared(x, y, x_test=x + 100, y_test=y + 100, classes=10, source="toys")
    parts = split(prepared, 3)
    assert parts.x.flatten().tolist() == parts.y.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert parts.x_test.flatten().tolist() == parts.y_test.tolist() == [7, 8, 9]
    with pytest.raises(InvalidArgument, match="held_out=10: expected fewer than the 10"):
        split(prepared, 10)


def test_every_candidate_is_trained_once_and_the_best_are_combined(tmp_path: Path):
    result = ES_TUNING.run(smoke(), tmp_path / "run", preset="smoke")
    scores = {
        name.removesuffix(": score"): float(str(value))
        for name, value in result.measured.items()
        if name.endswith(": score")
    }
    noise = [name for name in scores if name.endswith("centered_rank pairs")]
    assert len(noise) == 2  # the standard deviations
    assert len([name for name in scores if name.startswith("FlipES")]) == 2 + 3  # one of four shapings was there
    assert len([name for name in scores if name.startswith("backprop")]) == 2
    for method in ("FlipES", "backprop"):
        names = [name for name in scores if name.startswith(method)]
        assert result.measured[f"{method}: chosen"] == min(names, key=scores.__getitem__)
    best_noise = min(noise, key=scores.__getitem__).removesuffix(" centered_rank pairs")
    assert f"{best_noise} z_score single" in scores
    pieces = sorted((tmp_path / "run" / "pieces").glob("*.json"))
    assert len(pieces) == 7
    assert (tmp_path / "run" / "figures" / "scores.svg").is_file()


def test_bad_settings():
    with pytest.raises(InvalidArgument, match="multiple of group=40"):
        TuningConfig(samples=50)
    with pytest.raises(InvalidArgument, match=r"rates=\(\): expected at least one"):
        TuningConfig(rates=())
    with pytest.raises(InvalidArgument, match="each once"):
        TuningConfig(stds=(0.1, 0.1))
