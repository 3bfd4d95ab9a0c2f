"""Figure 1b: VGG16 without batch-norm on CIFAR-10."""

from .experiment import Experiment
from .pretraining import Pretraining
from .variance_curves import CLAIM, CurvesConfig, draw, seen, work

SHOWN = ("conv1", "conv5", "conv9", "conv13", "fc1", "fc3")
CONVGG = Pretraining(network="convgg", data="cifar10", learning_rate=1e-4, every=100)
SMOKE = Pretraining(network="convgg", width=1 / 16, data="digits", learning_rate=2e-3, accuracy=0.3)
_SMALL = Pretraining(network="convgg", width=1 / 16, data="digits", learning_rate=2e-3, accuracy=0.85)

VARIANCE_CONVGG = Experiment(
    name="variance-convgg",
    title="Figure 1b: gradient variance of ConVGG (VGG16 without batch-norm) on CIFAR-10",
    claim=CLAIM,
    presets={
        "smoke": CurvesConfig(
            pretraining=SMOKE,
            schemes=("shared", "flipout"),
            batch_sizes=(1, 8, 32),
            draws=5,
            repeats=3,
            large_repeats=3,
            pairs=20,
            pair_batch=16,
            examples=40,
        ),
        "quick": CurvesConfig(
            pretraining=_SMALL,
            schemes=("shared", "flipout"),
            batch_sizes=(1, 4, 16, 64, 256),
            draws=30,
            repeats=6,
            pairs=200,
            pair_batch=64,
            examples=1000,
            shown=SHOWN,
        ),
        "paper": CurvesConfig(
            pretraining=CONVGG,
            schemes=("shared", "flipout"),
            batch_sizes=(1, 4, 16, 64, 256, 1024, 8192),
            large_repeats=5,
            pairs=200,
            examples=4000,
            at_once=16,
            precision="bf16",
            shown=SHOWN,
        ),
    },
    costs={"smoke": "seconds", "quick": "2 minutes on two cores", "paper": "12 minutes on one H200"},
    work=work,
    draw=draw,
    seen=seen,
)
