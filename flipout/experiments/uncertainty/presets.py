"""The experiment on known and unknown pictures."""

from ..running.experiment import Experiment
from ..training.bayes import BayesTraining
from .work import UncertaintyConfig, draw, work

UNCERTAINTY = Experiment(
    name="uncertainty",
    title="Known and unknown pictures: predictive entropy and mutual information",
    claim="A Bayesian network trained on digits is less sure of pictures that are not like them (rotated, shifted, "
    "inverted, cut up, silhouettes made of them), and of its own mistakes.",
    presets={
        "smoke": UncertaintyConfig(
            training=BayesTraining(data="digits", hidden=(32,), batch=256, iterations=150),
            samples=16,
            angles=(0, 90),
            turned=50,
        ),
        "quick": UncertaintyConfig(
            training=BayesTraining(data="digits", hidden=(128, 128), batch=256, iterations=1000), turned=360
        ),
        "paper": UncertaintyConfig(),
    },
    costs={
        "smoke": "seconds",
        "quick": "half a minute on two cores",
        "paper": "14 seconds on one H200",
    },
    work=work,
    draw=draw,
)
