"""Vector environments with one environment for each member."""

from typing import Any

import numpy as np

from ...errors import InvalidArgument


class SeparateEnvironments:
    """Like a gymnasium vector environment, but environments whose episode has ended are no longer stepped."""

    def __init__(self, environments: list[Any]) -> None:
        self.environments, self.num_envs = environments, len(environments)
        self.single_action_space = environments[0].action_space
        self.single_observation_space = environments[0].observation_space

    def reset(self, *, seed: list[int]) -> tuple[np.ndarray, dict]:
        """Start an episode in each environment."""
        pairs = zip(self.environments, seed, strict=True)
        self.observations = np.stack([environment.reset(seed=number)[0] for environment, number in pairs])
        self.terminated, self.truncated = np.zeros((2, self.num_envs), bool)
        return self.observations.copy(), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        """Step the environments whose episode goes on."""
        rewards = np.zeros(self.num_envs)
        for i in np.flatnonzero(~(self.terminated | self.truncated)):
            outcome = self.environments[i].step(actions[i])
            self.observations[i], rewards[i], self.terminated[i], self.truncated[i], _ = outcome
        return self.observations.copy(), rewards, self.terminated.copy(), self.truncated.copy(), {}

    def close(self) -> None:
        """Close all environments."""
        for environment in self.environments:
            environment.close()


def check_registered(name: str, gymnasium: Any) -> None:
    """Refuse an id that gymnasium does not know. Nothing is made: that may take long, or be left to workers."""
    if ":" in name:  # "module:Name-v0" is registered when gymnasium imports the module
        return
    try:
        gymnasium.spec(name)
    except gymnasium.error.Error as error:
        if any(known.startswith(f"{name}-v") for known in gymnasium.registry):  # the latest version is meant
            return
        raise InvalidArgument(
            f"Episodes({name!r}): {error} gymnasium.pprint_registry() lists the ids; environments of another package "
            "are there once it is imported."
        ) from error


def check_environments(vector: Any, count: int, action_noise: float, gymnasium: Any) -> None:
    """Refuse a vector environment that episodes cannot be played in."""
    spaces, copies = gymnasium.spaces, getattr(vector, "num_envs", None)
    if copies != count:
        raise InvalidArgument(
            f"environment({count}) returned {type(vector).__name__} of {copies} copies; expected a vector environment "
            f"of {count}, such as gymnasium.make_vec(id, {count}, 'sync')."
        )
    if getattr(vector, "metadata", {}).get("autoreset_mode") is gymnasium.vector.AutoresetMode.DISABLED:
        raise InvalidArgument(
            "environment: with AutoresetMode.DISABLED, copies cannot be stepped after one has ended. Use another mode."
        )
    if not isinstance(vector.single_observation_space, spaces.Box):
        raise InvalidArgument(
            f"environment: observations {vector.single_observation_space}; expected a Box. Wrap it: "
            "gymnasium.wrappers.FlattenObservation."
        )
    if not isinstance(vector.single_action_space, (spaces.Box, spaces.Discrete)):
        raise InvalidArgument(
            f"environment: actions {vector.single_action_space}; expected a Box or Discrete. Wrap it: "
            "gymnasium.wrappers.TransformAction."
        )
    if action_noise and not isinstance(vector.single_action_space, spaces.Box):
        raise InvalidArgument(
            f"action_noise={action_noise:g} with actions {vector.single_action_space}: noise is added to numbers. "
            "Leave it out."
        )
