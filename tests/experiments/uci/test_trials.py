"""Hyperparameters are chosen split by split, and scores are in the target's own units."""

import math
from dataclasses import replace

import pytest
import torch

from flipout.errors import InvalidArgument
from flipout.experiments import data
from flipout.experiments.running.folder import open_run
from flipout.experiments.running.progress import RunProgress
from flipout.experiments.uci.lanes import Training
from flipout.experiments.uci.networks import METHODS
from flipout.experiments.uci.scores import SCORES
from flipout.experiments.uci.trials import UciConfig
from flipout.experiments.uci.work import work

TINY = UciConfig(
    sets=("diabetes",),
    splits=2,
    hidden=3,
    training=Training(steps=5, batch=20),
    samples=2,
    watched=20,
    batches=10,
)


def pieces(folder, config: UciConfig = TINY) -> dict[str, dict]:
    with open_run(folder, {"seed": 0, "device": "cpu"}, resume=False, progress=RunProgress()) as run:
        work(config, run)
        return {name: run.read_piece(name) for name in run.finished_pieces()}


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, dict]:
    return pieces(tmp_path_factory.mktemp("run"))


def test_every_split_has_its_own_choice(found):
    searched = {name.split(".")[1] for name in found if name.endswith(".search")}
    assert searched == {name for name, method in METHODS.items() if not method.choice}
    for method in searched:
        piece = found[f"diabetes.{method}.search"]
        scores = torch.tensor(piece["log_likelihood"])
        assert scores.shape == (4, 2)
        assert piece["chosen"] == scores.argmax(0).tolist()


def test_every_method_has_scores_of_every_split(found):
    for method in METHODS:
        piece = found[f"diabetes.{method}"]
        assert all(len(piece[score]) == 2 for score in SCORES)
        assert bool(piece["losses"]) == (method == "flipout")


def test_scores_are_in_the_units_of_the_target(found, tmp_path, monkeypatch):
    regression = data.diabetes()
    monkeypatch.setattr(data, "regression", lambda name, embedded: replace(regression, y=8 * regression.y + 3))
    scaled = pieces(tmp_path)
    for method in METHODS:
        before, after = found[f"diabetes.{method}"], scaled[f"diabetes.{method}"]
        assert after["rmse"] == pytest.approx([8 * value for value in before["rmse"]], rel=1e-3)
        assert after["crps"] == pytest.approx([8 * value for value in before["crps"]], rel=1e-3)
        shifted = [value - math.log(8) for value in before["log_likelihood"]]
        assert after["log_likelihood"] == pytest.approx(shifted, abs=1e-3)
        assert after["coverage"] == before["coverage"]


def test_bad_settings_are_refused():
    with pytest.raises(InvalidArgument, match="splits=1: expected at least 2"):
        UciConfig(splits=1)
    with pytest.raises(InvalidArgument, match=r"training.steps=0: expected at least 1"):
        Training(steps=0)


def test_methods_that_do_not_exist_are_refused():
    with pytest.raises(InvalidArgument, match=r"methods=\('laplace',\): expected some of plain, dropout"):
        UciConfig(methods=("laplace",))
    with pytest.raises(InvalidArgument, match="expected some of"):
        UciConfig(methods=())
