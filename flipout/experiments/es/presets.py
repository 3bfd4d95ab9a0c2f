"""Figures 2b, 2c and 2d, and section 4.3: evolution strategies on images."""

from dataclasses import replace

from ..running.experiment import Experiment
from ..training.names import data_name, network_name
from . import discrete
from .discrete import DiscreteConfig
from .supervised import EsConfig, draw, work
from .training import DIGITS, EsTraining


def _describe_ideal(config: EsConfig) -> str:
    samples = " and ".join(f"{samples:,}" for samples in config.samples)
    return f"Figure 2b: FlipES against fully independent perturbations, {samples} samples an update"


def _describe_fc(config: EsConfig) -> str:
    return f"Figure 2c: {_against_backprop(config)}"


def _describe_convle(config: EsConfig) -> str:
    return f"Figure 2d: {_against_backprop(config)}"


def _against_backprop(config: EsConfig) -> str:
    training = config.training
    return f"FlipES against backpropagation, {network_name(training)} on {data_name(training)}"


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
    describe=_describe_ideal,
)


CLAIM = (
    "FlipES achieves data efficiency comparable with the backpropagation algorithm, error against updates; an update "
    "is around 60 times more expensive."
)


ES_BACKPROP_FC = Experiment(
    name="es-backprop-fc",
    title="Figure 2c: FlipES against backpropagation, a 784-512-512-10 network on MNIST",
    claim=CLAIM,
    presets={
        "smoke": EsConfig(
            training=replace(DIGITS, hidden=(16,), batch=32, updates=12),
            against="backprop",
            samples=(80, 160),
            seeds=3,
            draws=20,
        ),
        "quick": EsConfig(
            training=replace(DIGITS, hidden=(32, 32), backprop_rate=0.03, updates=120),
            against="backprop",
            samples=(1600, 5000),
            seeds=2,
            draws=30,
        ),
        "paper": EsConfig(training=EsTraining(), against="backprop", samples=(1600, 5000), seeds=3, draws=40),
    },
    costs={"smoke": "seconds", "quick": "about 2 minutes on one core", "paper": "1 minute alone on one H200"},
    work=work,
    draw=draw,
    describe=_describe_fc,
)


ES_BACKPROP_CONVLE = Experiment(
    name="es-backprop-convle",
    title="Figure 2d: FlipES against backpropagation, ConvLe on MNIST",
    claim=CLAIM,
    presets={
        "smoke": EsConfig(
            training=replace(DIGITS, network="convle", width=1 / 16, batch=16, updates=6),
            against="backprop",
            samples=(40, 80),
            seeds=2,
            draws=20,
        ),
        "quick": EsConfig(
            training=replace(DIGITS, network="convle", width=1 / 8, batch=16, updates=60),
            against="backprop",
            samples=(400, 1600),
            seeds=2,
            draws=20,
        ),
        "paper": EsConfig(
            training=EsTraining(
                network="convle",
                batch=32,
                std=0.01,
                learning_rate=5e-3,
                updates=100,
                members=1000,
                precision="tf32",
            ),
            against="backprop",
            samples=(1600, 5000),
            seeds=2,
            draws=20,
        ),
    },
    costs={"smoke": "seconds", "quick": "1 minute on one core", "paper": "2 minutes alone on one H200"},
    work=work,
    draw=draw,
    describe=_describe_convle,
)


ES_DISCRETE = Experiment(
    name="es-discrete",
    title="Section 4.3: training on accuracy itself, and networks with binary units",
    claim="Evolution strategies can be applied to models which are not fully differentiable, such as models with a "
    "discrete loss (accuracy) or with discrete units.",
    presets={
        "smoke": DiscreteConfig(
            training=replace(DIGITS, hidden=(16,), batch=32, updates=10),
            samples=80,
            seeds=2,
            draws=12,
        ),
        "quick": DiscreteConfig(
            training=replace(DIGITS, hidden=(32, 32), std=0.1, updates=100), samples=800, seeds=2, draws=20
        ),
        "paper": DiscreteConfig(training=EsTraining(updates=250), seeds=2),
    },
    costs={"smoke": "seconds", "quick": "1 minute on one core", "paper": "1 minute alone on one H200"},
    work=discrete.work,
    draw=discrete.draw,
)
