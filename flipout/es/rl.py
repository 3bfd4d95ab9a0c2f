"""Policies: the fitness of a member is its return in an environment of its own."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from .._arguments import whole_number
from .._extras import import_extra
from ..errors import InvalidArgument, InvalidInput
from ..nn.eval_mode import in_eval
from .population import Population, seed_of

if TYPE_CHECKING:
    from .strategy import EvolutionStrategy

__all__ = ["Episodes", "Normalizer"]

_FORMED = 2**24  # numbers: of all members' weights, below which they are formed once an episode


class Normalizer(nn.Module):
    """(x − mean) / std of all observations counted so far, within ±5, as Salimans et al. have it.

    The counts are buffers: they are kept and sent with the model. `Episodes` adds to them after each generation.
    """

    LEAST = 1e-2  # of the variance; also the weight of the mean 0 and variance 1 that it starts with
    BOUND = 5.0
    count: Tensor
    total: Tensor
    squares: Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor(self.LEAST, dtype=torch.float64))
        self.register_buffer("total", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("squares", torch.full(shape, self.LEAST, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        mean = self.total / self.count
        std = (self.squares / self.count - mean.square()).clamp_min(self.LEAST).sqrt()
        return ((x - mean) / std).clamp(-self.BOUND, self.BOUND).to(x.dtype)

    @torch.no_grad()
    def add(self, observations: Tensor) -> None:
        """(…, *shape)."""
        seen = observations.detach().to(self.total).reshape(-1, *self.total.shape)
        self.count += len(seen)
        self.total += seen.sum(0)
        self.squares += seen.square().sum(0)


class Episodes:
    """A fitness: the return of each member, the mean over `episodes` of at most `steps` each.

    `environment` is a gymnasium id, made with `options`, or a function that makes a vector environment of n copies.
    Each member has a copy to itself, which starts from a seed of (seed, generation, member, episode): mirror images
    start alike. The model maps observations (members, …) to a number for each action, of which the largest is taken, or
    to the action itself, to which noise of std `action_noise` is added. A `recurrent` one maps (observations, state) to
    (that, state), and starts with None.

    Where the model has a `Normalizer`, the observations of the part `observed` of each generation are added to it, the
    same ones in every process.
    """

    def __init__(
        self,
        environment: str | Callable[[int], Any],
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
        self.environment, self.options = environment, options or {}
        self.episodes, self.steps, self.recurrent = episodes, steps, recurrent
        self.action_noise, self.observed = action_noise, observed
        self._made: dict[int, Any] = {}  # number of copies → environments

    def __call__(self, population: Population) -> Tensor:
        returns = [self.play(population, episode) for episode in range(self.episodes)]
        return torch.from_numpy(np.mean(returns, 0))

    def follow(self, strategy: "EvolutionStrategy") -> None:
        """Count what some members of the next generation will see."""
        normalizers = [module for module in strategy.model.modules() if isinstance(module, Normalizer)]
        try:
            strategy.std  # noqa: B018
        except Exception:  # the schedule of std ends here; should there be a next generation, it will say so itself
            return
        if normalizers and self.observed:
            seen: list[Tensor] = []
            self.play(strategy.ask(max(int(self.observed * strategy.settings.population), 1))[0], 0, seen)
            for normalizer in normalizers:
                normalizer.add(torch.cat(seen))

    def play(self, population: Population, episode: int, seen: list[Tensor] | None = None) -> np.ndarray:
        """(size,): the returns of one episode; `seen` is given the observations of those whose episode lasts."""
        seeds, noise = (self._seeds(population, f"{what} {episode}") for what in ("episode", "action"))
        like = next(iter(population.model.parameters()))
        weights = population.size * sum(parameter.numel() for parameter in population.model.parameters())
        with population.formed() if weights <= _FORMED else nullcontext(population) as policy:
            return self._play(policy, like, seeds, noise, seen)

    @torch.no_grad()
    def returns(self, model: nn.Module, episodes: int, seed: int = 0) -> Tensor:
        """(episodes,): those of the model itself, at its mean weights."""
        episodes = whole_number("episodes", episodes, 1)
        seeds, noise = ([seed_of(seed, i, what) for i in range(episodes)] for what in ("returns", "noise of returns"))
        with in_eval(model):
            return torch.from_numpy(self._play(model, next(iter(model.parameters())), seeds, noise))

    def _play(
        self, policy: Any, like: Tensor, seeds: list[int], noise: list[int], seen: list[Tensor] | None = None
    ) -> np.ndarray:
        copies = self._copies(len(seeds))
        generators = [np.random.default_rng(seed) for seed in noise] if self.action_noise else []
        observations, _ = copies.reset(seed=seeds)
        returns, lasts, state, step = np.zeros(len(seeds)), np.ones(len(seeds), bool), None, 0
        while lasts.any() and step != self.steps:
            x = torch.as_tensor(np.asarray(observations)).to(like)
            if seen is not None:
                seen.append(x[torch.from_numpy(lasts)])
            y, state = policy(x, state) if self.recurrent else (policy(x), None)
            actions = self._actions(copies.single_action_space, y, generators)
            observations, rewards, ended, cut, _ = copies.step(actions)
            returns[lasts] += rewards[lasts]
            lasts, step = lasts & ~(ended | cut), step + 1
        return returns

    def close(self) -> None:
        """Close the environments that were made; the next call makes new ones."""
        for copies in self._made.values():
            copies.close()
        self._made = {}

    def __getstate__(self) -> dict[str, Any]:
        """Environments stay where they were made."""
        return {**self.__dict__, "_made": {}}

    def _seeds(self, population: Population, what: str) -> list[int]:
        members = range(population.first, population.first + population.size)
        return [seed_of(population.seed, population.generation, f"{what} of {member}") for member in members]

    def _copies(self, count: int) -> Any:
        if count not in self._made:
            gymnasium = import_extra("gymnasium", "Episodes", "rl")
            if isinstance(self.environment, str):
                made: Any = Copies([gymnasium.make(self.environment, **self.options) for _ in range(count)])
            else:
                made = self.environment(count, **self.options)
            _check(made, count, self.action_noise, gymnasium)
            self._made[count] = made
        return self._made[count]

    def _actions(self, space: Any, y: Any, generators: "list[np.random.Generator]") -> np.ndarray:
        discrete = hasattr(space, "n")
        shape = (int(space.n),) if discrete else space.shape
        if not isinstance(y, Tensor) or y[:1].numel() != int(np.prod(shape)):
            given = f"shape {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
            raise InvalidInput(
                f"The policy returned {given}; expected (members, {', '.join(map(str, shape))}), for the actions "
                f"{space}. One that returns (that, state) needs Episodes(recurrent=True)."
            )
        if discrete:
            return y.argmax(1).cpu().numpy() + int(space.start)
        actions = y.reshape(-1, *shape).double().cpu().numpy()
        if generators:
            actions = actions + self.action_noise * np.stack([own.standard_normal(shape) for own in generators])
        return actions.clip(space.low, space.high).astype(space.dtype)


class Copies:
    """As a gymnasium vector environment, of which only those are stepped whose episode lasts."""

    def __init__(self, environments: list[Any]) -> None:
        self.environments, self.num_envs = environments, len(environments)
        self.single_action_space = environments[0].action_space
        self.single_observation_space = environments[0].observation_space

    def reset(self, *, seed: list[int]) -> tuple[np.ndarray, dict]:
        pairs = zip(self.environments, seed, strict=True)
        self.observations = np.stack([environment.reset(seed=own)[0] for environment, own in pairs])
        self.ended, self.cut = np.zeros((2, self.num_envs), bool)
        return self.observations.copy(), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        rewards = np.zeros(self.num_envs)
        for i in np.flatnonzero(~(self.ended | self.cut)):
            self.observations[i], rewards[i], self.ended[i], self.cut[i], _ = self.environments[i].step(actions[i])
        return self.observations.copy(), rewards, self.ended.copy(), self.cut.copy(), {}

    def close(self) -> None:
        for environment in self.environments:
            environment.close()


def _check(made: Any, count: int, action_noise: float, gymnasium: Any) -> None:
    spaces, given = gymnasium.spaces, getattr(made, "num_envs", None)
    if given != count:
        raise InvalidArgument(
            f"environment({count}) returned {type(made).__name__} of {given} copies; expected a vector environment of "
            f"{count}, such as gymnasium.make_vec(id, {count}, 'sync')."
        )
    if getattr(made, "metadata", {}).get("autoreset_mode") is gymnasium.vector.AutoresetMode.DISABLED:
        raise InvalidArgument("environment: AutoresetMode.DISABLED cannot step on where some have ended. Use another.")
    if not isinstance(made.single_observation_space, spaces.Box):
        raise InvalidArgument(
            f"environment: observations {made.single_observation_space}; expected a Box. Wrap it: "
            "gymnasium.wrappers.FlattenObservation."
        )
    if not isinstance(made.single_action_space, (spaces.Box, spaces.Discrete)):
        raise InvalidArgument(
            f"environment: actions {made.single_action_space}; expected a Box or Discrete. Wrap it: "
            "gymnasium.wrappers.TransformAction."
        )
    if action_noise and not isinstance(made.single_action_space, spaces.Box):
        raise InvalidArgument(
            f"action_noise={action_noise:g} with actions {made.single_action_space}: noise is added to numbers. Leave "
            "it out."
        )
