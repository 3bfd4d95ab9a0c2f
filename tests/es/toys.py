"""Small strategies for the tests."""

import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from flipout import es
from tests.networks import mlp

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
Y = X[:, :3].sin()


def network() -> Any:
    torch.manual_seed(0)
    return mlp().double()


def regression(population: es.Population) -> Tensor:
    outputs = population(X.expand(population.size, *X.shape), batched=True)
    return -(outputs - Y).square().mean((1, 2))


def strategy(fitness: Callable[[es.Population], Any] | None = regression, model: Any = None, **how: Any):
    settings = {
        "population": 24,
        "group": 4,
        "std": 0.1,
        "optimizer": lambda parameters: torch.optim.Adam(parameters, 0.05),
        **how,
    }
    return es.EvolutionStrategy(network() if model is None else model, fitness, **settings)


def full() -> es.EvolutionStrategy:
    """A strategy with every kind of state: moments, a schedule, a falling std, mini-batches, decay."""

    def fitness(population: es.Population) -> Tensor:
        rows = torch.randperm(len(X), generator=population.generator())[:3]
        outputs = population(X[rows].expand(population.size, 3, 4), batched=True)
        return -(outputs - Y[rows]).square().mean((1, 2))

    return strategy(
        fitness,
        antithetic=True,
        weight_decay=0.01,
        std=lambda generation: 0.1 * 0.9**generation,
        schedule=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10),
    )


class Still(torch.optim.Optimizer):
    """An optimiser that records the gradients and leaves the weights unchanged."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__(parameters, {})
        self.seen: list[Tensor] = []

    def step(self, closure: Any = None) -> Any:
        self.seen.append(torch.cat([p.grad.flatten() for p in self.param_groups[0]["params"]]))


def slowly(folder: str) -> None:
    """Run until the process is killed."""
    evolution = full()
    assert evolution.fitness is not None
    quick = evolution.fitness

    def slow(population: es.Population) -> Any:
        time.sleep(0.02)
        return quick(population)

    evolution.fitness = slow
    evolution.resume(folder)
    evolution.run(10**6, checkpoint=folder)


if __name__ == "__main__":
    slowly(sys.argv[1])
