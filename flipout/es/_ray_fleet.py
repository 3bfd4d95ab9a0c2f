"""A fleet of Ray workers. Each has a copy of the strategy, which needs only fitness numbers to stay equal."""

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

    The number of workers does not change the result, and `fleet.workers` may be set at any time. A worker that dies or
    hangs is replaced, and a new worker receives the current weights. The members that a lost worker was evaluating are
    evaluated again elsewhere, or, with `lost="drop"`, left out of the update. Chunks that take `patience` times as long
    as usual are given to a second worker, and the first answer counts. Late answers and late errors are dropped.
    `fleet.events` lists all of this, and `fleet.counts()` counts it.

    Args:
        workers: Number of workers.
        address: Address of a Ray cluster. The default is this machine, or the cluster of an earlier `ray.init`.
        cpus: CPU cores of each worker.
        gpus: GPUs of each worker.
        members: Number of members in a chunk. The default is one group, if `memory` has room for it.
        memory: Bytes that the noise of the largest Parameter may take in one chunk.
        lost: What happens to the members of a dead worker: "rerun" or "drop".
        patience: How many times as long as usual a chunk may take before a second worker gets it too.
        timeout: Seconds without an answer after which a worker is replaced; more if chunks, or starting, usually take
            over a tenth of it. The time doubles if all workers were replaced and none has answered since. If that
            happens a third time, or no worker has started by then, `FleetError` is raised.

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
        self.replaced = self.rerun = self.dropped = 0  # workers; chunks given to a second worker; chunks left out
        self._chunks = Local(members, memory)
        self._dispatcher = Dispatcher(self)
        self._fingerprint: Any = None  # identifies the strategy that the workers have; None if they need it again
        self._evaluated: tuple[EvolutionStrategy, int] | None = None  # the last strategy and its generation, until told

    def __repr__(self) -> str:
        return f"RayFleet(workers={self.workers}, cpus={self.cpus:g}, gpus={self.gpus:g}, lost={self.lost!r})"

    def __enter__(self) -> "RayFleet":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def counts(self) -> dict[str, int]:
        """Return the number of workers now, and what went wrong so far.

        Returns:
            "workers" now, "replaced" workers, "rerun" chunks (given to a second worker) and "dropped" chunks.

        Example:
            >>> fleet.counts()["rerun"]
        """
        workers = len(self._dispatcher.pool.workers)
        return {"workers": workers, "replaced": self.replaced, "rerun": self.rerun, "dropped": self.dropped}

    def close(self) -> None:
        """End the workers, and Ray itself if this fleet started it."""
        self._dispatcher.close()
        self._fingerprint, self._evaluated = None, None

    def most(self, strategy: "EvolutionStrategy") -> int:
        """Return the number of members in a chunk.

        Args:
            strategy: The strategy to evaluate.
        """
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
        dispatcher.forget_ended(strategy)
        if self._fingerprint != fingerprint(strategy):
            dispatcher.start_edition()
        self._fingerprint = None  # stays None after an error, so that pending answers no longer count
        sizes = [population.size for population in strategy.ask(self.most(strategy))]
        queue = deque(range(len(sizes)))
        evaluation = Evaluation(queue, dispatcher.edition, strategy.generation, sizes=sizes)
        dispatcher.pace.heard()
        while len(evaluation.answers) < len(sizes):
            dispatcher.resize(evaluation)
            dispatcher.assign(strategy, evaluation)
            for worker in dispatcher.pool.answered(dispatcher.pace.tick):
                dispatcher.receive(worker, strategy, evaluation)
            dispatcher.check_timeout()
            dispatcher.replace_hung(strategy, evaluation)
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
