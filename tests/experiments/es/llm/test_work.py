"""A run that is stopped goes on with the pieces that are missing."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from flipout.experiments.es.llm import work as module
from flipout.experiments.es.llm.presets import ES_LLM
from flipout.experiments.es.llm.work import work
from flipout.experiments.running.folder import open_run
from flipout.experiments.running.progress import RunProgress
from tests.experiments.es.llm.test_tasks import SMOKE


def test_a_stopped_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    curve = {"seconds": [0.0, 1.0], "accuracy": [0.2, 0.4], "steps": 3, "rate": 5.0}
    training = Mock(side_effect=[curve] * 3 + [KeyboardInterrupt])
    monkeypatch.setattr(module, "train", training)
    where = {"seed": 0, "device": "cpu"}
    with (
        open_run(tmp_path, where, resume=False, progress=RunProgress()) as run,
        pytest.raises(KeyboardInterrupt),
    ):
        work(SMOKE, run)
    training.side_effect = [curve] * 11
    with open_run(tmp_path, where, resume=True, progress=RunProgress()) as run:
        outcome = work(SMOKE, run)
    assert training.call_count == 4 + 11
    assert {check.id for check in outcome.checks} >= {"same-weights", "gain/choice", "gain/text", "share"}


def test_no_training_begins_that_would_not_end_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session of three minutes has one training of 100 seconds, and the next session goes on behind it."""
    now = [0.0]

    def trained(*_: Any) -> dict[str, Any]:
        now[0] += 100
        return {"seconds": [0.0, 1.0], "accuracy": [0.2, 0.4], "steps": 3, "rate": 5.0}

    training = Mock(side_effect=trained)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(module, "train", training)
    config = replace(SMOKE, seconds=100.0, minutes=3.0)
    for session in (1, 2):
        with (
            open_run(tmp_path, {"seed": 0, "device": "cpu"}, resume=True, progress=RunProgress()) as run,
            pytest.raises(KeyboardInterrupt),
        ):
            work(config, run)
        assert training.call_count == session
    assert [call.args[1:4] for call in training.call_args_list] == config.trained[:2]


def test_a_run_is_resumed_with_more_seeds(tmp_path: Path) -> None:
    """All trainings of a seed come before those of the next, so that a stopped run has whole seeds."""
    two, three = (replace(SMOKE, seeds=seeds, steps=1) for seeds in (2, 3))
    assert three.trained[: len(two.trained)] == two.trained
    ES_LLM.run(two, tmp_path / "run", preset="smoke", progress=RunProgress())
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run" / "pieces").iterdir()}
    result = ES_LLM.run(three, tmp_path / "run", preset="smoke", resume=True, progress=RunProgress())
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run" / "pieces").iterdir()}
    assert before.items() <= after.items()
    assert len(after) == len(before) + 7
    ends = result.measured["text, rank-one flips: held-out accuracy at the end, for each seed"]
    assert len(str(ends).split(", ")) == 3
