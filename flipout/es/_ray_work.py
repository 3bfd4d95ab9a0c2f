"""The work of one evaluation: chunks of the population in a queue, with the workers, and answered."""

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Evaluation:
    """The evaluation of one generation by a fleet. Chunks of the population are numbered in the order of `ask`."""

    queue: deque[int]  # chunks that no worker has
    edition: int = 0  # of the strategy
    generation: int = 0
    copies_out: Counter[int] = field(default_factory=Counter)  # how many workers have each chunk
    answers: dict[int, list[float] | None] = field(default_factory=dict)  # fitness by chunk; None if it was lost

    def take(self, workers: int) -> list[int]:
        """Take chunks from the queue for one of `workers` workers: several while there are many."""
        chunks: list[int] = []
        if self.queue:
            chunks = [self.queue.popleft() for _ in range(max(len(self.queue) // (4 * workers), 1))]
        self.copies_out.update(chunks)
        return chunks

    def take_back(self, worker: "Worker") -> list[int]:
        """Put a worker's unanswered chunks that no other worker has back into the queue, and return them."""
        if worker.evaluation is not self:
            return []
        self.copies_out.subtract(worker.chunks)
        chunks = [i for i in worker.chunks if i not in self.answers and not self.copies_out[i]]
        self.queue.extendleft(reversed(chunks))
        return chunks

    def repeat(self, worker: "Worker") -> list[int]:
        """Return the unanswered chunks that this worker alone has, for a second worker."""
        if worker.evaluation is not self:
            return []
        chunks = [i for i in worker.chunks if i not in self.answers and self.copies_out[i] == 1]
        self.copies_out.update(chunks)
        return chunks


@dataclass(eq=False)
class Worker:
    """A Ray actor and its pending call. A call without chunks starts the actor or sends it the strategy."""

    number: int
    actor: Any
    call: Any
    edition: int | None = None  # of the strategy that was sent to it
    chunks: list[int] = field(default_factory=list)
    evaluation: Evaluation | None = None  # that the chunks belong to
    since: float = 0.0  # when the call was made

    def clear(self) -> None:
        """Forget the chunks."""
        self.chunks, self.evaluation = [], None
