"""The experiment on linear regressions."""

from ..running.experiment import Experiment
from .regressions import RegressionConfig
from .work import PosteriorCheckConfig, draw, work

POSTERIOR_CHECK = Experiment(
    name="posterior-check",
    title="Linear regression: variational Bayes finds the best factorised Gaussian",
    claim="Where the exact posterior is known, Bayes by Backprop finds its mean, and the spreads of the factorised "
    "Gaussian that is closest to it, under every scheme; predictions for held-out data are calibrated.",
    presets={
        "smoke": PosteriorCheckConfig(regressions=RegressionConfig(tasks=32), steps=250, samples=128),
        "quick": PosteriorCheckConfig(),
        "paper": PosteriorCheckConfig(regressions=RegressionConfig(tasks=256, held_out=1000), steps=4000, samples=1024),
    },
    costs={"smoke": "seconds", "quick": "20 seconds on two cores", "paper": "1 minute on two cores"},
    work=work,
    draw=draw,
)
