"""The experiment on corrupted pictures."""

from ..running.experiment import Experiment
from .training import ShiftTraining
from .work import ShiftConfig, draw, work

SHIFT = Experiment(
    name="shift",
    title="Corrupted pictures: accuracy, calibration and rejection",
    claim="On corrupted pictures a posterior around trained weights is better calibrated than the network it starts "
    "from, and tells better which answers to reject.",
    presets={
        "smoke": ShiftConfig(
            data="digits",
            training=ShiftTraining(width=4, blocks=1, epochs=1, bayes_epochs=1, batch=256, moved=False),
            members=2,
            samples=4,
            tested=60,
        ),
        "quick": ShiftConfig(
            data="digits",
            training=ShiftTraining(
                width=8, blocks=1, epochs=15, bayes_epochs=10, batch=64, learning_rate=0.4, bayes_rate=1e-3, moved=False
            ),
            samples=16,
        ),
        "paper": ShiftConfig(),
    },
    costs={
        "smoke": "seconds",
        "quick": "1 minute on two cores",
        "paper": "3 minutes on one H200",
    },
    work=work,
    draw=draw,
)
