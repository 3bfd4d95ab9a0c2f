"""A worker's copy of the strategy answers for its own edition and generation only."""

import pytest
import torch

from flipout.es._ray_work import Answer, Ticket
from flipout.es._ray_worker import StrategyCopy, snapshot_of
from tests.es.toys import strategy


def test_a_copy_serves_the_strategy_and_the_generation_that_it_has() -> None:
    evolution, copy = strategy(), StrategyCopy()
    fitness = torch.arange(24.0).numpy()
    assert copy.evaluate(1, 0, [0], 4) == Answer(Ticket(1, 0, (0,)), None)  # nothing joined
    copy.tell(1, 0, fitness)
    copy.join(1, snapshot_of(evolution), "cpu", 1)
    assert copy.evaluate(2, 0, [0], 4).fitness is None
    assert copy.evaluate(1, 1, [0], 4).fitness is None
    found = copy.evaluate(1, 0, [0, 2], 4)
    assert found.ticket == Ticket(1, 0, (0, 2))
    assert found.fitness is not None
    assert [len(part) for part in found.fitness] == [4, 4]
    copy.tell(2, 0, fitness)  # of another strategy at the same generation
    assert copy.strategy.generation == 0
    copy.tell(1, 0, fitness)
    assert copy.strategy.generation == 1
    with pytest.raises(KeyError, match="model"):
        copy.join(3, ({}, {}), "cpu", 1)
    assert copy.evaluate(1, 1, [0], 4).fitness is None  # what it had counts no more
