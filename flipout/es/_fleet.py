"""Fleets: who evaluates a generation."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .._arguments import whole_number as whole_number
from ..schemes import RankOne

if TYPE_CHECKING:
    from ._strategy import EvolutionStrategy


class Fleet(ABC):
    """Base class for evaluators of a generation.

    A fleet may keep copies of the strategy elsewhere. Such a copy needs only seeds and fitness numbers to stay equal.

    Example:
        >>> class InChunks(flipout.es.Fleet):
        ...     def evaluate(self, strategy):
        ...         return torch.cat([strategy.evaluate(part) for part in strategy.ask(40)])
        ...     def follow(self, strategy, fitness):
        ...         pass
    """

    @abstractmethod
    def evaluate(self, strategy: "EvolutionStrategy") -> Tensor:
        """Return the fitness of every member of the current generation.

        Args:
            strategy: The strategy to evaluate. `strategy.ask()` has its members, `strategy.evaluate` their fitness.

        Returns:
            (population,) in the order of `strategy.ask()`; NaN for a member whose fitness was lost.
        """

    @abstractmethod
    def follow(self, strategy: "EvolutionStrategy", fitness: Tensor) -> None:
        """Bring all copies of the strategy up to date.

        It is called after the strategy itself was updated. A copy makes the same update with `copy.tell(fitness)`.

        Args:
            strategy: The updated strategy.
            fitness: The fitness that it was told, (population,).
        """


class Local(Fleet):
    """Evaluate the population in this process, one chunk of members after another.

    Args:
        members: Number of members to evaluate at once. The default is chosen by `memory`.
        memory: Bytes that the noise of the largest Parameter may take in one chunk. The memory that the fitness
            itself needs is unknown here; if it is large, set `members`.

    Raises:
        InvalidArgument: `members` or `memory` is no whole number ≥ 1.

    Example:
        >>> flipout.es.EvolutionStrategy(..., fleet=flipout.es.Local(members=200))
    """

    def __init__(self, members: int | None = None, memory: int = 2**28) -> None:
        self.members = None if members is None else whole_number("members", members, 1, of="Local")
        self.memory = whole_number("memory", memory, 1, of="Local")

    def __repr__(self) -> str:
        return f"Local(memory={self.memory})" if self.members is None else f"Local(members={self.members})"

    def evaluate(self, strategy: "EvolutionStrategy") -> Tensor:
        """Return the fitness of every member of the current generation, (population,)."""
        return torch.cat([strategy.evaluate(population) for population in strategy.ask(self.most(strategy))])

    def follow(self, strategy: "EvolutionStrategy", fitness: Tensor) -> None:
        """Do nothing: there are no copies. `fitness` is (population,)."""

    def most(self, strategy: "EvolutionStrategy") -> int:
        """Return the number of members to evaluate at once.

        Args:
            strategy: The strategy to evaluate.
        """
        if self.members is not None:
            return self.members
        settings, parameters = strategy.settings, list(strategy.model.parameters())
        if isinstance(settings.scheme, RankOne):  # a member has a sign for each row and each column
            signs = max((p.shape[0] + p[0].numel()) * p.itemsize for p in parameters if p.dim() and p.numel())
            return max(self.memory // signs, 1)
        largest = max(parameter.numel() * parameter.itemsize for parameter in parameters)
        return max(self.memory // largest, 1) * (1 if settings.scheme.own_weights else settings.shared)
