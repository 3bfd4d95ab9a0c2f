"""One training: as many steps as its time allows, and the held-out accuracy along the way."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import flipout
from flipout.es import EvolutionStrategy, Local

from ...lora.models import adapted
from ...running.runs import Run
from ...training.supervised import isolated_randomness
from .settings import LlmConfig, Method, TaskName
from .tasks import LlmTask, make_task


@dataclass(frozen=True)
class AccuracyCurve:
    """Held-out accuracy against the seconds of training."""

    seconds: list[float]
    accuracy: list[float]
    steps: int
    rate: float | None  # members × tokens per second

    @property
    def at_the_end(self) -> float:
        return self.accuracy[-1]

    @property
    def gain(self) -> float:
        return self.accuracy[-1] - self.accuracy[0]


def train(config: LlmConfig, name: TaskName, method: Method, seed: int, run: Run) -> dict[str, Any]:
    """Train by one method, and return a curve."""
    with isolated_randomness(run):
        torch.manual_seed(run.seed_of(f"{name}.{method}.{seed}") % 2**63)
        task = make_task(config, name, run)
        model, step = _learner(config, task, method, run.seed_of(f"noise.{name}.{method}.{seed}") % 2**62, run)
        seconds, accuracy, spent, steps = [0.0], [task.accuracy(model)], 0.0, 0
        while spent < config.seconds and steps < config.steps:
            begin = time.perf_counter()
            step()
            wait_for(run.device)
            spent, steps = spent + time.perf_counter() - begin, steps + 1
            is_over = spent >= config.seconds or steps == config.steps
            if is_over or spent >= config.seconds * len(seconds) / config.points:
                seconds.append(spent)
                accuracy.append(task.accuracy(model))
                run.log(steps, seconds=spent, accuracy=accuracy[-1])
    members = config.few if method == "one_by_one" else config.population
    rate = None if method == "lora" else steps * members * task.tokens / spent
    return {"seconds": seconds, "accuracy": accuracy, "steps": steps, "rate": rate}


def strategy(config: LlmConfig, task: LlmTask, method: Method, seed: int) -> EvolutionStrategy:
    """Return the evolution strategy of a method.

    The estimate of N members is off by about 1/√N, so few members take steps that are shorter by that much.
    """
    is_single = method == "one_by_one"
    scheme: Any = {"rank_one": "rank_one", "low_rank": flipout.LowRank(1), "one_by_one": "independent"}[method]
    population = config.few if is_single else config.population
    rate = config.learning_rate * config.std * math.sqrt(population / config.population)
    return EvolutionStrategy(
        task.model,
        task.fitness,
        population=population,
        group=1 if is_single else population,
        std=config.std,
        scheme=scheme,
        optimizer=lambda parameters: torch.optim.SGD(parameters, rate),
        shaping="z_score",
        fleet=Local(members=1 if is_single else population),
        seed=seed,
    )


def _learner(config: LlmConfig, task: LlmTask, method: Method, seed: int, run: Run) -> tuple[Any, Callable[[], object]]:
    """Return the model that is tested, and what makes one step of its training."""
    if method != "lora":
        evolution = strategy(config, task, method, seed)
        return evolution.model, evolution.step
    questions = task.questions
    assert questions is not None
    model = adapted(task.model, config.rank, 0.0, seed % 2**31)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, config.lora_rate, weight_decay=0.0)
    generator = torch.Generator().manual_seed(seed)

    def step() -> None:
        rows = torch.randint(len(questions), (config.batch,), generator=generator)
        model(**questions[rows].right(run.device)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, step


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
