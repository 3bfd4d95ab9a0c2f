"""Assign chunks to workers, and decide which answers count."""

import time
import warnings
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..errors import FleetError
from ._ray_pace import WorkerPace
from ._ray_pool import WorkerPool
from ._ray_work import Evaluation, Worker
from ._ray_worker import snapshot_of

if TYPE_CHECKING:
    from ._ray_fleet import RayFleet
    from ._strategy import EvolutionStrategy

LOST = {"rerun": "will be evaluated by another worker", "drop": "left out of the update"}


class Dispatcher:
    """Gives chunks to the workers of a fleet, and takes their answers."""

    def __init__(self, fleet: "RayFleet") -> None:
        self.fleet = fleet
        self.pool, self.pace = WorkerPool(), WorkerPace()
        self.deaths = self.hung = 0  # workers that died or hung since the last answer
        self.edition = 0  # counts up for another strategy, after changes by hand, and after an error
        self.snapshot: Any = None  # for workers that join in this generation

    def start_edition(self) -> None:
        """Have every worker receive the strategy again."""
        self.snapshot, self.edition = None, self.edition + 1

    def forget_ended(self, strategy: "EvolutionStrategy") -> None:
        """Begin anew if Ray was shut down since, or if it is another session of Ray."""
        if self.pool.forget_ended():
            self.start_edition()
            self.fleet.events.append(f"generation {strategy.generation}: Ray was shut down; workers start again")

    def close(self) -> None:
        """End the workers."""
        self.pool.close()
        self.snapshot = None

    def resize(self, evaluation: Evaluation) -> None:
        """Start and end workers until there are `fleet.workers`."""
        self.pool.grow(self.fleet.workers, self.fleet.address, self.fleet.cpus, self.fleet.gpus)
        for worker in self.pool.workers[self.fleet.workers :]:
            evaluation.take_back(worker)
            self.pool.remove(worker)

    def _has_joined(self, worker: Worker) -> bool:
        """Return True if the worker was sent this edition of the strategy."""
        return worker.edition == self.edition

    def check_timeout(self) -> None:
        """Raise an error if no worker has started for too long."""
        if not any(map(self._has_joined, self.pool.workers)) and self.pace.has_no_start(self.fleet.timeout):
            fleet = self.fleet
            raise FleetError(
                f"No worker has started within timeout={fleet.timeout:g} s. {fleet.workers} with cpus={fleet.cpus:g}, "
                f"gpus={fleet.gpus:g} are requested; Ray has {self.pool.ray.cluster_resources()}."
            )

    def replace_hung(self, strategy: "EvolutionStrategy", evaluation: Evaluation) -> None:
        """Replace workers that do not answer, such as stopped processes or those of a machine that is cut off.

        The limit doubles when all of them were replaced and none has answered since, in case it was too short.
        """
        fleet = self.fleet
        limit = fleet.timeout * 2 ** (self.hung // fleet.workers)
        for worker in list(self.pool.workers):
            if not self.pace.is_hung(worker, limit) or self.pool.has_answered(worker):
                continue
            self.hung += 1
            self._replace(worker, strategy, evaluation, f"has not answered for {limit:g} s")
            self.pace.heard()  # its successor gets the full time from now on
            if self.hung >= 3 * fleet.workers:
                raise FleetError(
                    f"Generation {strategy.generation}: {self.hung} workers were replaced, and none has answered. Use "
                    "fleet=Local() to see where the fitness waits, or give it more time: "
                    f"RayFleet(timeout={2 * limit:g})."
                )

    def assign(self, strategy: "EvolutionStrategy", evaluation: Evaluation) -> None:
        """Give every idle worker something to do."""
        for worker in self.pool.workers:
            if worker.call is None:
                self._assign(worker, strategy, evaluation)

    def tell(self, generation: int, fitness: Tensor) -> None:
        """Send the fitness of a generation to all workers that have this edition."""
        for worker in self.pool.workers:
            if self._has_joined(worker):
                worker.actor.tell.remote(worker.edition, generation, fitness.numpy())

    def _assign(self, worker: Worker, strategy: "EvolutionStrategy", evaluation: Evaluation) -> None:
        """Send the strategy to a new worker; otherwise chunks from the queue, or those of a slow worker."""
        if not self._has_joined(worker):
            place = "cuda" if self.fleet.gpus else "cpu", max(int(self.fleet.cpus), 1)
            worker.call = worker.actor.join.remote(self.edition, self._sent(strategy), *place)
            worker.edition, worker.since = self.edition, time.monotonic()
            worker.clear()
            self.fleet.events.append(f"generation {strategy.generation}: worker {worker.number} joins")
            return
        chunks = evaluation.take(len(self.pool.workers)) or self._slow_chunks(evaluation)
        if chunks:
            worker.chunks, worker.evaluation, worker.since = chunks, evaluation, time.monotonic()
            edition, generation = evaluation.edition, evaluation.generation
            worker.call = worker.actor.evaluate.remote(edition, generation, chunks, self.fleet.most(strategy))

    def _slow_chunks(self, evaluation: Evaluation) -> list[int]:
        """Return the chunks of a worker that takes too long."""
        for worker in self.pool.workers:
            if worker.call is not None and self.pace.is_slow(worker, self.fleet.patience):
                chunks = evaluation.repeat(worker)
                if chunks:
                    self.fleet.rerun += len(chunks)
                    self.fleet.events.append(
                        f"worker {worker.number} is slow; another worker gets {_count(chunks)} too"
                    )
                    return chunks
        return []

    def receive(self, worker: Worker, strategy: "EvolutionStrategy", evaluation: Evaluation) -> None:
        """Take an answer. Answers and errors count only for the present evaluation."""
        call, worker.call = worker.call, None
        is_late = self._is_late(worker, evaluation)
        dead = self.pool.ray.exceptions
        try:
            answer = self.pool.ray.get(call)
        except (dead.RayActorError, dead.ObjectLostError, dead.NodeDiedError, dead.WorkerCrashedError) as error:
            self.deaths += 1
            self._replace(worker, strategy, evaluation, "died")
            if self.deaths > 2 * self.fleet.workers + 2:
                raise FleetError(
                    f"Generation {strategy.generation}: {self.deaths} workers died one after another, and none "
                    "answered. Use fleet=Local() to see what kills them, or fewer members=… to give each member more "
                    "memory."
                ) from error
            return
        except Exception as error:
            if is_late:
                self._drop_answer(worker, strategy, error)
                return
            if worker.chunks:
                raise  # an error of the fitness itself
            worker.edition = None
            raise FleetError(
                f"Worker {worker.number} cannot make a copy of the strategy: {error}\nThe modules that the model and "
                "the fitness need must be importable on the workers, and CUDA tensors need gpus=1."
            ) from error
        self.pace.heard()
        if not worker.since:
            self.pace.note_start(worker)
        if is_late:
            self._drop_answer(worker, strategy)
            return
        if worker.chunks and evaluation.fits(worker, answer):
            self.deaths = self.hung = 0
            self.pace.note(worker)
            for i, fitness in zip(worker.chunks, answer.fitness, strict=True):
                evaluation.answers.setdefault(i, fitness)
        elif worker.chunks:
            worker.edition = None  # it has another strategy, and receives this one again
            evaluation.take_back(worker)
        worker.clear()

    def _is_late(self, worker: Worker, evaluation: Evaluation) -> bool:
        """Return True if nobody waits for this worker's answer any longer.

        It may be about another edition or another evaluation, or other workers may have answered all of its chunks.
        """
        if worker.chunks:
            return worker.evaluation is not evaluation or all(i in evaluation.answers for i in worker.chunks)
        return worker.edition is not None and not self._has_joined(worker)

    def _drop_answer(self, worker: Worker, strategy: "EvolutionStrategy", error: Exception | None = None) -> None:
        origin = "to an earlier request"
        if worker.evaluation is not None and worker.evaluation.edition == self.edition:
            origin = f"for generation {worker.evaluation.generation}"
        cause = getattr(error, "cause", None) or error  # Ray's error would print the worker's whole traceback
        reason = "" if cause is None else f" ({type(cause).__name__}: {cause})"
        self.fleet.events.append(
            f"generation {strategy.generation}: worker {worker.number} is slow; its answer {origin} is dropped{reason}"
        )
        worker.clear()

    def _replace(self, worker: Worker, strategy: "EvolutionStrategy", evaluation: Evaluation, why: str) -> None:
        """Remove a worker, and queue or drop its chunks. The next `resize` starts another worker."""
        self.pool.remove(worker)
        chunks = evaluation.take_back(worker)
        self.fleet.replaced += 1
        if self.fleet.lost == "drop":
            self.fleet.dropped += len(chunks)
            for i in chunks:
                evaluation.queue.remove(i)
                evaluation.answers[i] = None
        else:
            self.fleet.rerun += len(chunks)
        event = (
            f"generation {strategy.generation}: worker {worker.number} {why}; {_count(chunks)} {LOST[self.fleet.lost]}"
        )
        self.fleet.events.append(event)
        warnings.warn(f"{event}. A new worker is requested.", stacklevel=5)

    def _sent(self, strategy: "EvolutionStrategy") -> Any:
        """Return Ray's reference to a snapshot of the strategy."""
        if self.snapshot is None:
            try:
                self.snapshot = self.pool.ray.put(snapshot_of(strategy))
            except Exception as error:
                raise FleetError(
                    f"The strategy cannot be sent to workers: {error}\nPickle must be able to copy the model, the "
                    "fitness, and the functions given for optimizer, schedule, std and shaping. Open files, locks and "
                    "environments where they are first used."
                ) from error
        return self.snapshot


def _count(chunks: list[int]) -> str:
    return f"{len(chunks)} chunk{'' if len(chunks) == 1 else 's'}"
