"""Figure 2a: ConvLe on MNIST, in batches of 8192. Local reparameterisation would be wrong: pixels share weights."""

from .bayes_training import BayesTraining
from .experiment import Experiment
from .large_batch import CLAIM, SEEN, LargeBatchConfig, draw, work

LARGE_BATCH_CONVLE = Experiment(
    name="large-batch-convle",
    title="Figure 2a: Bayes by Backprop with batches of 8192, ConvLe on MNIST",
    claim=CLAIM,
    presets={
        "smoke": LargeBatchConfig(
            training=BayesTraining(network="convle", width=1 / 16, data="digits", batch=128, iterations=40),
            seeds=2,
            draws=60,
            rounds=2,
            timed=5,
        ),
        "quick": LargeBatchConfig(
            training=BayesTraining(network="convle", width=1 / 4, data="digits", batch=1024, iterations=400)
        ),
        # From softplus(−3), with 3136 inputs to a unit, the noise drowns the signal and the network unlearns all first.
        "paper": LargeBatchConfig(training=BayesTraining(network="convle", std=0.01, precision="tf32")),
    },
    costs={"smoke": "seconds", "quick": "4 minutes on two cores", "paper": "5 minutes on one H200"},
    work=work,
    draw=draw,
    seen=SEEN,
)
