"""Policies: what is claimed of their returns. The seed decides the whole run."""

from dataclasses import replace
from typing import Any

import pytest

from flipout.errors import InvalidArgument
from flipout.experiments.es.rl import claims as es_returns
from flipout.experiments.es.rl.claims import Returns
from flipout.experiments.es.rl.presets import ES_RL
from flipout.experiments.es.rl.work import RlConfig, _drawn, _train
from flipout.experiments.running.folder import open_run
from flipout.experiments.running.progress import Progress
from flipout.experiments.running.results import REPORTED

SMOKE: Any = ES_RL.presets["smoke"]


def returns(method: str, *finals: float) -> list[Returns]:
    return [
        Returns(method, seed, [1, 2], [final / 3, final], [final - 1, final + 1], 1.0)
        for seed, final in enumerate(finals)
    ]


def test_solved_is_solved_by_every_seed():
    curves = [*returns("FlipES", 480, 500, 490), *returns("IdealES", 480, 470, 500)]
    flip, ideal = (es_returns.learned(curves, method, 475) for method in ("FlipES", "IdealES"))
    assert (flip.kind, flip.holds, flip.value) == (REPORTED, True, 480)
    assert (ideal.holds, ideal.value) == (False, 470)


def test_no_loss_is_within_the_spread_of_the_seeds():
    ideal = returns("IdealES", 400, 450, 500)
    assert all(check.holds for check in es_returns.no_loss([*returns("FlipES", 420, 440, 460), *ideal]))
    assert not any(check.holds for check in es_returns.no_loss([*returns("FlipES", 100, 110, 120), *ideal]))


def test_the_seed_decides_everything(tmp_path):
    config, results = replace(SMOKE, generations=2, population=20, draws=10), []
    for name in ("one", "same"):
        with open_run(tmp_path / name, {"seed": 0, "device": "cpu"}, resume=False, progress=Progress()) as run:
            run._piece = "here"
            trained = _train(config, "FlipES", 1, run)
            results.append(({**trained, "seconds": 0}, _drawn(config, "IdealES", run)))
    assert results[0] == results[1]


def test_bad_settings():
    with pytest.raises(InvalidArgument, match="compare FlipES and IdealES"):
        RlConfig(methods=("FlipES",))
    with pytest.raises(InvalidArgument, match="seeds=1"):
        RlConfig(seeds=1)
