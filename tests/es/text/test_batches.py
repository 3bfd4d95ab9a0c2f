"""Prompts are common to all members, and fresh in each generation."""

import pytest
import torch

from flipout import errors
from flipout.es.text._batches import checked_batch, checked_members, chunks, drawn_prompts
from tests.es.toys import strategy


def test_all_members_have_the_same_prompts_and_generations_have_others() -> None:
    evolution, seen = strategy(None, antithetic=True), []
    for _ in range(4):
        drawn = {tuple(drawn_prompts(part, 50, 5)) for part in evolution.ask(5)}
        assert len(drawn) == 1
        seen.append(drawn.pop())
        evolution.tell(torch.arange(24.0))
    assert len(set(seen)) == 4
    assert all(len(set(prompts)) == 5 for prompts in seen)


def test_all_prompts_are_taken_in_order() -> None:
    (population,) = strategy(None).ask()
    assert drawn_prompts(population, 4, checked_batch(None, 4, "Test")) == [0, 1, 2, 3]


def test_chunks_are_the_whole_population() -> None:
    (population,) = strategy(None).ask()
    assert [(part.first, part.size) for part in chunks(population, 10)] == [(0, 10), (10, 10), (20, 4)]
    assert [part.size for part in chunks(population, None)] == [24]


def test_bad_numbers() -> None:
    with pytest.raises(errors.InvalidArgument, match=r"Test\(batch=5\): there are 4 prompts"):
        checked_batch(5, 4, "Test")
    with pytest.raises(errors.InvalidArgument, match="no prompts"):
        checked_batch(None, 0, "Test")
    with pytest.raises(errors.InvalidArgument, match="members=0"):
        checked_members(0, "Test")
