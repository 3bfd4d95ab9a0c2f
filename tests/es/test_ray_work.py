"""Every chunk is with the right number of workers, and none is lost."""

from collections import deque

from flipout.es._ray_work import Evaluation, Worker


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
