"""The seed decides the whole run of a policy, and bad settings are refused."""

from dataclasses import replace
from typing import Any

import pytest

from flipout.errors import InvalidArgument
from flipout.experiments.es.rl.presets import ES_RL
from flipout.experiments.es.rl.work import RlConfig, _drawn, _train, draw, work
from flipout.experiments.running.folder import open_run
from flipout.experiments.running.progress import RunProgress

SMOKE: Any = ES_RL.presets["smoke"]


def test_the_seed_decides_everything(tmp_path):
    config, results = replace(SMOKE, generations=2, population=20, draws=10), []
    for name in ("one", "same"):
        with open_run(tmp_path / name, {"seed": 0, "device": "cpu"}, resume=False, progress=RunProgress()) as run:
            run._piece = "here"
            trained = _train(config, "FlipES", 1, run)
            results.append(({**trained, "seconds": 0}, _drawn(config, "IdealES", run)))
    assert results[0] == results[1]


def test_rank_one_is_trained_beside_the_two(tmp_path):
    config = replace(SMOKE, methods=("FlipES", "IdealES", "rank_one"), generations=2, population=20, group=10)
    with open_run(tmp_path, {"seed": 0, "device": "cpu"}, resume=False, progress=RunProgress()) as run:
        outcome = work(config, run)
        draw(config, run)
    checks = {check.id for check in outcome.checks}
    assert {"learned-rank_one", "mean-return-rank_one", "end-return-rank_one"} <= checks
    assert "rank_one: seconds for a seed" in outcome.measured
    assert ES_RL.title_of(config) == "Policies by FlipES, IdealES and rank_one in CartPole-v1"


def test_a_run_is_resumed_with_more_seeds(tmp_path):
    config = replace(SMOKE, generations=1, population=20, group=10, evaluated=2)
    ES_RL.run(config, tmp_path / "run", preset="smoke", progress=RunProgress())
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run" / "pieces").iterdir()}
    more = ES_RL.run(replace(config, seeds=3), tmp_path / "run", preset="smoke", resume=True, progress=RunProgress())
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run" / "pieces").iterdir()}
    assert before.items() <= after.items()
    assert after.keys() - before.keys() == {"FlipES.2.json", "IdealES.2.json"}
    assert len(str(more.measured["FlipES: mean return at the end, for each seed"]).split(", ")) == 3


def test_bad_settings():
    with pytest.raises(InvalidArgument, match="compare FlipES and IdealES"):
        RlConfig(methods=("FlipES",))
    with pytest.raises(InvalidArgument, match="compare FlipES and IdealES"):
        RlConfig(methods=("FlipES", "IdealES", "rank_one", "rank_one"))
    with pytest.raises(InvalidArgument, match="seeds=1"):
        RlConfig(seeds=1)
