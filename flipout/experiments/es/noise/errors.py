"""Repeated estimates of one gradient under one kind of noise, and how far each is from it."""

import time
from dataclasses import dataclass
from typing import Any

import torch

import flipout
from flipout.es import EvolutionStrategy, Local

from ...running.runs import Run
from ...training.supervised import isolated_randomness
from ..estimates import of_strategy
from .tasks import INPUTS, LINEAR, OUTPUTS, TaskConfig, make_task


@dataclass(frozen=True)
class NoiseMethod:
    """A kind of noise. `group` is the number of members that share a ΔŴ; 0 for all of them."""

    name: str
    scheme: Any
    group: int
    antithetic: bool

    def members_per_base(self, members: int) -> int:
        return self.group or members

    def theory(self, members: int) -> float:
        """Return the mean squared error on the linear fitness, in squares of the gradient.

        Members of an antithetic pair give one and the same estimate there, so half as many count, in half groups.
        """
        weights, draws = INPUTS * OUTPUTS, members // 2 if self.antithetic else members
        if isinstance(self.scheme, flipout.RankOne):
            return (weights - 1) / draws
        if isinstance(self.scheme, flipout.LowRank):
            return ((INPUTS + 2) * (OUTPUTS + 2) - 1) / draws
        shared = self.members_per_base(members) // (2 if self.antithetic else 1)
        extra = 2 * (shared - 1) if isinstance(self.scheme, flipout.Flipout) else 0
        return (weights + 1 + extra) / draws


def methods(group: int) -> dict[str, NoiseMethod]:
    """Return every kind of noise, with and without antithetic pairs."""
    plain = {
        "independent": (flipout.Independent(), group),
        f"flipout, group {group}": (flipout.Flipout(), group),
        "flipout, one base": (flipout.Flipout(), 0),
        "low_rank(1)": (flipout.LowRank(1), group),
        "rank_one": (flipout.RankOne(), group),
    }
    found = [
        NoiseMethod(name + (", pairs" if antithetic else ""), scheme, size, antithetic)
        for antithetic in (False, True)
        for name, (scheme, size) in plain.items()
    ]
    return {method.name: method for method in found}


def centred(fitness: torch.Tensor) -> torch.Tensor:
    """Subtract the mean fitness, whose square would otherwise be most of the error of single members."""
    return fitness - fitness.mean()


def measured_errors(
    config: TaskConfig, name: str, method: NoiseMethod, members: int, std: float, draws: int, run: Run
) -> dict[str, list[float]]:
    """Return three lists over the estimates: squared error and cosine towards the gradient, and seconds.

    The error is in squares of the gradient. The linear fitness is used as it is, the others are centred.
    """
    with isolated_randomness(run):
        task = make_task(config, name, run)
        gradient = task.gradient()
        target = torch.cat([value.flatten() for value in gradient.values()]).double()

        def make(**how: Any) -> EvolutionStrategy:
            return EvolutionStrategy(
                task.model,
                task.fitness,
                population=members,
                group=method.members_per_base(members),
                std=std,
                scheme=method.scheme,
                antithetic=method.antithetic,
                fleet=Local(members=min(members, 40)) if method.scheme.own_weights else None,
                seed=run.seed_of(f"noise.{name}.{method.name}"),
                **(how if name == LINEAR else {**how, "shaping": centred}),
            )

        found: dict[str, list[float]] = {"error": [], "cosine": [], "seconds": []}
        # The time of the processor, which other processes on the machine do not change.
        clock = time.perf_counter if run.device.type == "cuda" else time.process_time
        started = clock()
        for estimate in of_strategy(make, draws):
            vector = torch.cat([estimate[key].flatten() for key in gradient]).double()
            found["seconds"].append(clock() - started)
            found["error"].append(float((vector - target).square().sum() / target.square().sum()))
            found["cosine"].append(float(torch.nn.functional.cosine_similarity(vector, target, 0)))
            started = clock()
    run.log(draws, **{key: sum(values) / draws for key, values in found.items()})
    return found
