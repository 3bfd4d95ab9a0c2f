"""Figure 1a: the fully connected network on MNIST."""

from .experiment import Experiment
from .pretraining import Pretraining
from .variance_curves import CLAIM, CurvesConfig, draw, seen, work

_DIGITS = Pretraining(data="digits", hidden=(128, 128), learning_rate=1e-3)

VARIANCE_FC = Experiment(
    name="variance-fc",
    title="Figure 1a: gradient variance of a 784-512-512-10 network on MNIST",
    claim=CLAIM,
    presets={
        "smoke": CurvesConfig(
            pretraining=Pretraining(data="digits", hidden=(16,), learning_rate=1e-2),
            batch_sizes=(1, 8, 64),
            draws=20,
            repeats=5,
            large_repeats=5,
            independent_examples=16,
            pairs=200,
            pair_batch=64,
            examples=400,
        ),
        "quick": CurvesConfig(
            pretraining=_DIGITS,
            batch_sizes=(1, 4, 16, 64, 256, 1024),
            draws=50,
            repeats=8,
            large=256,
            large_repeats=5,
            independent_most=256,
            pairs=400,
            examples=4000,
        ),
        "paper": CurvesConfig(),
    },
    costs={"smoke": "seconds", "quick": "2 minutes on two cores", "paper": "5 minutes on one H200"},
    work=work,
    draw=draw,
    seen=seen,
)
