"""The fitness is the mean reward of each member's own texts."""

import math
from typing import Any

import pytest
import torch

from flipout import errors
from flipout.es.text import TextReward, exact_match
from tests.es.language import END, PROMPTS, llama, member_model, strategy


class Words:
    """Decodes each token as a word."""

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        return " ".join(f"w{i}" for i in ids if not (skip_special_tokens and i == END))


def share_below_thirty(ids: Any, prompt: int) -> float:
    return sum(i < 30 for i in ids) / len(ids) + prompt


@pytest.mark.parametrize("members", [None, 4])
def test_the_fitness_is_the_mean_reward(members: int | None) -> None:
    fitness = TextReward(PROMPTS, share_below_thirty, 6, members=members)
    (population,) = strategy(llama()).ask()
    written = population.generate(PROMPTS, 6)
    for member, found in enumerate(fitness(population).tolist()):
        rewards = [
            share_below_thirty(written.tokens[member, i, : written.lengths[member, i]].tolist(), i) for i in range(3)
        ]
        assert found == pytest.approx(sum(rewards) / 3)
        assert found == pytest.approx(fitness.evaluate(member_model(population, member)))


def test_fresh_prompts_in_each_generation_and_their_own_index() -> None:
    seen: list[set[int]] = []
    prompts = [[i] for i in range(6, 30)]

    def reward(ids: Any, prompt: int) -> bool:
        seen[-1].add(prompt)
        return ids[0] > 20

    evolution = strategy(llama(), TextReward(prompts, reward, 2, batch=3))
    for _ in range(3):
        seen.append(set())
        evolution.step()
    assert [len(indices) for indices in seen] == [3, 3, 3]
    assert seen[0] != seen[1] != seen[2]


def test_exact_match() -> None:
    (population,) = strategy(llama(), population=2).ask()
    answers = [row[0] for row in zip(*population.generate(PROMPTS, 3).texts(Words()), strict=True)]
    fitness = TextReward(PROMPTS, exact_match([f" {a}\n" for a in answers]), 3, tokenizer=Words())
    first, second = fitness(population).tolist()
    assert first == 1
    assert 0 <= second < 1


def test_a_reward_can_be_climbed() -> None:
    """A strategy raises the share of small tokens."""
    fitness = TextReward(PROMPTS, lambda ids, i: sum(t < 30 for t in ids) / len(ids), 4, eos_token_id=[])
    model = llama(torch.float32)
    evolution = strategy(model, fitness, population=32, std=0.1, antithetic=True)
    for group in evolution.optimizer.param_groups:
        group["lr"] = 0.05
    before = fitness.evaluate(model)
    evolution.run(25)
    assert fitness.evaluate(model) > before + 0.1


@pytest.mark.parametrize(
    ("reward", "said"), [(math.nan, "is nan; expected a finite number"), ("good", "is 'good'; expected one number")]
)
def test_rewards_that_are_no_numbers(reward: Any, said: str) -> None:
    (population,) = strategy(llama()).ask()
    with pytest.raises(errors.InvalidInput, match=said):
        TextReward(PROMPTS, lambda text, i: reward, 2)(population)
    with pytest.raises(errors.InvalidInput, match="expected one number"):
        TextReward(PROMPTS, lambda text, i: torch.ones(2), 2)(population)


def test_bad_arguments() -> None:
    with pytest.raises(errors.InvalidArgument, match="expected a function of a text"):
        TextReward(PROMPTS, 3, 2)  # pyright: ignore[reportArgumentType]
    with pytest.raises(errors.InvalidArgument, match="max_new_tokens=0"):
        TextReward(PROMPTS, exact_match([""] * 3), 0)
    (population,) = strategy(llama()).ask()
    with pytest.raises(errors.InvalidArgument, match="num_beams=2"):
        TextReward(PROMPTS, share_below_thirty, 2, num_beams=2)(population)
