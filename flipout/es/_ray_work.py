"""The work of one evaluation: chunks of the population that are queued, assigned to workers, or answered."""

import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Ticket(NamedTuple):
    """What a worker was asked to evaluate."""

    edition: int  # of the strategy
    generation: int
    chunks: tuple[int, ...]


class Answer(NamedTuple):
    """What a worker sends back. It counts only for the question that it carries."""

    ticket: Ticket
    fitness: list[list[float]] | None  # of each chunk; None if the worker has another edition or generation


@dataclass(eq=False)
class Evaluation:
    """The evaluation of one generation by a fleet. Chunks of the population are numbered in the order of `ask`."""

    queue: deque[int]  # chunks that no worker has
    edition: int = 0  # of the strategy
    generation: int = 0
    copies_out: Counter[int] = field(default_factory=Counter)  # how many workers have each chunk
    answers: dict[int, list[float] | None] = field(default_factory=dict)  # fitness by chunk; None if it was lost
    sizes: Sequence[int] = ()  # members of each chunk

    def fits(self, worker: "Worker", answer: Answer) -> bool:
        """Return True if an answer is about what the worker was asked, with a number for each member."""
        if answer.ticket != Ticket(self.edition, self.generation, tuple(worker.chunks)) or answer.fitness is None:
            return False
        return [len(chunk) for chunk in answer.fitness] == [self.sizes[i] for i in worker.chunks]

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
    since: float = 0.0  # when the call was made; 0 if it is the one that starts the actor
    hired: float = field(default_factory=time.monotonic)

    def clear(self) -> None:
        """Forget the chunks."""
        self.chunks, self.evaluation = [], None
