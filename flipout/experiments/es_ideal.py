"""Figure 2b: the fully connected network on MNIST, evolution strategies with 1,600 samples an update."""

from dataclasses import replace

from .es_supervised import SEEN, EsConfig, draw, work
from .es_training import DIGITS, EsTraining
from .experiment import Experiment

ES_IDEAL = Experiment(
    name="es-ideal",
    title="Figure 2b: FlipES against fully independent perturbations, 1,600 samples an update",
    claim="There is no drop in performance per update when 40 members at a time share one perturbation, flipped for "
    "each, compared with fully independent perturbations (IdealES).",
    presets={
        "smoke": EsConfig(
            training=replace(DIGITS, hidden=(16,), batch=32, updates=12),
            samples=(160,),
            seeds=3,
            draws=20,
        ),
        "quick": EsConfig(training=replace(DIGITS, hidden=(32, 32), updates=120)),
        "paper": EsConfig(training=EsTraining(), seeds=3, draws=40),
    },
    costs={"smoke": "seconds", "quick": "2.5 minutes on one core", "paper": "1 minute alone on one H200"},
    work=work,
    draw=draw,
    seen=SEEN,
)
