"""Evolution strategies, by the paper's update W̄ + α / (N σ²) Σ_n F_n ΔW_n, with any optimiser in the place of α."""

import copy
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from .._arguments import whole_number
from .._capture import capture
from .._freeze import freeze
from ..convert import perturb
from ..distributions import Gaussian
from ..draws.draw import runs
from ..errors import AlreadyPerturbed, InvalidArgument, InvalidInput, NonFinite, RunError, UnknownParameter
from ..nn.base import Perturbed
from ..nn.contexts import hold
from ..nn.held_weights import weighted_sums
from ..schemes import Scheme, scheme_of
from . import checkpoint as files
from .fleet import Fleet, Local
from .population import Population, seed_of
from .records import Generation
from .settings import Settings
from .shaping import Shaping, shaped, shaping_of


class EvolutionStrategy:
    """Maximise the fitness of a model's weights: all its Parameters that require a gradient, perturbed in place.

    `fitness(population)` returns one number for each of the `population.size` members that it is given. `group` members
    have one ΔŴ, each with signs of its own; where they are `antithetic`, half of them are the mirror images of the
    others. `std` may be a function of the generation. `optimizer` makes a torch optimiser of Parameters, `schedule` a
    schedule of its learning rate; `weight_decay` · W̄ is added to the gradient that it descends. `shaping` is
    'centered_rank', 'z_score', 'raw' or a function. All noise is drawn from (seed, generation, group). A fitness that
    has a method `follow(strategy)` is called by it after each update, wherever the strategy has a copy.
    """

    def __init__(
        self,
        model: nn.Module,
        fitness: Callable[[Population], Any] | None,
        *,
        population: int,
        group: int = 40,
        std: float | Callable[[int], float],
        optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
        schedule: Callable[[torch.optim.Optimizer], LRScheduler] | None = None,
        scheme: str | Scheme = "flipout",
        antithetic: bool = False,
        shaping: str | Shaping = "centered_rank",
        weight_decay: float = 0.0,
        fleet: Fleet | None = None,
        seed: int = 0,
        batch_dim: int | Mapping[str, int] | None = None,
    ) -> None:
        self._how = {"optimizer": optimizer, "schedule": schedule, "batch_dim": batch_dim}
        chosen = scheme_of(scheme), antithetic, shaping_of(shaping)
        self.settings = Settings(population, group, std, *chosen, weight_decay, seed)
        self.model, self.fitness, self.fleet = model, fitness, Local() if fleet is None else fleet
        self.generation = 0
        self.history: list[Generation] = []
        self._began: float | None = None  # the evaluation of this generation
        self._folder: Path | None = None  # that holds an earlier state of this one
        self._sums, self._places, self._summed = capture(self._descents), list[int](), list[nn.Parameter]()
        if any(isinstance(module, Perturbed) for module in model.modules()):
            raise AlreadyPerturbed(
                f"{type(model).__name__} has perturbed layers, and a strategy brings its own noise. "
                "flipout.freeze(model) gives plain ones back."
            )
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not trained:
            raise InvalidArgument(
                f"{type(model).__name__} has no Parameter that requires a gradient: nothing to train."
            )
        self._std = torch.full((), self.settings.std_at(0), dtype=torch.float64, device=trained[0].device)
        _perturb(model, Gaussian(self._std), chosen[0], batch_dim)
        try:
            with hold(model, 0):
                list(weighted_sums(model, torch.empty(0)))  # a scheme that cannot serve says so
            self.optimizer = _made(optimizer, trained)
            self.schedule = None if schedule is None else schedule(self.optimizer)
            if isinstance(self.schedule, ReduceLROnPlateau):
                raise InvalidArgument("schedule: ReduceLROnPlateau steps by a loss; use one that steps by generations.")
        except BaseException:
            freeze(model)
            raise

    @property
    def std(self) -> float:
        """σ of this generation."""
        return self.settings.std_at(self.generation)

    def ask(self, most: int | None = None) -> list[Population]:
        """This generation in populations of at most `most` members: all draws and then, where they are antithetic, all
        mirror images in the same order."""
        most = None if most is None else whole_number("most", most, 1)
        self._std.fill_(self.std)
        if self._began is None:
            self._began = time.perf_counter()
        own, images = self.settings, (False, True) if self.settings.antithetic else (False,)
        parts = list(runs(0, own.draws, own.draws if most is None else most, own.shared))
        made = (self.model, own.seed, self.generation)
        parts = [(first, size, own.shared, image) for image in images for first, size in parts]
        return [Population(*made, *part, lambda: self.generation) for part in parts]

    def evaluate(self, population: Population) -> Tensor:
        """(size,): the fitness of these members."""
        if self.fitness is None:
            raise InvalidArgument("fitness=None: there is nothing to evaluate with. Give one, or use ask() and tell().")
        return _numbers(self.fitness(population), population.size, "fitness(population)")

    def step(self) -> Generation:
        """One generation: its fitness, and the update."""
        self._began = time.perf_counter()
        return self.tell(self.fleet.evaluate(self))

    def tell(self, fitness: Any) -> Generation:
        """Update the weights by the fitness of all members, in the order of `ask`; NaN where there is none."""
        own, began = self.settings, time.perf_counter() if self._began is None else self._began
        numbers = _numbers(fitness, own.population, "tell(fitness)")
        finite = numbers.isfinite()
        # A mirror image without its counterpart would count for more than all others.
        kept = finite.view(2, -1).all(0).repeat(2) if own.antithetic else finite
        if not bool(kept.any()):
            raise NonFinite(
                f"Generation {self.generation}: no member{' pair' if own.antithetic else ''} has a finite fitness. The "
                f"weights are as they were. Look at what the fitness does, or lower std={self.std:g}."
            )
        weights = shaped(own.shaping, numbers, kept) / int(kept.sum())
        norm = self._update(weights[: own.draws] - weights[own.draws :] if own.antithetic else weights)
        known, missing = numbers[finite], own.population - int(finite.sum())
        means = float(known.mean()), float(known.max()), norm
        made = Generation(self.generation, *means, own.population, missing, time.perf_counter() - began)
        self.history.append(made)
        self.generation, self._began = self.generation + 1, None
        self.fleet.follow(self, numbers)
        follow = getattr(self.fitness, "follow", None)
        if follow is not None:
            follow(self)
        return made

    def run(
        self,
        generations: int,
        *,
        checkpoint: str | PathLike[str] | None = None,
        every: int = 1,
        progress: Callable[[Generation], Any] | None = None,
    ) -> list[Generation]:
        """Go on until there have been `generations` in all, those before a `resume` among them.

        `progress` is called after each. The state is saved to the folder `checkpoint` after `every` of them, and at the
        end. Returns the history.
        """
        generations, every = whole_number("generations", generations, 0), whole_number("every", every, 1)
        folder = None if checkpoint is None else Path(checkpoint)
        if folder is not None and files.held(folder) and folder.resolve() != self._folder:
            raise RunError(
                f"{folder} holds a checkpoint already, and not of this run. Go on from it, "
                f"strategy.resume({str(folder)!r}), or choose another folder."
            )
        while self.generation < generations:
            made = self.step()
            if progress is not None:
                progress(made)
            if folder is not None and (self.generation % every == 0 or self.generation == generations):
                self.save(folder)
        return self.history

    def save(self, folder: str | PathLike[str]) -> None:
        """The state to a folder, as a whole or not at all; one that was saved there before goes."""
        files.write(Path(folder), self.generation, self.state())
        self._folder = Path(folder).resolve()

    def resume(self, folder: str | PathLike[str]) -> bool:
        """Take up the state of a folder, where there is one; whether there was."""
        if not files.held(Path(folder)):
            return False
        self.load(files.read(Path(folder)))
        self._folder = Path(folder).resolve()
        return True

    def state(self) -> dict[str, Any]:
        """All that a strategy with the same arguments needs to go on: tensors, numbers, and containers of them."""
        return {
            "settings": self._told(),
            "generation": self.generation,
            "model": {name: value.clone() for name, value in self.model.state_dict().items()},
            "optimizer": copy.deepcopy(self.optimizer.state_dict()),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "history": [asdict(made) for made in self.history],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state()` of a strategy with the same settings gave."""
        there, given = state["settings"], self._told()
        changed = [
            f"{key}: {given.get(key)!r} given, {there.get(key)!r} there"
            for key in {**there, **given}
            if given.get(key) != there.get(key)
        ]
        if changed or (state["schedule"] is None) != (self.schedule is None):
            raise RunError(
                f"The checkpoint is of another strategy ({', '.join(changed) or 'one of them has a schedule'}). Give "
                "the same arguments, or start anew in another folder."
            )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))  # which keeps the tensors that it is given
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        self.history = [Generation(**made) for made in state["history"]]
        self.generation, self._began = state["generation"], None

    def arguments(self) -> dict[str, Any]:
        """Those of a strategy like this one: a plain model of its own with these weights, and no fleet."""
        settings = {field.name: getattr(self.settings, field.name) for field in fields(self.settings)}
        return {"model": freeze(copy.deepcopy(self.model)), "fitness": self.fitness, **settings, **self._how}

    def replica(self) -> "EvolutionStrategy":
        """This strategy with a model of its own, in this process: told the same fitness, it goes the same way."""
        made = EvolutionStrategy(**self.arguments())
        made.load(self.state())
        return made

    @torch.no_grad()
    def _update(self, coefficients: Tensor) -> float:
        """One step of the optimiser along Σ_n c_n ΔW_n / σ²; the norm of what it changed."""
        self._std.fill_(self.std)
        moved = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        places = [parameter.data_ptr() for parameter in moved]
        if self._places != places:  # what is captured reads the weights where they were
            self._sums, self._places = capture(self._descents), places
        device = self._std.device
        seed = torch.full((), seed_of(self.settings.seed, self.generation), dtype=torch.int64, device=device)
        for parameter, descent in zip(self._summed, self._sums(coefficients.to(device), seed), strict=True):
            parameter.grad = descent
        gradients = [p.grad for p in moved if p.grad is not None and p.numel()]
        if not bool(torch.stack(torch._foreach_norm(gradients, math.inf)).isfinite().all()):
            self.optimizer.zero_grad()
            raise NonFinite(
                f"Generation {self.generation}: the sum over the members is not finite in {gradients[0].dtype}. The "
                "weights are as they were. Scale the fitness down, or use shaping='centered_rank'."
            )
        before = [parameter.clone() for parameter in moved]
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.schedule is not None:
            self.schedule.step()
        changes = torch._foreach_norm(torch._foreach_sub(moved, before), 2, torch.float64)
        return float(torch.linalg.vector_norm(torch.stack(changes)))

    def _descents(self, coefficients: Tensor, seed: Tensor) -> list[Tensor]:
        """weight_decay · W̄ − Σ_n c_n ΔW_n / σ² of each Parameter, which `_summed` lists."""
        own, made = self.settings, []
        self._summed.clear()
        with hold(self.model, seed, group=own.shared):
            for parameter, total in weighted_sums(self.model, coefficients):
                descent = own.weight_decay * parameter.to(total.dtype) - total / self._std**2
                self._summed.append(parameter)
                made.append(descent.to(parameter.dtype))
        return made

    def _told(self) -> dict[str, Any]:
        trained = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        named = dict(self.model.named_parameters())
        return {
            **self.settings.told(),
            "optimizer": type(self.optimizer).__name__,
            "groups": [len(group["params"]) for group in self.optimizer.param_groups],
            "parameters": {name: list(parameter.shape) for name, parameter in named.items()},
            "fixed": [name for name, parameter in named.items() if id(parameter) not in trained],
            "buffers": {name: list(value.shape) for name, value in self.model.named_buffers()},
        }


def _perturb(model: nn.Module, noise: Gaussian, scheme: Scheme, batch_dim: int | Mapping[str, int] | None) -> None:
    """Biases and norms too."""
    named = dict(model.named_parameters())
    all_of_them = all(parameter.requires_grad for parameter in named.values())
    where = "*" if all_of_them else [name for name, parameter in named.items() if parameter.requires_grad]
    try:
        perturb(model, noise, scheme=scheme, where=where, batch_dim=batch_dim)
    except UnknownParameter as error:
        raise UnknownParameter(
            f"An evolution strategy perturbs every Parameter that requires a gradient. {error} What is not to be "
            "trained is left out with parameter.requires_grad_(False)."
        ) from error


def _made(optimizer: Any, trained: list[nn.Parameter]) -> torch.optim.Optimizer:
    made = optimizer(trained) if callable(optimizer) else None
    if not isinstance(made, torch.optim.Optimizer):
        raise InvalidArgument(
            f"optimizer: a {type(optimizer).__name__} given; expected a function from Parameters to a torch optimiser, "
            "such as "
            "lambda parameters: torch.optim.Adam(parameters, 1e-2)."
        )
    groups = made.param_groups
    if any(group.get("maximize") for group in groups):
        raise InvalidArgument(
            "optimizer: maximize=True would minimise the fitness: leave it out, it is maximised already."
        )
    held = {id(parameter) for group in groups for parameter in group["params"]}
    if held != {id(parameter) for parameter in trained}:
        raise InvalidArgument(
            f"optimizer: it has {len(held)} Parameters, but {len(trained)} are perturbed. Give it all it is called "
            "with; what is not to be trained is left out with parameter.requires_grad_(False)."
        )
    return made


def _numbers(fitness: Any, count: int, what: str) -> Tensor:
    """(count,) in double precision, on the CPU."""
    try:
        made = torch.as_tensor(fitness).detach().to("cpu", torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInput(f"{what}: {type(fitness).__name__} given; expected {count} numbers.") from error
    if made.shape != (count,):
        raise InvalidInput(
            f"{what}: shape {tuple(made.shape)} given; expected ({count},): one number for each member. "
            + ("Average over what a member was tried on: .mean(1)." if made.dim() > 1 else "Keep the members apart.")
        )
    return made
