"""Separate environments stop at the end of their episode, and vectors that cannot be played in are refused."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flipout.errors import InvalidArgument
from flipout.es.rl._environments import SeparateEnvironments, check_environments

gymnasium = pytest.importorskip("gymnasium")


class Counting:
    """Ends after `length` steps. The observation counts them."""

    action_space = observation_space = None

    def __init__(self, length: int) -> None:
        self.length, self.steps, self.is_closed = length, 0, False

    def reset(self, seed: int) -> tuple[np.ndarray, dict]:
        self.steps = 0
        return np.array([float(seed)]), {}

    def step(self, action: float) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        return np.array([float(self.steps)]), action, self.steps == self.length, False, {}

    def close(self) -> None:
        self.is_closed = True


def test_an_environment_that_has_ended_is_not_stepped() -> None:
    environments = [Counting(1), Counting(3)]
    vector = SeparateEnvironments(environments)
    observations, _ = vector.reset(seed=[7, 8])
    assert observations.tolist() == [[7], [8]]
    rewards = [vector.step(np.array([1.0, 2.0]))[1].tolist() for _ in range(3)]
    assert rewards == [[1, 2], [0, 2], [0, 2]]
    assert [environment.steps for environment in environments] == [1, 3]
    vector.close()
    assert all(environment.is_closed for environment in environments)


def test_what_cannot_be_played_in_is_refused() -> None:
    spaces = gymnasium.spaces
    box, choice = spaces.Box(-1, 1, (2,)), spaces.Discrete(3)

    def refused(message: str, noise: float = 0.0, **changes: Any) -> None:
        usual = {"num_envs": 4, "single_observation_space": box, "single_action_space": choice, "metadata": {}}
        with pytest.raises(InvalidArgument, match=message):
            check_environments(SimpleNamespace(**{**usual, **changes}), 4, noise, gymnasium)

    refused("of 3 copies; expected a vector environment of 4", num_envs=3)
    disabled = gymnasium.vector.AutoresetMode.DISABLED
    refused("AutoresetMode.DISABLED", metadata={"autoreset_mode": disabled})
    refused("expected a Box", single_observation_space=choice)
    refused("expected a Box or Discrete", single_action_space=spaces.MultiBinary(2))
    refused("action_noise=0.1 with actions", noise=0.1)
