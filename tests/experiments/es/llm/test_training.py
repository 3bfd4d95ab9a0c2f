"""A training stops in time, tests along the way, and repeats with its seed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flipout.es import EvolutionStrategy
from flipout.experiments.es.llm.settings import LlmConfig
from flipout.experiments.es.llm.tasks import make_task
from flipout.experiments.es.llm.training import strategy, train
from tests.experiments.es.llm.test_tasks import SMOKE, run_in


def trained(folder: Path, config: LlmConfig, task: Any, method: Any, seed: int) -> dict[str, Any]:
    folder.mkdir()
    run = run_in(folder)
    run._piece = "here"
    return train(config, task, method, seed, run)


@pytest.mark.parametrize("what", [("choice", "rank_one"), ("choice", "lora"), ("text", "one_by_one")])
def test_the_seed_decides_what_is_learned(what: tuple[Any, Any], tmp_path: Path) -> None:
    first, same = (trained(tmp_path / name, SMOKE, *what, 1) for name in ("one", "same"))
    assert first["steps"] == same["steps"] == SMOKE.steps
    assert first["accuracy"] == same["accuracy"]
    assert (first["rate"] is None) == (what[1] == "lora")


def test_a_training_ends_when_its_time_is_up(tmp_path: Path) -> None:
    found = trained(tmp_path / "run", replace(SMOKE, steps=10_000, seconds=0.3, points=3), "choice", "rank_one", 0)
    assert found["steps"] < 10_000
    assert found["seconds"][0] == 0
    assert found["seconds"][-1] >= 0.3
    assert 2 <= len(found["accuracy"]) == len(found["seconds"]) <= 4


def test_few_members_take_shorter_steps(tmp_path: Path) -> None:
    rates = {}
    for method in ("rank_one", "one_by_one"):
        evolution = strategy(SMOKE, make_task(SMOKE, "choice", run_in(tmp_path)), method, 0)  # pyright: ignore[reportArgumentType]
        assert isinstance(evolution, EvolutionStrategy)
        rates[evolution.settings.population] = evolution.optimizer.param_groups[0]["lr"]
    assert rates[SMOKE.few] / rates[SMOKE.population] == pytest.approx((SMOKE.few / SMOKE.population) ** 0.5)
