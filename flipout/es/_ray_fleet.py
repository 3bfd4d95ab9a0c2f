"""A fleet of Ray workers. Each keeps a copy of the strategy, which fitness numbers alone keep equal."""

import math
from collections import deque
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from .._arguments import whole_number as whole_number
from ..errors import InvalidArgument
from ._fleet import Fleet, Local
from ._ray_dispatch import LOST, Dispatcher
from ._ray_work import Evaluation
from ._ray_worker import fingerprint

if TYPE_CHECKING:
    from ._strategy import EvolutionStrategy


class RayFleet(Fleet):
    """Evaluate the population on Ray workers, on this machine or on a cluster.

    The number of workers does not change the result, and `fleet.workers` may be set at any time. A worker that dies is
    replaced, and a new worker receives the current weights. The members that a dead worker was evaluating are evaluated
    again elsewhere, or, with `lost="drop"`, left out of the update. Chunks that take `patience` times as long as usual
    are given to a second worker, and the first answer counts. Late answers and late errors are dropped. `fleet.events`
    lists all of this.

    Args:
        workers: Number of workers.
        address: Address of a Ray cluster. The default is this machine, or the cluster of an earlier `ray.init`.
        cpus: CPU cores of each worker.
        gpus: GPUs of each worker.
        members: Number of members in a chunk. The default is one group, if `memory` has room for it.
        memory: Bytes that the noise of the largest Parameter may take in one chunk.
        lost: What happens to the members of a dead worker: "rerun" or "drop".
        patience: How many times as long as usual a chunk may take before a second worker gets it too.
        timeout: Seconds after which it is an error that no worker has started.

    Raises:
        InvalidArgument: An argument is out of range.
        MissingExtra: Ray is not installed.

    Example:
        >>> with flipout.es.RayFleet(workers=8) as fleet:
        ...     flipout.es.EvolutionStrategy(..., fleet=fleet).run(100)
    """

    def __init__(
        self,
        workers: int,
        *,
        address: str | None = None,
        cpus: float = 1,
        gpus: float = 0,
        members: int | None = None,
        memory: int = 2**28,
        lost: Literal["rerun", "drop"] = "rerun",
        patience: float = 3.0,
        timeout: float = 300.0,
    ) -> None:
        workers = whole_number("workers", workers, 1)
        if lost not in LOST:
            raise InvalidArgument(f"RayFleet(lost={lost!r}): expected 'rerun' or 'drop'.")
        for name, value in {"cpus": cpus, "gpus": gpus, "patience": patience, "timeout": timeout}.items():
            least = 1 if name == "patience" else 0
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not value >= least:
                raise InvalidArgument(f"RayFleet({name}={value!r}): expected a number ≥ {least}.")
        self.workers, self.address, self.cpus, self.gpus = workers, address, cpus, gpus
        self.lost, self.patience, self.timeout = lost, patience, timeout
        self.events: list[str] = []
        self._chunks = Local(members, memory)
        self._dispatcher = Dispatcher(self)
        self._fingerprint: Any = None  # of the strategy that the workers have; None if they need a new edition
        self._evaluated: tuple[EvolutionStrategy, int] | None = None  # the last one and its generation, until told

    def __repr__(self) -> str:
        return f"RayFleet(workers={self.workers}, cpus={self.cpus:g}, gpus={self.gpus:g}, lost={self.lost!r})"

    def __enter__(self) -> "RayFleet":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """End the workers, and Ray itself if this fleet started it."""
        self._dispatcher.close()
        self._fingerprint, self._evaluated = None, None

    def most(self, strategy: "EvolutionStrategy") -> int:
        """Return the number of members in a chunk."""
        most = self._chunks.most(strategy)
        return most if self._chunks.members is not None else min(most, strategy.settings.shared)

    def evaluate(self, strategy: "EvolutionStrategy") -> Tensor:
        """Return the fitness of every member of the current generation, (population,); NaN if it was lost.

        Args:
            strategy: The strategy to evaluate.

        Raises:
            FleetError: No worker starts, all die, or the strategy cannot be sent to them.
            InvalidArgument: The strategy has no fitness.
        """
        if strategy.fitness is None:
            raise InvalidArgument("fitness=None: workers have nothing to evaluate with. Give one, or use ask and tell.")
        dispatcher = self._dispatcher
        if self._fingerprint != fingerprint(strategy):
            dispatcher.start_edition()
        self._fingerprint = None  # stays so after an error: pending answers then count no more
        sizes = [population.size for population in strategy.ask(self.most(strategy))]
        evaluation = Evaluation(deque(range(len(sizes))), dispatcher.edition, strategy.generation)
        dispatcher.pace.heard()
        while len(evaluation.answers) < len(sizes):
            dispatcher.resize(evaluation)
            dispatcher.assign(strategy, evaluation)
            for worker in dispatcher.pool.answered(dispatcher.pace.tick):
                dispatcher.receive(worker, strategy, evaluation)
            dispatcher.check_timeout()
        self._fingerprint, self._evaluated = fingerprint(strategy), (strategy, strategy.generation)
        answers = (evaluation.answers[i] or [math.nan] * size for i, size in enumerate(sizes))
        return torch.tensor([number for chunk in answers for number in chunk], dtype=torch.float64)

    def follow(self, strategy: "EvolutionStrategy", fitness: Tensor) -> None:
        """Send the fitness, (population,), to all workers, which then make the same update.

        Args:
            strategy: The updated strategy.
            fitness: The fitness that it was told, (population,).
        """
        evaluated, self._evaluated = self._evaluated, None
        self._dispatcher.snapshot = None
        if evaluated != (strategy, strategy.generation - 1):
            self._fingerprint = None  # told by hand: the copies may have another strategy, or other weights
            return
        self._dispatcher.tell(strategy.generation - 1, fitness)
        self._fingerprint = fingerprint(strategy)
