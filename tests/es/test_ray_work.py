"""Every chunk is with the right number of workers, and none is lost."""

from collections import deque

import pytest

from flipout.es._ray_work import Answer, Evaluation, Ticket, Worker


def test_chunks_that_workers_have() -> None:
    evaluation = Evaluation(deque(range(20)))
    slow, quick = Worker(0, None, None), Worker(1, None, None)
    for worker in (slow, quick):
        worker.chunks, worker.evaluation = evaluation.take(2), evaluation
    assert (slow.chunks, quick.chunks) == ([0, 1], [2, 3])
    evaluation.answers[0] = [1.0]
    assert evaluation.repeat(slow) == [1]
    assert evaluation.repeat(slow) == []  # a second one has it
    assert evaluation.take_back(slow) == []
    assert evaluation.take_back(quick) == [2, 3]
    assert evaluation.queue[0] == 2


@pytest.mark.parametrize(
    ("ticket", "fitness", "fits"),
    [
        (Ticket(2, 5, (0, 1)), [[1.0, 2.0], [3.0]], True),
        (Ticket(1, 5, (0, 1)), [[1.0, 2.0], [3.0]], False),  # another edition
        (Ticket(2, 4, (0, 1)), [[1.0, 2.0], [3.0]], False),  # another generation
        (Ticket(2, 5, (1, 0)), [[3.0], [1.0, 2.0]], False),  # other chunks
        (Ticket(2, 5, (0, 1)), None, False),
        (Ticket(2, 5, (0, 1)), [[1.0, 2.0]], False),  # a chunk is missing
        (Ticket(2, 5, (0, 1)), [[1.0], [3.0]], False),  # a member is missing
    ],
)
def test_an_answer_counts_only_for_its_question(ticket: Ticket, fitness: list[list[float]] | None, fits: bool) -> None:
    evaluation = Evaluation(deque(), edition=2, generation=5, sizes=[2, 1, 2])
    worker = Worker(0, None, None, chunks=[0, 1], evaluation=evaluation)
    assert evaluation.fits(worker, Answer(ticket, fitness)) is fits
