"""A KL of the wrong scale is found out, and bad settings are refused."""

from pathlib import Path

import pytest

from flipout import bayes
from flipout.errors import InvalidArgument
from flipout.experiments.posterior.regressions import RegressionConfig
from flipout.experiments.posterior.work import PosteriorCheckConfig
from flipout.experiments.registry import EXPERIMENTS


def test_a_kl_of_the_wrong_scale_is_found_out(tmp_path: Path, monkeypatch):
    class Wrong(bayes.ELBO):
        def __init__(self, *arguments, **named) -> None:
            super().__init__(*arguments, **named, kl_weight=0.3)

    monkeypatch.setattr(bayes, "ELBO", Wrong)
    experiment = EXPERIMENTS["posterior-check"]
    result = experiment.run(experiment.config("smoke"), tmp_path, preset="smoke")
    assert any(check.id == "spreads" for check in result.broken)


@pytest.mark.parametrize(
    "changes",
    [{"tasks": 2}, {"inputs": 0}, {"correlation": 1.0}, {"correlation": -0.1}, {"noise": 0.0}, {"prior": -1.0}],
)
def test_bad_settings_are_refused(changes):
    with pytest.raises(InvalidArgument, match="expected"):
        RegressionConfig(**changes)
    with pytest.raises(InvalidArgument, match="schemes: expected at least one"):
        PosteriorCheckConfig(schemes=())
    with pytest.raises(InvalidArgument, match="steps=1: expected at least 100"):
        PosteriorCheckConfig(steps=1)
