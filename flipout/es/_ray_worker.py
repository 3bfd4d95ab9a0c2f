"""The actor that runs in a Ray worker, and the snapshot of a strategy that it receives."""

import os
from typing import Any

import torch
from torch import Tensor

from ._ray_work import Answer, Ticket
from ._strategy import EvolutionStrategy

Snapshot = tuple[dict[str, Any], dict[str, Any]]  # arguments and state of a strategy


class StrategyCopy:
    """Keeps a copy of the strategy in a worker.

    It answers calls in the order in which they were made, and ignores those for another edition of the strategy.
    """

    strategy: EvolutionStrategy
    edition: int | None = None  # None while there is no strategy

    def up(self) -> int:
        """Return the process id, once the actor runs."""
        return os.getpid()

    def join(self, edition: int, snapshot: Snapshot, device: str, threads: int) -> None:
        """Build the strategy from a snapshot."""
        self.edition = None
        arguments, state = snapshot
        torch.set_num_threads(threads)
        arguments["model"].to(device)
        self.strategy = EvolutionStrategy(**arguments)
        self.strategy.load(state)
        self.edition = edition

    def tell(self, edition: int, generation: int, fitness: Any) -> None:
        """Make the update of a generation."""
        if self._is_at(edition, generation):
            self.strategy.tell(fitness.copy())

    def evaluate(self, edition: int, generation: int, chunks: list[int], most: int) -> Answer:
        """Return the fitness of the members of each chunk, or None if the strategy or the generation is another."""
        ticket = Ticket(edition, generation, tuple(chunks))
        if not self._is_at(edition, generation):
            return Answer(ticket, None)
        populations = self.strategy.ask(most)
        return Answer(ticket, [self.strategy.evaluate(populations[i]).tolist() for i in chunks])

    def _is_at(self, edition: int, generation: int) -> bool:
        return self.edition == edition and self.strategy.generation == generation


def snapshot_of(strategy: EvolutionStrategy) -> Snapshot:
    """Return everything that makes the strategy, weights included, on the CPU."""
    arguments = strategy.arguments()
    arguments["model"].to("cpu")
    return arguments, _on_cpu(strategy.state())


def fingerprint(strategy: EvolutionStrategy) -> Any:
    """Return a value that changes if the strategy changes by anything but its own updates."""
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
