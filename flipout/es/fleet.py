"""Who evaluates a generation."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .._arguments import whole_number

if TYPE_CHECKING:
    from .strategy import EvolutionStrategy


class Fleet(ABC):
    """A fleet may keep copies of the strategy elsewhere: seeds and fitness numbers are all that they need to follow."""

    @abstractmethod
    def evaluate(self, strategy: "EvolutionStrategy") -> Tensor:
        """(population,): the fitness of every member of the current generation, in the order of `ask`; NaN where it
        got lost."""

    @abstractmethod
    def follow(self, strategy: "EvolutionStrategy", fitness: Tensor) -> None:
        """The strategy has made its update with this fitness, (members,): whoever has a copy makes the same one."""


class Local(Fleet):
    """This process. At once it evaluates `members`, or as many as have the noise of the largest Parameter in `memory`
    bytes: what the fitness itself takes for its members is not known here, so give `members` where that is much."""

    def __init__(self, members: int | None = None, memory: int = 2**28) -> None:
        self.members = None if members is None else whole_number("members", members, 1, of="Local")
        self.memory = whole_number("memory", memory, 1, of="Local")

    def evaluate(self, strategy: "EvolutionStrategy") -> Tensor:
        return torch.cat([strategy.evaluate(population) for population in strategy.ask(self.most(strategy))])

    def follow(self, strategy: "EvolutionStrategy", fitness: Tensor) -> None:
        pass

    def most(self, strategy: "EvolutionStrategy") -> int:
        """Members at once."""
        if self.members is not None:
            return self.members
        largest = max(parameter.numel() * parameter.itemsize for parameter in strategy.model.parameters())
        return max(self.memory // largest, 1) * (
            1 if strategy.settings.scheme.own_weights else strategy.settings.shared
        )
