"""The appendix's table: the time of an update of 5,000 samples against the size of the network."""

from . import es_scaling_claims as claims
from .es_scaling_claims import Times
from .es_scaling_times import ScalingConfig, on_cores, on_device, on_ray
from .es_training import EsTraining
from .experiment import Experiment, Outcome
from .results import seen_in
from .runs import Run
from .supervised import set_precision


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
    cores = run.held("cores")["seconds"]
    run.draw(
        "scaling",
        "Seconds for an update of 5,000 samples. Solid: here; dotted: the paper's GPU and its 40 cores.",
        claims.figure({name: Times(**run.held(_on_device(name)), core=cores[name]) for name in config.sizes}),
    )


def _on_device(name: str) -> str:
    return f"device.{name.replace(' ', '-')}"


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
    costs={
        "smoke": "seconds",
        "quick": "about 1 minute on two cores",
        "paper": "75 seconds on one H200",
    },
    work=work,
    draw=draw,
    seen=seen_in(scaling="^The device replaces|^On the device FlipES is faster|the time of a core grows more"),
)
