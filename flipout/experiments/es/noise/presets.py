"""The experiment on the error of an update."""

from ...running.experiment import Experiment
from .tasks import TaskConfig
from .work import EstimatesConfig, draw, work

ES_ESTIMATES = Experiment(
    name="es-estimates",
    title="The error of an update: independent noise, flipout, low rank and rank-one flips",
    claim="On a linear fitness, rank-one flips have a mean squared error of (d − 1) / N of the squared gradient, below "
    "independent noise and below Gaussian noise of rank one.",
    presets={
        "smoke": EstimatesConfig(
            tasks=TaskConfig(data="digits", text="embedded_characters", hidden=(8,), width=8, batch=4, window=4),
            members=40,
            group=20,
            draws=3,
            linear_draws=60,
        ),
        "quick": EstimatesConfig(
            tasks=TaskConfig(data="digits", text="embedded_characters", hidden=(32,), width=16, batch=16, window=8),
            members=160,
            draws=20,
            linear_draws=200,
        ),
        "paper": EstimatesConfig(tasks=TaskConfig(embedded=True, width=24, batch=16, window=12), draws=20),
    },
    costs={"smoke": "seconds", "quick": "1 minute on one core", "paper": "7 minutes on one core"},
    work=work,
    draw=draw,
)
