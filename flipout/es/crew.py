"""The workers of a fleet: what is sent to them, what they do with it, what they are at."""

import os
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .strategy import EvolutionStrategy


@dataclass(eq=False)
class Work:
    """One evaluation of a generation: parts to be given away, how often each is out, and what came of them; None was
    lost."""

    queue: deque[int]
    edition: int = 0  # of the strategy
    generation: int = 0
    out: Counter[int] = field(default_factory=Counter)
    made: dict[int, list[float] | None] = field(default_factory=dict)

    def take(self, share: int) -> list[int]:
        """Parts for one of `share` workers: several while there are many."""
        parts = [self.queue.popleft() for _ in range(max(len(self.queue) // (4 * share), 1))] if self.queue else []
        self.out.update(parts)
        return parts

    def take_back(self, worker: "Worker") -> list[int]:
        """The parts that nobody else has."""
        if worker.work is not self:
            return []
        self.out.subtract(worker.parts)
        parts = [i for i in worker.parts if i not in self.made and not self.out[i]]
        self.queue.extendleft(reversed(parts))
        return parts

    def repeat(self, worker: "Worker") -> list[int]:
        """The parts that this worker alone still has, for a second one."""
        parts = [i for i in worker.parts if i not in self.made and self.out[i] == 1] if worker.work is self else []
        self.out.update(parts)
        return parts


@dataclass(eq=False)
class Worker:
    """An actor, the call that it is at, and what that asks: a call without parts is to come up, or to join."""

    number: int
    actor: Any
    call: Any
    edition: int | None = None  # of the strategy that it has a copy of, or is sent one
    parts: list[int] = field(default_factory=list)
    work: Work | None = None
    since: float = 0.0


class Copy:
    """What an actor is. It answers calls in the order in which they were made, and none that are about another
    edition of the strategy than it has."""

    strategy: EvolutionStrategy
    edition: int | None = None  # None: no strategy

    def up(self) -> int:
        return os.getpid()

    def join(self, edition: int, ticket: tuple[dict[str, Any], dict[str, Any]], device: str, threads: int) -> None:
        self.edition = None
        arguments, state = ticket
        torch.set_num_threads(threads)
        arguments["model"].to(device)
        self.strategy = EvolutionStrategy(**arguments)
        self.strategy.load(state)
        self.edition = edition

    def tell(self, edition: int, generation: int, fitness: Any) -> None:
        if self._is_at(edition, generation):
            self.strategy.tell(fitness.copy())

    def evaluate(self, edition: int, generation: int, parts: list[int], most: int) -> list[list[float]] | None:
        """None where the strategy is another one, or an update was missed."""
        if not self._is_at(edition, generation):
            return None
        populations = self.strategy.ask(most)
        return [self.strategy.evaluate(populations[i]).tolist() for i in parts]

    def _is_at(self, edition: int, generation: int) -> bool:
        return self.edition == edition and self.strategy.generation == generation


def ticket(strategy: EvolutionStrategy) -> tuple[dict[str, Any], dict[str, Any]]:
    """All that makes a strategy, its weights among it."""
    arguments = strategy.arguments()
    arguments["model"].to("cpu")
    return arguments, _on_cpu(strategy.state())


def stamp(strategy: EvolutionStrategy) -> Any:
    """Differs once the strategy, its weights or learning rates were changed by anything but its own updates."""
    groups = strategy.optimizer.param_groups
    rates = [{key: value for key, value in group.items() if key != "params"} for group in groups]
    weights = [(id(parameter), parameter._version) for parameter in strategy.model.parameters()]
    return strategy, id(strategy.fitness), strategy.generation, repr(rates), weights


def _on_cpu(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.cpu()
    if isinstance(value, dict):
        return {key: _on_cpu(part) for key, part in value.items()}
    return type(value)(_on_cpu(part) for part in value) if isinstance(value, (list, tuple)) else value
