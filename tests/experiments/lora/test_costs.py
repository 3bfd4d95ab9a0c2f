"""Costs: rows take turns, and the first step does not count."""

import gc
import weakref

import torch

from flipout.experiments.lora.answers import QuestionLearner
from flipout.experiments.lora.costs import measured_costs
from flipout.experiments.lora.questions import synthetic


def test_every_row_has_its_rounds(config, run) -> None:
    batch = synthetic(4, noise=0.0, unseen=False, generator=torch.Generator().manual_seed(0))
    rows = ("lora", "flipout", "per-token")
    found = measured_costs(rows, lambda row: QuestionLearner(config, row, f"{row}.0", run), batch, 3)
    assert tuple(found) == rows
    assert all(len(cost["seconds"]) == 3 and min(cost["seconds"]) > 0 for cost in found.values())
    assert all(cost["peak"] == [] for cost in found.values())  # on a CPU


def test_memory_is_that_of_one_learner(config, run) -> None:
    """What other learners keep would pull the ratio to 1."""
    batch = synthetic(4, noise=0.0, unseen=False, generator=torch.Generator().manual_seed(0))
    learners: weakref.WeakSet[QuestionLearner] = weakref.WeakSet()

    def make(row: str) -> QuestionLearner:
        learner = QuestionLearner(config, row, f"{row}.0", run)
        learners.add(learner)
        return learner

    class Meter:
        """Counts the learners that exist while one of them is measured."""

        def restart(self) -> None:
            gc.collect()

        def most(self) -> float:
            return len(learners)

    found = measured_costs(("lora", "shared", "flipout"), make, batch, 1, Meter())
    assert [cost["peak"] for cost in found.values()] == [[1.0]] * 3
    assert [len(cost["seconds"]) for cost in found.values()] == [1] * 3
