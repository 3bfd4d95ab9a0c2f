"""The appendix's table: the time of an update of 5,000 samples against the size of the network.

The many-core form has one perturbation per process. It is measured on plain processes that share nothing: each makes
its part of an update, so that n cores are taken to be n times as fast as one, which no real fleet can beat. Where Ray
is asked for, the same is measured with `RayFleet`, messages and all.
"""

import os
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path

import torch

from flipout.es import Local, RayFleet

from ..errors import InvalidArgument
from . import es_scaling_claims as claims
from .es_scaling_claims import Times
from .es_training import EsTraining, Task, Trainer
from .experiment import Config, Experiment, Outcome
from .progress import Progress
from .runs import Run
from .supervised import Prepared, own_randomness, set_precision

PIXELS, CLASSES = 28, 10


@dataclass(frozen=True)
class ScalingConfig(Config):
    training: EsTraining = field(default_factory=lambda: EsTraining(batch=32, updates=1))
    hidden: tuple[int, ...] = (32, 128, 512, 2048)
    widths: tuple[float, ...] = (0.25, 0.75, 1.0, 1.5)  # of ConvLe
    conv_members: int = 1000  # of ConvLe at once
    samples: int = 5000  # of FlipES
    ideal_samples: int = 400  # of IdealES on the device; its time is counted up to 5,000
    core_samples: int = 4  # of each process, counted up as well
    processes: int = 0  # 0 for as many as there are cores
    ray_workers: int = 0  # 0 for no measurement on Ray
    rounds: int = 3
    device_price: float = 8.0  # for an hour of the device
    core_price: float = 0.045  # for an hour of a core

    def __post_init__(self) -> None:
        for name, least in (("core_samples", 2), ("rounds", 2), ("processes", 0), ("ray_workers", 0)):
            if getattr(self, name) < least:
                raise InvalidArgument(f"{name}={getattr(self, name)}: expected at least {least}.")
        if not self.hidden or not self.widths:
            raise InvalidArgument("hidden, widths: expected at least one size of each network.")

    @property
    def sizes(self) -> dict[str, EsTraining]:
        own = self.training
        made = {f"FC {units}": replace(own, network="fc", hidden=(units, units)) for units in self.hidden}
        conv = {"network": "convle", "members": self.conv_members}
        return made | {f"ConvLe {width:g}": replace(own, **conv, width=width) for width in self.widths}


def work(config: ScalingConfig, run: Run) -> Outcome:
    set_precision(config.training)
    sizes = config.sizes
    device = {
        name: run.piece(f"device.{name.replace(' ', '-')}", lambda n=name: _device(config, sizes[n], n, run))
        for name in run.progress.track(sizes, "device")
    }
    cores = run.piece("cores", lambda: _cores(config, run))
    fleet = run.piece("ray", lambda: _ray(config, run)) if config.ray_workers else {}
    times = {name: Times(**device[name], core=cores["seconds"][name], ray=fleet.get(name)) for name in sizes}
    run.draw(
        "scaling",
        "Seconds for an update of 5,000 samples. Solid: here; dotted: the paper's GPU and its 40 cores.",
        claims.figure(times),
    )
    prices = config.device_price, config.core_price
    numbers, paper = claims.numbers(times, prices)
    checks = [claims.same_fitness({name: cores["apart"][name] for name in sizes}), *claims.reported(times, *prices)]
    return Outcome(_setting(config, cores["processes"], run), numbers, paper, tuple(checks))


def _task(config: EsTraining, run: Run) -> Task:
    """On pictures of noise: time does not depend on what is in them."""
    x = torch.randn(config.batch, 1, PIXELS, PIXELS, generator=run.generator("pictures")).to(run.device)
    y = torch.randint(CLASSES, (config.batch,), generator=run.generator("labels")).to(run.device)
    return Task(config, Prepared(x, y, x, y, CLASSES, "noise"), 0, run)


def _strategy(config: EsTraining, method: str, samples: int, run: Run, **how):
    return _task(config, run).strategy(
        method, samples, 0, optimizer=lambda parameters: torch.optim.Adam(parameters, 1e-3), **how
    )


def _device(config: ScalingConfig, training: EsTraining, name: str, run: Run) -> dict[str, list[float]]:
    """Seconds for 5,000 samples of each form on the device, and for an update by backpropagation."""
    taken: dict[str, list[float]] = {}
    with own_randomness(run):
        for form, method, samples in (
            ("flip", "FlipES", config.samples),
            ("ideal", "IdealES", config.ideal_samples),
        ):
            strategy = _strategy(training, method, samples, run)
            strategy.step()  # kernels
            taken[form] = [_timed(strategy.step) * claims.SAMPLES / samples for _ in range(config.rounds)]
            run.log(0, **{form: statistics.median(taken[form])})
            del strategy
        trainer = Trainer(_task(training, run), "backprop", 0, 0)
        trainer.train(5)
        taken["backprop"] = []
        for _ in range(config.rounds):
            trainer.seconds = 0.0
            trainer.train(20)
            taken["backprop"].append(trainer.seconds / 20)
    return taken


