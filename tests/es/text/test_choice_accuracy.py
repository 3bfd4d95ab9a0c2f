"""Choices by likelihood equal a loop over members, questions and choices."""

from typing import Any
from unittest.mock import Mock

import pytest
import torch

from flipout import errors
from flipout.es.text import ChoiceAccuracy
from tests.es.language import llama, member_model, strategy

PROMPTS = [[3, 4, 9], [7, 8], [2], [11, 12, 13, 14], [6, 7, 8], [9]]
CHOICES = [[[20], [21, 22]], [[23, 24, 25], [26], [27]], [[28], [29]], [[30, 31], [32]], [[33], [34], [35]], [[1], [2]]]
ANSWERS = [0, 2, 1, 0, 1, 1]


@torch.no_grad()
def is_right(model: Any, question: int, mean: bool) -> bool:
    scores = []
    for choice in CHOICES[question]:
        ids = torch.tensor([PROMPTS[question] + choice])
        log = model(input_ids=ids).logits.log_softmax(-1)[0]
        first = len(PROMPTS[question])
        total = sum(float(log[first + i - 1, token]) for i, token in enumerate(choice))
        scores.append(total / len(choice) if mean else total)
    return scores.index(max(scores)) == ANSWERS[question]


@pytest.mark.parametrize("members", [None, 4])
@pytest.mark.parametrize("mean", [False, True])
def test_the_loop_over_choices(mean: bool, members: int | None) -> None:
    fitness = ChoiceAccuracy(PROMPTS, CHOICES, ANSWERS, mean=mean, members=members)
    (population,) = strategy(llama(), std=0.2).ask()
    found = fitness(population).tolist()
    for member in range(population.size):
        plain = member_model(population, member)
        expected = sum(is_right(plain, question, mean) for question in range(6)) / 6
        assert found[member] == pytest.approx(expected)
        assert fitness.evaluate(plain, questions=4) == pytest.approx(expected)
    assert len(set(found)) > 1


@pytest.mark.parametrize("at_once", [1, 2**26])
@pytest.mark.parametrize("mean", [False, True])
def test_likelihoods_are_made_at_the_choices_alone(mean: bool, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is that of a softmax at every place, without its memory."""
    monkeypatch.setattr("flipout.es.text._choice_accuracy._NUMBERS", at_once)
    fitness = ChoiceAccuracy(PROMPTS, CHOICES, ANSWERS, mean=mean)
    rows = fitness._rows(range(6), llama())
    logits = torch.randn(50, *rows.ids.shape, 40)
    everywhere = logits[:, :, :-1].log_softmax(-1).gather(-1, rows.ids[:, 1:].expand(50, -1, -1).unsqueeze(-1))
    score = (everywhere.squeeze(-1) * rows.is_choice).sum(-1) / (rows.is_choice.sum(-1) if mean else 1)
    expected = [s.argmax(1) == answer for s, answer in zip(score.split(rows.counts, 1), ANSWERS, strict=True)]
    largest = Mock(wraps=torch.nn.functional.cross_entropy)
    monkeypatch.setattr(torch.nn.functional, "cross_entropy", largest)
    assert torch.equal(fitness._is_right(logits, rows), torch.stack(expected, 1))
    tokens = int(rows.is_choice.sum())
    assert {len(call.args[0]) for call in largest.call_args_list} == {tokens * (1 if at_once == 1 else 50)}


def test_logits_in_front_of_all_choices_are_not_computed() -> None:
    (population,) = strategy(llama()).ask()
    computed = []
    population.model.get_submodule("lm_head").register_forward_hook(lambda _, x, y: computed.append(y.shape[1]))
    ChoiceAccuracy([[3] * 9, [4] * 8], [[[5], [6, 7]], [[8], [9]]], [0, 1])(population)
    assert computed == [4]  # places 7 to 10


def test_fresh_questions_in_each_generation() -> None:
    evolution = strategy(llama(), ChoiceAccuracy(PROMPTS, CHOICES, ANSWERS, batch=2))
    for _ in range(2):
        assert all(number in (0, 0.5, 1) for number in evolution.fleet.evaluate(evolution).tolist())
        evolution.step()


WRONG: dict[str, tuple[tuple[Any, ...], str]] = {
    "other numbers": ((PROMPTS, CHOICES[:2], ANSWERS), "6 prompts, choices for 2 and 6 answers"),
    "no such choice": ((PROMPTS, CHOICES, [2, 0, 0, 0, 0, 0]), "question 0 has 2 choices, and its answer is 2"),
    "an empty choice": ((PROMPTS[:1], [[[1], []]], [0]), "question 0 has an empty prompt"),
    "no question": (([], [], []), "no prompts"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_arguments(name: str) -> None:
    arguments, said = WRONG[name]
    with pytest.raises(errors.InvalidArgument, match=said):
        ChoiceAccuracy(*arguments)


def test_questions_beyond_the_context_and_broken_weights() -> None:
    (population,) = strategy(llama()).ask()
    with pytest.raises(errors.InvalidInput, match=r"has 33 tokens, but the context .* has 32"):
        ChoiceAccuracy([[3] * 32], [[[1], [2]]], [0])(population)
    population.model.get_parameter("model.norm.weight").data.fill_(torch.nan)
    with pytest.raises(errors.InvalidInput, match="not finite"):
        ChoiceAccuracy(PROMPTS, CHOICES, ANSWERS)(population)
