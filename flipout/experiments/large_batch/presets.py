"""Figure 2a: a fully connected network and ConvLe on MNIST, in batches of 8192."""

from ..running.experiment import Experiment
from ..training.bayes import BayesTraining
from ..training.names import data_name, network_name
from .work import CLAIM, LargeBatchConfig, draw, work

_SCHEMES = ("shared", "flipout", "local_reparam")


def _describe(config: LargeBatchConfig) -> str:
    training = config.training
    return (
        f"Figure 2a: Bayes by Backprop with batches of {training.batch}, {network_name(training)} on "
        f"{data_name(training)}"
    )


LARGE_BATCH_FC = Experiment(
    name="large-batch-fc",
    title="Figure 2a: Bayes by Backprop with batches of 8192, a 784-512-512-10 network on MNIST",
    claim=CLAIM,
    presets={
        "smoke": LargeBatchConfig(
            training=BayesTraining(data="digits", hidden=(32,), batch=256, iterations=30),
            schemes=_SCHEMES,
            seeds=2,
            draws=60,
            rounds=2,
            timed=5,
        ),
        "quick": LargeBatchConfig(
            training=BayesTraining(data="digits", hidden=(128, 128), batch=1024, iterations=400), schemes=_SCHEMES
        ),
        "paper": LargeBatchConfig(schemes=_SCHEMES),
    },
    costs={"smoke": "seconds", "quick": "3 minutes on two cores", "paper": "45 seconds on one H200"},
    work=work,
    draw=draw,
    describe=_describe,
)


# Without local reparameterisation: the positions of a convolution share their weights.
LARGE_BATCH_CONVLE = Experiment(
    name="large-batch-convle",
    title="Figure 2a: Bayes by Backprop with batches of 8192, ConvLe on MNIST",
    claim=CLAIM,
    presets={
        "smoke": LargeBatchConfig(
            training=BayesTraining(network="convle", width=1 / 16, data="digits", batch=128, iterations=20),
            seeds=2,
            draws=60,
            rounds=2,
            timed=5,
        ),
        "quick": LargeBatchConfig(
            training=BayesTraining(network="convle", width=1 / 4, data="digits", batch=1024, iterations=400)
        ),
        # From softplus(−3), with 3136 inputs to a unit, noise drowns the signal: the network first unlearns all.
        "paper": LargeBatchConfig(training=BayesTraining(network="convle", std=0.01, precision="tf32")),
    },
    costs={"smoke": "seconds", "quick": "4 minutes on two cores", "paper": "5 minutes on one H200"},
    work=work,
    draw=draw,
    describe=_describe,
)
