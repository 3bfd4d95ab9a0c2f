"""The gradients of the tasks are those of their fitness."""

from pathlib import Path
from typing import Any

import pytest
import torch

from flipout.es import EvolutionStrategy
from flipout.experiments.es.noise.tasks import INPUTS, LINEAR, OUTPUTS, TaskConfig, make_task
from flipout.experiments.running.progress import RunProgress
from flipout.experiments.running.runs import Run

SMALL = TaskConfig(data="digits", text="embedded_characters", hidden=(8,), width=8, batch=4, window=4)


def run_in(folder: Path) -> Run:
    return Run(folder, 0, torch.device("cpu"), RunProgress())


@pytest.mark.parametrize("name", [LINEAR, "fc", "lstm", "transformer"])
def test_the_gradient_is_the_slope_of_the_fitness(name: str, tmp_path: Path) -> None:
    """Move along the gradient: the fitness of a population without noise rises by its square."""
    task = make_task(SMALL, name, run_in(tmp_path))
    gradient = task.gradient()
    square = sum(float(value.square().sum()) for value in gradient.values())
    found: list[float] = []
    for step in (1e-3, -1e-3):
        moved: Any = make_task(SMALL, name, run_in(tmp_path))
        with torch.no_grad():
            for key, parameter in moved.model.named_parameters():
                parameter += step * gradient[key]
        strategy = EvolutionStrategy(
            moved.model, None, population=2, std=1e-9, scheme="rank_one", optimizer=lambda p: torch.optim.SGD(p, 0.0)
        )
        (population,) = strategy.ask()
        found.append(float(moved.fitness(population).mean()))
    assert (found[0] - found[1]) / 2e-3 == pytest.approx(square, rel=0.02)


def test_the_linear_fitness_is_linear(tmp_path: Path) -> None:
    task = make_task(SMALL, LINEAR, run_in(tmp_path))
    assert task.gradient()["weight"].shape == (OUTPUTS, INPUTS)
    torch.testing.assert_close(task.gradient()["weight"], task.y.T)


def test_the_seed_decides_weights_and_batch(tmp_path: Path) -> None:
    first, second = (make_task(SMALL, "lstm", run_in(tmp_path)) for _ in range(2))
    assert torch.equal(first.x, second.x)
    assert all(map(torch.equal, first.model.parameters(), second.model.parameters()))