def _timed(step) -> float:
    started = time.perf_counter()
    step()  # ends on the CPU: whoever made it has waited for the device
    return time.perf_counter() - started


def _cores(config: ScalingConfig, run: Run) -> dict:
    """Seconds of one core for 5,000 samples, one after the other, while all others are at the same."""
    count = config.processes or _cores_here()
    seconds: dict[str, list[float]] = {}
    apart: dict[str, float] = {}
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        list(pool.map(_share, *zip(*[(config.training, 2, 1, run.seed)] * count, strict=True)))  # everyone is up
        for name, training in run.progress.track(config.sizes.items(), f"{count} processes"):
            given = [(training, config.core_samples, config.rounds, run.seed)] * count
            made = list(pool.map(_share, *zip(*given, strict=True)))
            rounds = zip(*(times for times, _ in made), strict=True)
            seconds[name] = [sum(own) / count * claims.SAMPLES / config.core_samples for own in rounds]
            here = _fitness(training, config.core_samples, run)
            there = torch.tensor(made[0][1], dtype=torch.float64)
            apart[name] = float((here - there).abs().max() / there.std())
    return {"seconds": seconds, "apart": apart, "processes": count}


def _cores_here() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _share(training: EsTraining, samples: int, rounds: int, seed: int) -> tuple[list[float], list[float]]:
    """In a process of its own: seconds of each round, and the fitness of the members."""
    torch.set_num_threads(1)
    run = Run(Path(), seed, torch.device("cpu"), Progress())
    strategy = _strategy(replace(training, members=1), "IdealES", samples, run, group=samples)
    fitness = Local(1).evaluate(strategy).tolist()
    strategy.step()
    return [_timed(strategy.step) for _ in range(rounds)], fitness


def _fitness(training: EsTraining, samples: int, run: Run) -> torch.Tensor:
    """Of the same members as in `_share`, all at once on the device, in the same precision."""
    set_precision(replace(training, precision="fp32"))
    with own_randomness(run):
        made = Local().evaluate(_strategy(training, "IdealES", samples, run, group=samples))
    set_precision(training)
    return made


def _ray(config: ScalingConfig, run: Run) -> dict[str, list[float]]:
    """Seconds of one core for 5,000 samples, with all that `RayFleet` does for them."""
    made, samples = {}, config.ray_workers * config.core_samples
    host = Run(Path(), run.seed, torch.device("cpu"), run.progress)
    with RayFleet(config.ray_workers, members=1) as fleet:
        for name, training in run.progress.track(config.sizes.items(), "Ray"):
            with own_randomness(host):
                strategy = _strategy(training, "IdealES", samples, host, group=samples, fleet=fleet)
                strategy.step()
                taken = [_timed(strategy.step) for _ in range(config.rounds)]
            made[name] = [one * config.ray_workers * claims.SAMPLES / samples for one in taken]
    return made


def _setting(config: ScalingConfig, processes: int, run: Run) -> str:
    own = config.training
    ray = f"; Ray with {config.ray_workers} workers" if config.ray_workers else ""
    return (
        f"Pictures of noise, 28×28; FC with two hidden layers, ConvLe with every layer scaled; {own.batch} examples "
        f"for each member, the same for all; FlipES with {config.samples:,} samples in groups of {own.group}, pairs "
        f"and mirror images, products in {own.precision} on {run.device.type}; IdealES with {config.ideal_samples:,} "
        f"samples there; one perturbation at a time, {config.core_samples} for each of {processes} processes of one "
        f"thread{ray}: all counted up to 5,000. An hour is taken to cost {config.device_price:g} for the device and "
        f"{config.core_price:g} for a core."
    )


ES_SCALING = Experiment(
    name="es-scaling",
    title="Appendix: time of an update of 5,000 samples against the size of the network",
    claim="FlipES scales better with the model size than one perturbation per CPU core; one GPU has the throughput of "
    "at least 40 CPU cores, at a quarter of their price; its update costs about 60 times one of backpropagation.",
    presets={
        "smoke": ScalingConfig(
            hidden=(32, 64),
            widths=(1 / 16,),
            conv_members=40,
            samples=80,
            ideal_samples=40,
            core_samples=2,
            processes=1,
            rounds=2,
            device_price=0.045,
            training=EsTraining(batch=4, updates=1),
        ),
        "quick": ScalingConfig(
            hidden=(32, 128, 512),
            widths=(0.25, 0.5),
            conv_members=40,
            samples=400,
            ideal_samples=80,
            ray_workers=2,
            device_price=0.09,  # two cores
        ),
        "paper": ScalingConfig(training=EsTraining(batch=32, updates=1, precision="tf32")),
    },
    costs={"smoke": "seconds", "quick": "minutes on two cores", "paper": "not yet run"},
    work=work,
)
