from collections.abc import Iterator
from pathlib import Path

import pytest

from flipout.experiments.lora.settings import LoraSettings
from flipout.experiments.running.folder import open_run
from flipout.experiments.running.progress import RunProgress
from flipout.experiments.running.runs import Run


@pytest.fixture
def config() -> LoraSettings:
    return LoraSettings(
        device="cpu",
        seeds=1,
        train=24,
        valid=8,
        test=16,
        steps=12,
        batch=8,
        decays=(0.1,),
        members=2,
        samples=4,
        draws=4,
        rounds=2,
        information=100,
    )


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    settings = {"experiment": "bayesian-lora", "preset": "smoke", "seed": 0, "device": "cpu"}
    with RunProgress() as shown, open_run(tmp_path / "run", settings, resume=False, progress=shown) as opened:
        yield opened
