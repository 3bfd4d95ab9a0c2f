"""Figures 2c and 2d: FlipES with 1,600 and with 5,000 samples an update against backpropagation."""

from dataclasses import replace

from .es_supervised import SEEN, EsConfig, draw, work
from .es_training import DIGITS, EsTraining
from .experiment import Experiment

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
    seen=SEEN,
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
    seen=SEEN,
)
