"""The strategy: ask for a population, tell its fitness, and the mean weights move."""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from .._arguments import whole_number as whole_number
from .._freeze import freeze
from .._progress import Shown
from ..distributions import Gaussian, Rademacher
from ..draws.draw import runs
from ..errors import InvalidArgument, NonFinite, RunError
from ..nn.contexts import hold
from ..nn.held_weights import weighted_sums
from ..schemes import RankOne, Scheme, scheme_of
from ._checkpoint_files import has_checkpoint, read_checkpoint, write_checkpoint
from ._fitness import checked_fitness, warn_if_equal
from ._fleet import Fleet, Local
from ._generation import Generation
from ._heap import keep_freed_memory
from ._masters import Masters, Rounding
from ._population import Population
from ._settings import PopulationScheme, Settings
from ._setup import adam, checked_optimizer, perturb_trained, trained_parameters
from ._shaping import Shaping, ShapingName, shaped, shaping_of
from ._state import restore_strategy, state_of
from ._update import WeightUpdate


class EvolutionStrategy:
    """Maximise a fitness over the weights of a model.

    Each generation evaluates a population of perturbed networks and moves the mean weights by the paper's update,
    W̄ + α / (N σ²) Σ_n F_n ΔW_n, with a torch optimiser in place of α. Every Parameter that requires a gradient is
    perturbed and trained, in place. All noise is a function of (seed, generation, group).

    Args:
        model: The network to train. `flipout.freeze(model)` makes it plain again afterwards.
        fitness: Takes a `Population` and returns one number per member, (population.size,). If it has a method
            `follow(strategy)`, that is called after each update, in each process that has a copy of the strategy. None
            if only `ask` and `tell` are used.
        population: Number of members in a generation, a multiple of `group`.
        group: Number of members that share one ΔŴ, each with its own signs. Rank-one flips have no ΔŴ: under
            scheme="rank_one" it changes no result, and any population is allowed.
        std: Standard deviation σ of the noise, or a function from the generation to it.
        optimizer: Makes a torch optimiser from a list of Parameters: Adam with a rate of 0.01 by default.
        schedule: Makes a learning-rate schedule from the optimiser.
        scheme: Who shares the noise: "flipout", "independent", "low_rank", "rank_one", or a scheme such as
            `flipout.LowRank(4)`.
        antithetic: Use pairs of members with opposite perturbations. `group` counts both of a pair.
        shaping: What a fitness counts for: "centered_rank", "z_score", "raw", or a function from (n,) to (n,).
        weight_decay: This number times W̄ is added to the gradient.
        fleet: Who evaluates the population: `Local()` by default, or a `RayFleet`.
        seed: Seed of all noise.
        batch_dim: Dimension of the example in the layers' inputs, as in `flipout.perturb`.
        example_inputs: A batch that shows where the layers' inputs have their examples, as in `flipout.perturb`. A
            model that folds tokens into the rows, such as OPT, needs it.
        rounding: How an update reaches Parameters in half precision, where small steps would be lost. "master" keeps a
            copy in single precision, which the optimiser steps. "stochastic" rounds each step up or down at random,
            which is right on average and needs no copy between steps. "nearest" loses small steps.

    Raises:
        InvalidArgument: An argument is out of range, or the optimiser does not fit.
        AlreadyPerturbed: The model has perturbed layers.
        UnknownParameter: No known layer can perturb one of the Parameters.
        NoPopulation: The scheme gives members no weights of their own.

    Example:
        >>> strategy = flipout.es.EvolutionStrategy(model, fitness, population=400, group=40, std=0.05)
        >>> strategy.run(100, progress=True)
    """

    def __init__(
        self,
        model: nn.Module,
        fitness: Callable[[Population], Any] | None,
        *,
        population: int,
        group: int = 40,
        std: float | Callable[[int], float],
        optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer] = adam,
        schedule: Callable[[torch.optim.Optimizer], LRScheduler] | None = None,
        scheme: PopulationScheme | Scheme = "flipout",
        antithetic: bool = False,
        shaping: ShapingName | Shaping = "centered_rank",
        weight_decay: float = 0.0,
        fleet: Fleet | None = None,
        seed: int = 0,
        batch_dim: int | Mapping[str, int] | None = None,
        example_inputs: Any = None,
        rounding: Rounding = "master",
    ) -> None:
        self._factories = {"optimizer": optimizer, "schedule": schedule}
        self._factories |= {"batch_dim": batch_dim, "example_inputs": example_inputs}
        chosen = scheme_of(scheme), antithetic, shaping_of(shaping)
        self.settings = Settings(population, group, std, *chosen, weight_decay, seed, rounding)
        self.model, self.fitness, self.fleet = model, fitness, Local() if fleet is None else fleet
        self.generation = 0
        self.history: list[Generation] = []
        self._started: float | None = None  # when the evaluation of this generation began
        self._folder: Path | None = None  # with an earlier checkpoint of this strategy
        trained = trained_parameters(model)
        self._std = torch.full((), self.settings.std_at(0), dtype=torch.float64, device=trained[0].device)
        self.masters = Masters(trained, rounding)
        self._update = WeightUpdate(model, self.settings, self._std, self.masters)
        noise = Rademacher(self._std) if isinstance(chosen[0], RankOne) else Gaussian(self._std)
        perturb_trained(model, noise, chosen[0], batch_dim, example_inputs)
        try:
            with hold(model, 0):
                list(weighted_sums(model, torch.empty(0)))  # refuses a scheme that cannot serve a population
            self.optimizer = checked_optimizer(optimizer, self.masters.stepped)
            self.schedule = None if schedule is None else schedule(self.optimizer)
            if isinstance(self.schedule, ReduceLROnPlateau):
                raise InvalidArgument("schedule: ReduceLROnPlateau steps by a loss; use one that steps by generations.")
        except BaseException:
            freeze(model)
            raise

    def __repr__(self) -> str:
        settings = self.settings
        weights = sum(parameter.numel() for group in self.optimizer.param_groups for parameter in group["params"])
        return (
            f"EvolutionStrategy({type(self.model).__name__} of {weights:,} weights, "
            f"population={settings.population}, group={settings.group}, std={self.std:.4g}, "
            f"scheme={settings.scheme.name!r}, generation={self.generation})"
        )

    @property
    def std(self) -> float:
        """Standard deviation σ of the noise in this generation."""
        return self.settings.std_at(self.generation)

    def ask(self, most: int | None = None) -> list[Population]:
        """Return the members of this generation.

        Args:
            most: Largest number of members in one population. None for all draws at once.

        Returns:
            Populations in order. With antithetic pairs, first all members, then all mirror images.

        Raises:
            InvalidArgument: `most` is no whole number ≥ 1.

        Example:
            >>> strategy.tell(torch.cat([fitness(part) for part in strategy.ask(most=50)]))
        """
        most = None if most is None else whole_number("most", most, 1)
        self._std.fill_(self.std)
        if self._started is None:
            self._started = time.perf_counter()
        settings, images = self.settings, (False, True) if self.settings.antithetic else (False,)
        chunks = list(runs(0, settings.draws, settings.draws if most is None else most, settings.shared))
        return [
            Population(
                self.model, settings.seed, self.generation, *chunk, settings.shared, image, lambda: self.generation
            )
            for image in images
            for chunk in chunks
        ]

    def evaluate(self, population: Population) -> Tensor:
        """Return the fitness of the members of a population.

        Args:
            population: One of those that `ask` returned.

        Returns:
            (population.size,), in double precision.

        Raises:
            InvalidArgument: The strategy has no fitness.
            InvalidInput: The fitness returned something else than one number per member.

        Example:
            >>> strategy.evaluate(strategy.ask(most=50)[0])
        """
        if self.fitness is None:
            raise InvalidArgument("fitness=None: nothing to evaluate with. Give a fitness, or use ask() and tell().")
        keep_freed_memory()
        return checked_fitness(self.fitness(population), population.size, "fitness(population)")

    def step(self) -> Generation:
        """Evaluate one generation and update the weights.

        Returns:
            The record of this generation.

        Raises:
            NonFinite: No member has a finite fitness, or the update overflows. The weights are unchanged.

        Example:
            >>> print(strategy.step())
        """
        self._started = time.perf_counter()
        return self.tell(self.fleet.evaluate(self))

    def tell(self, fitness: Any) -> Generation:
        """Update the weights by the fitness of all members.

        Args:
            fitness: A tensor, array or list of shape (population,), in the order of `ask`. NaN and ±∞ leave a member
                out, and with it its mirror image.

        Returns:
            The record of this generation.

        Warns:
            RuntimeWarning: All members of the first generation have the same fitness.

        Raises:
            InvalidInput: `fitness` has another shape.
            NonFinite: No member has a finite fitness, or the update overflows. The weights are unchanged.

        Example:
            >>> strategy.tell([score(population) for population in strategy.ask(most=1)])
        """
        settings, started = self.settings, time.perf_counter() if self._started is None else self._started
        numbers = checked_fitness(fitness, settings.population, "tell(fitness)")
        is_finite = numbers.isfinite()
        # A member without its mirror image would count for more than all others.
        is_kept = is_finite.view(2, -1).all(0).repeat(2) if settings.antithetic else is_finite
        count = int(is_kept.sum())
        if not count:
            members = "member pair" if settings.antithetic else "member"
            raise NonFinite(
                f"Generation {self.generation}: no {members} has a finite fitness. The weights are unchanged. Look at "
                f"what the fitness does, or lower std={self.std:g}."
            )
        if not self.history:  # later, equal members may have solved the task
            warn_if_equal(numbers[is_kept], self.std)
        weights = shaped(settings.shaping, numbers, is_kept) / count
        coefficients = weights[: settings.draws] - weights[settings.draws :] if settings.antithetic else weights
        norm = self._update.step(coefficients, self.generation, self.optimizer, self.schedule)
        known, missing = numbers[is_finite], settings.population - int(is_finite.sum())
        means = float(known.mean()), float(known.max()), norm
        record = Generation(self.generation, *means, settings.population, missing, time.perf_counter() - started)
        self.history.append(record)
        self.generation, self._started = self.generation + 1, None
        self.fleet.follow(self, numbers)
        follow = getattr(self.fitness, "follow", None)
        if follow is not None:
            follow(self)
        return record

    def run(
        self,
        generations: int,
        *,
        checkpoint: str | PathLike[str] | None = None,
        every: int = 1,
        progress: Callable[[Generation], Any] | bool | None = None,
    ) -> list[Generation]:
        """Continue until there have been `generations` generations in all, those before a `resume` included.

        Args:
            generations: Total number of generations.
            checkpoint: Folder to save the state to.
            every: Number of generations between two checkpoints. The last generation is always saved.
            progress: Called with the record of each generation. True shows a bar in a terminal or a
                notebook, if tqdm is installed, else a record now and then, with the time left.

        Returns:
            The records of all generations.

        Raises:
            RunError: The folder holds the checkpoint of another run.

        Example:
            >>> strategy.resume("run")
            >>> strategy.run(100, checkpoint="run", progress=True)
        """
        generations, every = whole_number("generations", generations, 0), whole_number("every", every, 1)
        folder = None if checkpoint is None else Path(checkpoint)
        if folder is not None and has_checkpoint(folder) and folder.resolve() != self._folder:
            raise RunError(
                f"{folder} holds a checkpoint already, of another run. Continue that run with "
                f"strategy.resume({str(folder)!r}), or choose another folder."
            )
        shown = Shown(generations - self.generation, "", "generations") if progress is True else None
        with shown or nullcontext():
            while self.generation < generations:
                record = self.step()
                if shown is not None:
                    shown.advance(note=lambda r=record: f"fitness {r.fitness_mean:.4g}", line=record.__str__)
                elif callable(progress):
                    progress(record)
                if folder is not None and (self.generation % every == 0 or self.generation == generations):
                    self.save(folder)
        return self.history

    def save(self, folder: str | PathLike[str]) -> None:
        """Save the state to a folder, completely or not at all, and replace the one saved there before.

        Args:
            folder: Created if it does not exist.

        Raises:
            RunError: The folder cannot be written, or the optimiser's state has values that cannot be saved.

        Example:
            >>> strategy.save("run")
        """
        write_checkpoint(Path(folder), self.generation, self.state())
        self._folder = Path(folder).resolve()

    def resume(self, folder: str | PathLike[str]) -> bool:
        """Continue from the checkpoint in a folder, if there is one.

        Args:
            folder: A folder that was given to `save` or to `run(checkpoint=…)`.

        Returns:
            Whether there was a checkpoint.

        Raises:
            RunError: The checkpoint is incomplete, or belongs to a strategy with other arguments.

        Example:
            >>> strategy.resume("run")
        """
        if not has_checkpoint(Path(folder)):
            return False
        self.load(read_checkpoint(Path(folder)))
        self._folder = Path(folder).resolve()
        return True

    def state(self) -> dict[str, Any]:
        """Return everything that a strategy with the same arguments needs to continue.

        Returns:
            Tensors, numbers, and containers of them.

        Example:
            >>> other.load(strategy.state())
        """
        return state_of(self)

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of a strategy with the same arguments.

        Args:
            state: What `state()` returned.

        Raises:
            RunError: The state belongs to a strategy with other arguments.

        Example:
            >>> other.load(strategy.state())
        """
        restore_strategy(self, state)
        self._started = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of a strategy like this one.

        Returns:
            Keyword arguments, with a plain copy of the model at its present weights and no fleet.

        Example:
            >>> other = flipout.es.EvolutionStrategy(**strategy.arguments())
        """
        settings = {field.name: getattr(self.settings, field.name) for field in fields(self.settings)}
        return {"model": freeze(deepcopy(self.model)), "fitness": self.fitness, **settings, **self._factories}

    def replica(self) -> "EvolutionStrategy":
        """Return a copy of this strategy with its own model, in this process.

        Returns:
            A strategy that evolves identically if it is told the same fitness.

        Example:
            >>> copy = strategy.replica()
            >>> copy.tell(fitness)
        """
        replica = EvolutionStrategy(**self.arguments())
        replica.load(self.state())
        return replica
