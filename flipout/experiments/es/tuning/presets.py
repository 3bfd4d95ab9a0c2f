"""The experiment that tunes evolution strategies against backpropagation."""

from dataclasses import replace

from ...running.experiment import Experiment
from ...training.names import data_name, network_name
from ..training import DIGITS, EsTraining
from .work import TuningConfig, draw, work

ES_TUNING = Experiment(
    name="es-tuning",
    title="FlipES and backpropagation tuned on held-out examples, a 784-512-512-10 network on MNIST",
    claim="With settings chosen with the same care, FlipES needs about as many updates as backpropagation.",
    presets={
        "smoke": TuningConfig(
            training=replace(DIGITS, hidden=(16,), batch=32, updates=8),
            samples=80,
            held_out=200,
            stds=(0.02, 0.05),
            rates=(0.03,),
            shapings=("centered_rank", "z_score"),
            backprop_rates=(0.01, 0.03),
        ),
        "quick": TuningConfig(
            training=replace(DIGITS, hidden=(32, 32), updates=60),
            samples=800,
            held_out=300,
            stds=(0.02, 0.05, 0.1),
            rates=(0.01, 0.03, 0.1),
            backprop_rates=(0.003, 0.01, 0.03, 0.1),
        ),
        # ConvLe: --training.network convle --training.batch 32 --training.updates 100 --training.members 1000
        "paper": TuningConfig(training=EsTraining()),
    },
    costs={"smoke": "seconds", "quick": "1 minute on one core", "paper": "not run yet; one GPU"},
    work=work,
    draw=draw,
    describe=lambda config: (
        f"FlipES and backpropagation tuned on held-out examples, {network_name(config.training)} on "
        f"{data_name(config.training)}"
    ),
)
