"""Policies trained by evolution strategies: CartPole, and a task of MuJoCo."""

import math
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise, product
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from flipout.errors import InvalidArgument
from flipout.es import EvolutionStrategy, Local, RayFleet, rl

from ...extras import import_extra
from ...running.experiment import Config, Outcome, check_least
from ...running.runs import Run
from ...training.supervised import isolated_randomness
from .. import claims
from ..estimates import Gathered, gathered, mean_direction, of_strategy
from ..fleets import fleet_metrics
from ..training import SCHEMES
from .claims import FIGURE, Returns, at_the_end, learned, no_loss, numbers
from .figures import returns_figure


@dataclass(frozen=True)
class RlConfig(Config):
    """A policy with tanh units on normalised observations. The fitness of a member is the return of one episode.

    FlipES and IdealES are always compared. `rank_one`, rank-one flips, may be trained beside them.
    A run may be resumed with more seeds, or with other workers, which change no noise.
    """

    choices: ClassVar[tuple[str, ...]] = ("seeds", "workers")

    environment: str = "CartPole-v1"
    bar: float = 475.0  # mean return to reach at the mean weights
    hidden: tuple[int, ...] = (32,)
    methods: tuple[Literal["FlipES", "IdealES", "rank_one"], ...] = ("FlipES", "IdealES")
    population: int = 80
    group: int = 40
    std: float = 0.1
    learning_rate: float = 0.05
    generations: int = 40
    seeds: int = 3
    evaluated: int = 100  # episodes at the end
    draws: int = 40  # estimates by each method at one policy
    drawn_steps: int = 50  # length of episodes for the estimates
    workers: int = 0  # of Ray; 0: this process only

    def __post_init__(self) -> None:
        check_least(self, seeds=2, evaluated=2, draws=10, generations=1, workers=0)
        both = set(SCHEMES) <= set(self.methods)
        if not both or len(set(self.methods)) < len(self.methods) or set(self.methods) - {*SCHEMES, "rank_one"}:
            raise InvalidArgument(
                f"methods={self.methods}: the claims compare FlipES and IdealES; give both, once, and rank_one if it "
                "is to be trained too."
            )

    @property
    def trained(self) -> list[tuple[int, str]]:
        return list(product(range(self.seeds), self.methods))


def work(config: RlConfig, run: Run) -> Outcome:
    found = {method: run.piece(f"estimates.{method}", lambda m=method: _drawn(config, m, run)) for method in SCHEMES}
    curves = [
        Returns(**run.piece(f"{method}.{seed}", lambda m=method, s=seed: _train(config, m, s, run)))
        for seed, method in run.progress.track(config.trained, "train")
    ]
    checks = [*(learned(curves, m, config.bar) for m in config.methods), *no_loss(curves)]
    if "rank_one" in config.methods:
        checks += no_loss(curves, "rank_one")
    theory = claims.same_gradient(found, " of the policy")
    return Outcome(_setting(config), numbers(curves), {}, (theory, *checks))


def draw(config: RlConfig, run: Run) -> None:
    curves = [_finished(run, method, seed) for seed, method in config.trained]
    run.draw(
        FIGURE,
        "The mean return of a population, generation by generation: the mean over the seeds, and bands from the "
        f"lowest to the highest. Dots: {config.evaluated} episodes at the mean weights at the end, for each seed.",
        returns_figure(curves, config.bar),
    )


def _finished(run: Run, method: str, seed: int) -> Returns:
    """Return a finished policy: from its piece or, in a folder without it, from the metrics and the result."""
    name = f"{method}.{seed}"
    if run.has_piece(name):
        return Returns(**run.read_piece(name))
    lines = run.metrics_of(name)
    ends = str(run.measured()[at_the_end(method)]).split(", ")
    iterations, mean = ([line[column] for line in lines] for column in ("step", "mean"))
    return Returns(method, seed, iterations, mean, [float(ends[seed])], math.nan)


def _policy(config: RlConfig, seed: int, run: Run) -> nn.Sequential:
    environment = import_extra("gymnasium", "es-rl", "rl").make(config.environment)
    (inputs,), actions = environment.observation_space.shape, environment.action_space  # pyright: ignore
    environment.close()
    outputs = int(getattr(actions, "n", 0)) or actions.shape[0]  # pyright: ignore
    torch.manual_seed(run.seed_of(f"policy.{seed}"))
    layers: list[nn.Module] = [rl.Normalizer(inputs)]
    for width, following in pairwise((inputs, *config.hidden, outputs)):
        layers += [nn.Linear(width, following), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def _strategy(config: RlConfig, policy: nn.Module, method: str, seed: int, **how: Any) -> EvolutionStrategy:
    return EvolutionStrategy(
        policy,
        population=config.population,
        group=config.group,
        std=config.std,
        antithetic=True,
        scheme=SCHEMES.get(method, method),
        seed=seed,
        **how,
    )


def _train(config: RlConfig, method: str, seed: int, run: Run) -> dict[str, Any]:
    episodes = rl.Episodes(config.environment)
    with isolated_randomness(run), ExitStack() as stack:
        stack.callback(episodes.close)
        strategy = _strategy(
            config,
            _policy(config, seed, run),
            method,
            run.seed_of(f"noise.{method}.{seed}"),
            fitness=episodes,
            optimizer=lambda parameters: torch.optim.Adam(parameters, config.learning_rate),
            fleet=stack.enter_context(RayFleet(config.workers)) if config.workers else Local(config.population // 2),
        )
        for _ in run.progress.track(range(config.generations), f"{method}, seed {seed}"):
            generation = strategy.step()
            fitness = {"mean": generation.fitness_mean, "best": generation.fitness_max}
            run.log(generation.generation + 1, **fitness, **fleet_metrics(strategy.fleet, generation))
        final = episodes.returns(strategy.model, config.evaluated, run.seed_of(f"evaluation.{seed}")).tolist()
    history = strategy.history
    curve = Returns(
        method=method,
        seed=seed,
        iterations=[record.generation + 1 for record in history],
        mean=[record.fitness_mean for record in history],
        final=final,
        seconds=sum(record.seconds for record in history),
    )
    return asdict(curve)


def _drawn(config: RlConfig, method: str, run: Run) -> Gathered:
    """Return estimates of one gradient, at the initial policy of the first seed."""

    def estimates(by: str, what: str, draws: int):
        episodes, seed = rl.Episodes(config.environment, steps=config.drawn_steps, observed=0), f"{what}.{by}"
        yield from of_strategy(
            lambda **how: _strategy(config, _policy(config, 0, run), by, run.seed_of(seed), fitness=episodes, **how),
            draws,
        )
        episodes.close()

    with isolated_randomness(run):
        along = mean_direction(estimates("IdealES", "pilot", max(config.draws // 2, 1)))
        return gathered(estimates(method, "estimates", config.draws), along)


def _setting(config: RlConfig) -> str:
    return (
        f"{config.environment}; a policy of {'-'.join(map(str, config.hidden))} tanh units on normalised observations; "
        f"{config.population} members in groups of {config.group}, pairs and their mirror images, noise of "
        f"{config.std:g}; a member's fitness is the return of one episode; centred ranks, Adam at "
        f"{config.learning_rate:g}, {config.generations} generations, {config.seeds} seeds, each with the same policy "
        f"to begin with by every method. At the end {config.evaluated} episodes at the mean weights. Estimates: raw "
        f"returns of {config.drawn_steps} steps, at the policy of the first seed."
    )
