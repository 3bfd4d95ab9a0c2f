"""The table of the appendix: the time of an update of 5,000 samples against the size of the network."""

from ...running.experiment import Outcome
from ...running.runs import Run
from ...training.supervised import set_precision
from . import claims
from .claims import Times
from .figures import times_figure
from .times import ScalingConfig, on_cores, on_device, on_ray


def work(config: ScalingConfig, run: Run) -> Outcome:
    set_precision(config.training)
    sizes = config.sizes
    device = {
        name: run.piece(_on_device(name), lambda n=name: on_device(config, sizes[n], run))
        for name in run.progress.track(sizes, "device")
    }
    cores = run.piece("cores", lambda: on_cores(config, run))
    fleet = run.piece("ray", lambda: on_ray(config, run)) if config.ray_workers else {}
    times = {name: Times(**device[name], core=cores["seconds"][name], ray=fleet.get(name)) for name in sizes}
    prices = config.device_price, config.core_price
    numbers, paper = claims.numbers(times, prices)
    checks = [claims.same_fitness({name: cores["apart"][name] for name in sizes}), *claims.reported(times, *prices)]
    return Outcome(_setting(config, cores["processes"], run), numbers, paper, tuple(checks))


def draw(config: ScalingConfig, run: Run) -> None:
    if run.has_piece("cores"):
        cores = run.read_piece("cores")["seconds"]
        times = {name: Times(**run.read_piece(_on_device(name)), core=cores[name]) for name in config.sizes}
    else:
        times = {name: claims.times_of(run.measured(), name) for name in config.sizes}
    run.draw(
        claims.FIGURE,
        "Seconds for an update of 5,000 samples. Solid: here; dotted: the paper's GPU and its 40 cores.",
        times_figure(times),
    )


def _on_device(name: str) -> str:
    return f"device.{name.replace(' ', '-')}"


def _setting(config: ScalingConfig, processes: int, run: Run) -> str:
    training = config.training
    ray = f"; Ray with {config.ray_workers} workers" if config.ray_workers else ""
    return (
        f"Images of noise, 28×28; FC with two hidden layers, ConvLe with every layer scaled; {training.batch} examples "
        f"that all members share; FlipES with {config.samples:,} samples in groups of {training.group}, pairs and "
        f"mirror images, products in {training.precision} on {run.device.type}; IdealES with {config.ideal_samples:,} "
        f"samples there; one perturbation at a time, {config.core_samples} for each of {processes} processes of one "
        f"thread{ray}: all scaled to 5,000. An hour is taken to cost {config.device_price:g} for the device and "
        f"{config.core_price:g} for a core."
    )
