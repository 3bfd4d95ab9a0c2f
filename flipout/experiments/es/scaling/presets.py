"""The experiment on the time of an update."""

from ...running.experiment import Experiment
from ..training import EsTraining
from .times import ScalingConfig
from .work import draw, work

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
        "quick": "about 1 minute on two cores (needs flipout[ray])",
        "paper": "75 seconds on one H200",
    },
    work=work,
    draw=draw,
    describe=lambda config: (
        f"Appendix: time of an update of {config.samples:,} samples against the size of the network"
    ),
)
