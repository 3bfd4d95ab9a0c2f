"""Networks trained by evolution strategies, and by backpropagation on the same batches."""

import time
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import LinearLR

from flipout.es import EvolutionStrategy, Local, Population

from ..running.experiment import check_least
from ..running.runs import Run
from ..training import networks
from ..training.supervised import Prepared, Supervised, build_network

Shaping = Literal["centered_rank", "z_score", "raw"]
Method = Literal["FlipES", "IdealES", "backprop"]
SCHEMES: dict[str, Any] = {"FlipES": "flipout", "IdealES": "independent"}


@dataclass(frozen=True)
class EsTraining(Supervised):
    """Adam on the estimate; its rate falls linearly to 0.

    All members of an update see the same batch, drawn with replacement. Their fitness is its mean log-likelihood, or
    the share that they get right.
    """

    units: Literal["relu", "binary"] = "relu"
    fitness: Literal["likelihood", "accuracy"] = "likelihood"
    batch: int = 64
    group: int = 40  # members that share one ΔŴ
    std: float = 0.02
    shaping: Shaping = "centered_rank"
    antithetic: bool = True  # members are pairs of a perturbation and its mirror image
    learning_rate: float = 0.01  # for evolution strategies
    backprop_rate: float = 1e-3  # for backpropagation
    updates: int = 300
    members: int = 0  # evaluated together; 0 for the default of Local

    def __post_init__(self) -> None:
        check_least(self, "training.", batch=1, updates=1, members=0)


# For small networks on scikit-learn's digits; the defaults are for MNIST. Both were chosen in a few trials.
DIGITS = EsTraining(data="digits", std=0.05, learning_rate=0.03, backprop_rate=0.01)


class Task:
    """The network of one seed, its data and batches, and its fitness."""

    def __init__(self, config: EsTraining, prepared: Prepared, seed: int, run: Run) -> None:
        self.config, self.flat = config, config.network == "fc"
        torch.manual_seed(run.seed_of(f"network.{seed}"))
        built = build_network(config, prepared, networks.Binary if config.units == "binary" else nn.ReLU)
        # Without its flattening layer, the network multiplies an input that all members share with the mean only once.
        self.model: nn.Module = built[1:] if self.flat else built
        self.x, self.x_test = (x.flatten(1) if self.flat else x for x in (prepared.x, prepared.x_test))
        self.y, self.y_test = prepared.y, prepared.y_test
        shape = (config.updates, config.batch)
        self.batches = torch.randint(len(self.x), shape, generator=run.generator(f"batches.{seed}")).to(self.x.device)

    def fitness(self, population: Population) -> Tensor:
        """Return (size,): the fitness of all members on the same images."""
        chosen = self.batches[population.generation % len(self.batches)]
        x, y = self.x[chosen], self.y[chosen]
        logits = population(x.expand(population.size, *x.shape), batched=not self.flat)
        if self.config.fitness == "accuracy":
            return (logits.argmax(2) == y).float().mean(1)
        return logits.log_softmax(2).gather(2, y.expand(population.size, -1).unsqueeze(2)).mean((1, 2))

    def strategy(self, method: str, samples: int, seed: int, **how: Any) -> EvolutionStrategy:
        """Return a strategy for this network; `how` overrides its arguments."""
        config = self.config
        how = {"group": config.group, "shaping": config.shaping, "fleet": Local(config.members or None), **how}
        return EvolutionStrategy(
            self.model,
            self.fitness,
            population=samples,
            std=config.std,
            antithetic=config.antithetic,
            scheme=SCHEMES[method],
            seed=seed,
            **how,
        )


class EsTrainer:
    """One network by one method. Networks of one seed start equal and see the same batches by every method."""

    def __init__(self, task: Task, method: str, samples: int, seed: int) -> None:
        self.task, self.model, self.at, self.seconds = task, task.model, 0, 0.0
        if method == "backprop":
            self.strategy = None
            self.optimizer = torch.optim.Adam(self.model.parameters(), task.config.backprop_rate)
            self.schedule = self._falling(self.optimizer)
        else:
            rate = task.config.learning_rate
            self.strategy = task.strategy(
                method,
                samples,
                seed,
                optimizer=lambda parameters: torch.optim.Adam(parameters, rate),
                schedule=self._falling,
            )

    def train(self, updates: int) -> None:
        started = time.perf_counter()
        for _ in range(updates):
            if self.strategy is not None:
                self.strategy.step()
            else:
                self._backprop(self.task.batches[self.at % len(self.task.batches)])
            self.at += 1
        if self.task.x.is_cuda:
            torch.cuda.synchronize(self.task.x.device)
        self.seconds += time.perf_counter() - started

    @torch.no_grad()
    def measure(self, probe: int) -> dict[str, float]:
        """Measure the network at the mean weights, on `probe` training examples and on the test set."""
        self.model.eval()
        task = self.task
        x, y = task.x[:probe], task.y[:probe]
        parts = zip(x.split(2000), y.split(2000), strict=True)
        return {
            "loss": sum(float(cross_entropy(self.model(a), b, reduction="sum")) for a, b in parts) / len(x),
            "train_error": 1 - networks.accuracy(self.model, x, y),
            "test_error": 1 - networks.accuracy(self.model, task.x_test, task.y_test),
        }

    def _backprop(self, chosen: Tensor) -> None:
        self.model.train()
        loss = cross_entropy(self.model(self.task.x[chosen]), self.task.y[chosen])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()

    def _falling(self, optimizer: torch.optim.Optimizer) -> LinearLR:
        return LinearLR(optimizer, 1.0, 0.0, self.task.config.updates)
