"""Seconds for an update of 5,000 samples: on the device, on processes of one core, and on Ray.

The many-core form has one perturbation per process. It is measured on plain processes that share nothing: each makes
its part of an update, and n cores are taken to be n times as fast as one, which no real fleet can beat. If asked for,
the same is measured with `RayFleet`, messages included.
"""

import os
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path

import torch

from flipout.errors import InvalidArgument
from flipout.es import Local, RayFleet

from ...running.experiment import Config, check_least
from ...running.progress import RunProgress
from ...running.runs import Run
from ...training.supervised import Prepared, isolated_randomness, set_precision
from ..training import EsTrainer, EsTraining, Task
from .claims import SAMPLES

PIXELS, CLASSES = 28, 10


@dataclass(frozen=True)
class ScalingConfig(Config):
    training: EsTraining = field(default_factory=lambda: EsTraining(batch=32, updates=1))
    hidden: tuple[int, ...] = (32, 128, 512, 2048)
    widths: tuple[float, ...] = (0.25, 0.75, 1.0, 1.5)  # scales of ConvLe
    conv_members: int = 1000  # of ConvLe, evaluated together
    samples: int = 5000  # for FlipES
    ideal_samples: int = 400  # for IdealES on the device; its time is scaled to 5,000
    core_samples: int = 4  # for each process, scaled as well
    processes: int = 0  # 0: one per core
    ray_workers: int = 0  # 0: no measurement on Ray
    rounds: int = 3
    device_price: float = 8.0  # per hour
    core_price: float = 0.045  # per hour

    def __post_init__(self) -> None:
        check_least(self, core_samples=2, rounds=2, processes=0, ray_workers=0)
        if not self.hidden or not self.widths:
            raise InvalidArgument("hidden, widths: expected at least one size of each network.")

    @property
    def sizes(self) -> dict[str, EsTraining]:
        training = self.training
        fc = {f"FC {units}": replace(training, network="fc", hidden=(units, units)) for units in self.hidden}
        conv = {"network": "convle", "members": self.conv_members}
        return fc | {f"ConvLe {width:g}": replace(training, **conv, width=width) for width in self.widths}


def _task(config: EsTraining, run: Run) -> Task:
    """Return a task on images of noise: their content does not change the time."""
    x = torch.randn(config.batch, 1, PIXELS, PIXELS, generator=run.generator("pictures")).to(run.device)
    y = torch.randint(CLASSES, (config.batch,), generator=run.generator("labels")).to(run.device)
    return Task(config, Prepared(x, y, x, y, CLASSES, "noise"), 0, run)


def _strategy(config: EsTraining, method: str, samples: int, run: Run, **how):
    return _task(config, run).strategy(
        method, samples, 0, optimizer=lambda parameters: torch.optim.Adam(parameters, 1e-3), **how
    )


def on_device(config: ScalingConfig, training: EsTraining, run: Run) -> dict[str, list[float]]:
    """Return the seconds for 5,000 samples of each form on the device, and for an update by backpropagation."""
    taken: dict[str, list[float]] = {}
    with isolated_randomness(run):
        for form, method, samples in (
            ("flip", "FlipES", config.samples),
            ("ideal", "IdealES", config.ideal_samples),
        ):
            strategy = _strategy(training, method, samples, run)
            strategy.step()  # compile kernels
            taken[form] = [_timed(strategy.step) * SAMPLES / samples for _ in range(config.rounds)]
            run.log(0, **{form: statistics.median(taken[form])})
            del strategy
        trainer = EsTrainer(_task(training, run), "backprop", 0, 0)
        trainer.train(5)
        taken["backprop"] = []
        for _ in range(config.rounds):
            trainer.seconds = 0.0
            trainer.train(20)
            taken["backprop"].append(trainer.seconds / 20)
    return taken


def _timed(step) -> float:
    started = time.perf_counter()
    step()  # ends on the CPU, so it has waited for the device
    return time.perf_counter() - started


def on_cores(config: ScalingConfig, run: Run) -> dict:
    """Return the seconds of one core for 5,000 samples, one after the other, while all other cores do the same."""
    count = config.processes or _cores_here()
    seconds: dict[str, list[float]] = {}
    differences: dict[str, float] = {}
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        # Wait until all processes have started.
        list(pool.map(share, *zip(*[(config.training, 2, 1, run.seed)] * count, strict=True)))
        for name, training in run.progress.track(config.sizes.items(), f"{count} processes"):
            shares = [(training, config.core_samples, config.rounds, run.seed)] * count
            outcomes = list(pool.map(share, *zip(*shares, strict=True)))
            rounds = zip(*(times for times, _ in outcomes), strict=True)
            seconds[name] = [sum(times) / count * SAMPLES / config.core_samples for times in rounds]
            here = at_once(training, config.core_samples, run)
            there = torch.tensor(outcomes[0][1], dtype=torch.float64)
            differences[name] = float((here - there).abs().max() / there.std())
    return {"seconds": seconds, "apart": differences, "processes": count}


def _cores_here() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share(training: EsTraining, samples: int, rounds: int, seed: int) -> tuple[list[float], list[float]]:
    """Measure in a separate process: return the seconds of each round, and the fitness of the members."""
    torch.set_num_threads(1)
    run = Run(Path(), seed, torch.device("cpu"), RunProgress())
    strategy = _strategy(replace(training, members=1), "IdealES", samples, run, group=samples)
    fitness = Local(1).evaluate(strategy).tolist()
    strategy.step()
    return [_timed(strategy.step) for _ in range(rounds)], fitness


def at_once(training: EsTraining, samples: int, run: Run) -> torch.Tensor:
    """Return the fitness of the members of `share`, evaluated together on the device in the same precision."""
    set_precision(replace(training, precision="fp32"))
    with isolated_randomness(run):
        fitness = Local().evaluate(_strategy(training, "IdealES", samples, run, group=samples))
    set_precision(training)
    return fitness


def on_ray(config: ScalingConfig, run: Run) -> dict[str, list[float]]:
    """Return the seconds of one core for 5,000 samples, including everything that `RayFleet` does."""
    seconds, samples = {}, config.ray_workers * config.core_samples
    host = Run(Path(), run.seed, torch.device("cpu"), run.progress)
    with RayFleet(config.ray_workers, members=1) as fleet:
        for name, training in run.progress.track(config.sizes.items(), "Ray"):
            with isolated_randomness(host):
                strategy = _strategy(training, "IdealES", samples, host, group=samples, fleet=fleet)
                strategy.step()
                taken = [_timed(strategy.step) for _ in range(config.rounds)]
            seconds[name] = [wall * config.ray_workers * SAMPLES / samples for wall in taken]
    return seconds
