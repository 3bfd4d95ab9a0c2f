"""Returns of episodes as a fitness."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ..._arguments import whole_number as whole_number
from ..._extras import import_extra as import_extra
from ...errors import InvalidArgument, InvalidInput
from ...nn.eval_mode import in_eval
from .._population import Population
from .._seeds import seed_of
from ._environments import SeparateEnvironments, check_environments, check_registered
from ._normalizer import Normalizer

if TYPE_CHECKING:
    from .._strategy import EvolutionStrategy

_FORMED = 2**24  # members × weights, up to which the members' weights are formed once per episode


class Episodes:
    """A fitness: the mean return of each member over some episodes.

    Each member plays in its own environment, which starts from a seed of (seed, generation, member, episode); mirror
    images start alike. For discrete actions the policy returns one number per action, and the largest wins. For
    continuous ones it returns the action.

    If the model has a `Normalizer`, the first members of each generation play one more episode, whose observations are
    added to it. Every process adds the same ones.

    Args:
        environment: A gymnasium id, or a function from n to a vector environment of n copies.
        episodes: Number of episodes per member.
        steps: Largest number of steps in an episode. None for no limit.
        action_noise: Standard deviation of the noise added to continuous actions.
        recurrent: Whether the policy maps (observations, state) to (actions, state). The first state is None.
        observed: Share of the members whose observations are added to a `Normalizer`.
        options: Keyword arguments of `gymnasium.make`, or of the function.

    Raises:
        InvalidArgument: An argument is out of range, or gymnasium knows no environment of this id.
        MissingExtra: gymnasium is not installed.

    Example:
        >>> fitness = flipout.es.rl.Episodes("CartPole-v1", steps=200)
        >>> strategy = flipout.es.EvolutionStrategy(policy, fitness, ...)
    """

    def __init__(
        self,
        environment: str | Callable[..., Any],
        *,
        episodes: int = 1,
        steps: int | None = None,
        action_noise: float = 0.0,
        recurrent: bool = False,
        observed: float = 0.01,
        options: dict[str, Any] | None = None,
    ) -> None:
        episodes = whole_number("episodes", episodes, 1)
        steps = None if steps is None else whole_number("steps", steps, 1)
        for name, value, most in (("action_noise", action_noise, np.inf), ("observed", observed, 1)):
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= most:
                raise InvalidArgument(f"Episodes({name}={value!r}): expected a number from 0 to {most}.")
        if isinstance(environment, str):
            check_registered(environment, import_extra("gymnasium", "Episodes", "rl"))
        self.environment, self.options = environment, options or {}
        self.episodes, self.steps, self.recurrent = episodes, steps, recurrent
        self.action_noise, self.observed = action_noise, observed
        self._vectors: dict[int, Any] = {}  # number of copies → vector environment

    def __repr__(self) -> str:
        environment = self.environment if isinstance(self.environment, str) else "a function"
        return f"Episodes({environment!r}, episodes={self.episodes}, steps={self.steps})"

    def __call__(self, population: Population) -> Tensor:
        """Return the mean return of each member, (population.size,)."""
        returns = [self.play(population, episode) for episode in range(self.episodes)]
        return torch.from_numpy(np.mean(returns, 0))

    def follow(self, strategy: "EvolutionStrategy") -> None:
        """Let some members of the next generation play, and add what they observe to the model's normalizers.

        The strategy calls this after each update.

        Args:
            strategy: The updated strategy.
        """
        normalizers = [module for module in strategy.model.modules() if isinstance(module, Normalizer)]
        try:
            strategy.std  # noqa: B018
        except Exception:  # the schedule of std ends here; the next generation, if there is one, raises the error
            return
        if normalizers and self.observed:
            seen: list[Tensor] = []
            self.play(strategy.ask(max(int(self.observed * strategy.settings.population), 1))[0], 0, seen)
            for normalizer in normalizers:
                normalizer.add(torch.cat(seen))

    def play(self, population: Population, episode: int, seen: list[Tensor] | None = None) -> np.ndarray:
        """Play one episode with each member.

        Args:
            population: The members.
            episode: Index of the episode, which chooses its seeds.
            seen: A list to add observations to, of the members whose episode goes on: (members, …) for each step.

        Returns:
            The return of each member, (population.size,).

        Example:
            >>> fitness.play(strategy.ask()[0], episode=0)
        """
        seeds, noise = (self._seeds(population, f"{purpose} {episode}") for purpose in ("episode", "action"))
        like = next(iter(population.model.parameters()))
        weights = population.size * sum(parameter.numel() for parameter in population.model.parameters())
        with population.formed() if weights <= _FORMED else nullcontext(population) as policy:
            return self._play(policy, like, seeds, noise, seen)

    @torch.no_grad()
    def returns(self, model: nn.Module, episodes: int, seed: int = 0) -> Tensor:
        """Play episodes with the mean weights.

        Args:
            model: The policy.
            episodes: Number of episodes.
            seed: Seed of the environments, independent of the training's.

        Returns:
            The return of each episode, (episodes,).

        Raises:
            InvalidArgument: `episodes` is no whole number ≥ 1.

        Example:
            >>> fitness.returns(policy, 100).mean()
        """
        episodes = whole_number("episodes", episodes, 1)
        seeds, noise = ([seed_of(seed, i, what) for i in range(episodes)] for what in ("returns", "noise of returns"))
        with in_eval(model):
            return torch.from_numpy(self._play(model, next(iter(model.parameters())), seeds, noise))

    def close(self) -> None:
        """Close the environments. The next call makes new ones."""
        for vector in self._vectors.values():
            vector.close()
        self._vectors = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave the environments out, which stay in the process that made them."""
        return {**self.__dict__, "_vectors": {}}

    def _play(
        self, policy: Any, like: Tensor, seeds: list[int], noise: list[int], seen: list[Tensor] | None = None
    ) -> np.ndarray:
        """Play one episode for each seed; inputs of the policy have the device and dtype of `like`."""
        vector = self._vector(len(seeds))
        generators = [np.random.default_rng(seed) for seed in noise] if self.action_noise else []
        observations, _ = vector.reset(seed=seeds)
        returns, is_running, state, step = np.zeros(len(seeds)), np.ones(len(seeds), bool), None, 0
        while is_running.any() and step != self.steps:
            x = torch.as_tensor(np.asarray(observations)).to(like)
            if seen is not None:
                seen.append(x[torch.from_numpy(is_running)])
            y, state = policy(x, state) if self.recurrent else (policy(x), None)
            actions = self._actions(vector.single_action_space, y, generators)
            observations, rewards, terminated, truncated, _ = vector.step(actions)
            returns[is_running] += rewards[is_running]
            is_running, step = is_running & ~(terminated | truncated), step + 1
        return returns

    def _seeds(self, population: Population, purpose: str) -> list[int]:
        members = range(population.first, population.first + population.size)
        return [seed_of(population.seed, population.generation, f"{purpose} of {member}") for member in members]

    def _vector(self, count: int) -> Any:
        """Return a vector environment of `count` copies, made by the first call."""
        if count not in self._vectors:
            gymnasium = import_extra("gymnasium", "Episodes", "rl")
            if isinstance(self.environment, str):
                copies = [gymnasium.make(self.environment, **self.options) for _ in range(count)]
                vector: Any = SeparateEnvironments(copies)
            else:
                vector = self.environment(count, **self.options)
            check_environments(vector, count, self.action_noise, gymnasium)
            self._vectors[count] = vector
        return self._vectors[count]

    def _actions(self, space: Any, y: Any, generators: "list[np.random.Generator]") -> np.ndarray:
        """Turn the policy's outputs into actions."""
        is_discrete = hasattr(space, "n")
        shape = (int(space.n),) if is_discrete else space.shape
        if not isinstance(y, Tensor) or y[:1].numel() != int(np.prod(shape)):
            output = f"shape {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
            raise InvalidInput(
                f"The policy returned {output}; expected (members, {', '.join(map(str, shape))}), for the actions "
                f"{space}. A policy that returns (actions, state) needs Episodes(recurrent=True)."
            )
        if is_discrete:
            return y.argmax(1).cpu().numpy() + int(space.start)
        actions = y.reshape(-1, *shape).double().cpu().numpy()
        if generators:
            noise = np.stack([generator.standard_normal(shape) for generator in generators])
            actions = actions + self.action_noise * noise
        return actions.clip(space.low, space.high).astype(space.dtype)
