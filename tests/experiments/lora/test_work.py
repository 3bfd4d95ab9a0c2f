"""The work as a whole: a resumed run trains nothing again."""

import json
from pathlib import Path

import pytest

from flipout.experiments.lora import work as module
from flipout.experiments.lora.presets import BAYESIAN_LORA
from flipout.experiments.lora.rows import ROWS, Learner


@pytest.mark.slow  # a second smoke run; test_registry.py has the first
def test_a_resumed_run_trains_nothing_again(tmp_path: Path, config, monkeypatch) -> None:
    first = BAYESIAN_LORA.run(config, tmp_path, preset="smoke")
    assert first.broken == []
    pieces = {path.name for path in (tmp_path / "pieces").iterdir()}
    assert {f"{row}.0.json" for row in ROWS} <= pieces
    free = json.loads((tmp_path / "pieces" / "training-free.0.json").read_text())
    assert 0 <= free["test"]["ece"] <= 1

    def refuse(*_: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(Learner, "train", refuse)
    (tmp_path / "pieces" / "flipout.0.json").unlink()
    (tmp_path / "pieces" / "same.json").unlink()
    again = BAYESIAN_LORA.run(config, tmp_path, preset="smoke", resume=True)
    assert again.measured == first.measured
    assert module.claims.ROWS_FIGURE in [figure.name for figure in again.figures]
