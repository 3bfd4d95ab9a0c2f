"""Answers of adapters to questions, and their scores."""

import math

import pytest
import torch

from flipout.experiments.lora.answers import QuestionLearner, scored, scored_together
from flipout.experiments.lora.models import ChoiceScores
from flipout.experiments.lora.questions import batched


@pytest.mark.parametrize("row", ["lora", "flipout"])
def test_answers_are_in_the_order_of_the_questions(config, run, row: str) -> None:
    """They are asked in the order of their lengths."""
    learner = QuestionLearner(config, row, f"{row}.0", run)
    with torch.no_grad():
        for name, parameter in learner.trained.items():
            if "lora_B" in name:
                parameter.normal_()
    learner.model.eval()
    prompts = [[1, *range(5, 5 + length)] for length in (9, 2, 6, 4)]
    data = batched(prompts, [[[20, 21], [30]]] * 4, [0] * 4, "here")
    found = learner.probabilities(data)
    if row == "lora":
        with torch.no_grad():
            expected = torch.cat([ChoiceScores(learner.model)(**data[[n]].inputs()) for n in range(4)]).softmax(1)
        torch.testing.assert_close(found, expected)
    assert found.device.type == "cpu"
    torch.testing.assert_close(found.sum(1), torch.ones(4))


def test_scores() -> None:
    probabilities = torch.tensor([[0.8, 0.2], [0.3, 0.7], [0.4, 0.6]])
    found = scored(probabilities, torch.tensor([0, 1, 0]))
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["nll"] == pytest.approx(-sum(map(math.log, (0.8, 0.7, 0.4))) / 3)
    assert found["auroc"] == 1.0  # the wrong one is the least certain
    assert scored(probabilities, torch.tensor([0, 1, 1]))["auroc"] is None


def test_several_learners_answer_by_the_mean_of_their_probabilities(config, run, monkeypatch) -> None:
    learners = [QuestionLearner(config, "lora", f"lora.{n}", run) for n in range(2)]
    for learner, right in zip(learners, (0.9, 0.3), strict=True):
        monkeypatch.setattr(learner, "probabilities", lambda _, p=right: torch.tensor([[p, 1 - p]]))
    question = batched([[1, 5]], [[[8], [9]]], [0], "here")
    assert scored_together(learners, question)["nll"] == pytest.approx(-math.log(0.6), rel=1e-5)
