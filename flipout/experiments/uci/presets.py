"""The experiment on nine regressions."""

from ..running.experiment import Experiment
from .lanes import Training
from .trials import UciConfig
from .work import draw, work

UCI = Experiment(
    name="uci",
    title="Nine UCI regressions: seven methods, twenty splits",
    claim="On small regressions the intervals of Bayesian networks hold as many targets as they say. Their "
    "log-likelihood is not below MC dropout's as published. Flipout reaches a bound in fewer steps than shared noise.",
    presets={
        "smoke": UciConfig(
            sets=("diabetes",),
            splits=2,
            hidden=10,
            training=Training(steps=30, batch=100),
            samples=8,
            watched=50,
            batches=20,
        ),
        "quick": UciConfig(sets=("diabetes",), training=Training(steps=1000)),
        "paper": UciConfig(),
    },
    costs={
        "smoke": "seconds",
        "quick": "1 minute of one core",
        "paper": "45 minutes on two busy cores, with the search",
    },
    work=work,
    draw=draw,
)
