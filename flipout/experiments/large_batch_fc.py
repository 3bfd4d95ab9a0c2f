"""Figure 2a: the fully connected network on MNIST, in batches of 8192."""

from .bayes_training import BayesTraining
from .experiment import Experiment
from .large_batch import CLAIM, SEEN, LargeBatchConfig, draw, work

_SCHEMES = ("shared", "flipout", "local_reparam")

LARGE_BATCH_FC = Experiment(
    name="large-batch-fc",
    title="Figure 2a: Bayes by Backprop with batches of 8192, a 784-512-512-10 network on MNIST",
    claim=CLAIM,
    presets={
        "smoke": LargeBatchConfig(
            training=BayesTraining(data="digits", hidden=(32,), batch=256, iterations=60),
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
    seen=SEEN,
)
