"""Figure 1 on images, Theorem 2, and the figure of the appendix on several devices."""

from collections.abc import Callable

from ..running.experiment import Experiment
from ..training.names import data_name, network_name
from . import multigpu, theorem
from .curves import CLAIM, CurvesConfig, draw, work
from .multigpu import MultiGPUConfig
from .pretraining import Pretraining
from .study import StudyConfig
from .theorem import TheoremConfig

_DIGITS = Pretraining(data="digits", hidden=(128, 128), learning_rate=1e-3)
_SHOWN = ("conv1", "conv5", "conv9", "conv13", "fc1", "fc3")
_CONVGG = Pretraining(network="convgg", data="cifar10", learning_rate=1e-4, every=100)
_SMALL_CONVGG = Pretraining(network="convgg", width=1 / 16, data="digits", learning_rate=2e-3, accuracy=0.85)
_TINY_CONVGG = Pretraining(network="convgg", width=1 / 16, data="digits", learning_rate=2e-3, accuracy=0.3)


def _describe(figure: str) -> Callable[[CurvesConfig], str]:
    def describe(config: CurvesConfig) -> str:
        pictures = config.pretraining
        assert isinstance(pictures, Pretraining)
        return f"{figure}: gradient variance of {network_name(pictures)} on {data_name(pictures)}"

    return describe


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
    describe=_describe("Figure 1a"),
)


VARIANCE_CONVGG = Experiment(
    name="variance-convgg",
    title="Figure 1b: gradient variance of ConVGG (VGG16 without batch-norm) on CIFAR-10",
    claim=CLAIM,
    presets={
        "smoke": CurvesConfig(
            pretraining=_TINY_CONVGG,
            schemes=("shared", "flipout"),
            batch_sizes=(1, 8, 32),
            draws=5,
            repeats=3,
            large_repeats=3,
            pairs=20,
            pair_batch=16,
            examples=40,
            shown=("conv1", "fc3"),
        ),
        "quick": CurvesConfig(
            pretraining=_SMALL_CONVGG,
            schemes=("shared", "flipout"),
            batch_sizes=(1, 4, 16, 64, 256),
            draws=30,
            repeats=6,
            pairs=200,
            pair_batch=64,
            examples=1000,
            shown=_SHOWN,
        ),
        "paper": CurvesConfig(
            pretraining=_CONVGG,
            schemes=("shared", "flipout"),
            batch_sizes=(1, 4, 16, 64, 256, 1024, 8192),
            large_repeats=5,
            pairs=200,
            examples=4000,
            at_once=16,
            precision="bf16",
            shown=_SHOWN,
        ),
    },
    costs={"smoke": "seconds", "quick": "2 minutes on two cores", "paper": "12 minutes on one H200"},
    work=work,
    draw=draw,
    describe=_describe("Figure 1b"),
)


_SMALL = {"schemes": ("shared", "flipout", "independent"), "batch_sizes": (16, 256), "independent_most": 16}


THEOREM = Experiment(
    name="theorem",
    title="Theorem 2: α, β and γ of every layer",
    claim="The variance of a mini-batch's gradient is α/N with independent perturbations, α/N + (N − 1)/N · γ with "
    "flipout and α/N + (N − 1)/N · (β + γ) with a shared one; in the networks of the paper α ≫ β ≫ γ.",
    presets={
        "smoke": TheoremConfig(
            fc=StudyConfig(
                pretraining=Pretraining(data="digits", hidden=(16,), learning_rate=1e-2),
                draws=20,
                repeats=3,
                independent_examples=16,
                pairs=200,
                pair_batch=64,
                examples=400,
                **_SMALL,
            ),
            convgg=StudyConfig(
                pretraining=_TINY_CONVGG,
                schemes=("flipout",),
                batch_sizes=(8,),
                draws=5,
                repeats=3,
                pairs=20,
                pair_batch=16,
                examples=40,
            ),
        ),
        "quick": TheoremConfig(
            fc=StudyConfig(
                pretraining=Pretraining(data="digits", hidden=(128, 128), learning_rate=1e-3),
                draws=50,
                repeats=10,
                pairs=1000,
                **_SMALL,
            )
        ),
        "paper": TheoremConfig(
            fc=StudyConfig(
                schemes=("shared", "flipout", "independent"),
                batch_sizes=(16, 256, 4096),
                independent_most=256,
                repeats=20,
                large_repeats=20,
                pairs=4000,
            ),
        ),
    },
    costs={"smoke": "seconds", "quick": "1 minute on two cores", "paper": "22 seconds on one H200"},
    work=theorem.work,
    draw=theorem.draw,
)


VARIANCE_MULTIGPU = Experiment(
    name="variance-multigpu",
    title="Appendix, figure on several GPUs: a base perturbation per device",
    claim="Independent base perturbations on 2 and on 4 devices give less variance than one base for the whole batch, "
    "and flipout still gives less than shared perturbations.",
    presets={
        "smoke": MultiGPUConfig(
            pretraining=Pretraining(data="digits", hidden=(16,), learning_rate=1e-2),
            devices={16: 2, 32: 4},
            draws=10,
            repeats=3,
            pairs=200,
            pair_batch=64,
            examples=400,
        ),
        "quick": MultiGPUConfig(
            pretraining=_DIGITS,
            devices={512: 2, 1024: 4},
            draws=50,
            repeats=5,
            large_repeats=5,
            pairs=400,
            examples=4000,
        ),
        "paper": MultiGPUConfig(
            pretraining=_CONVGG, draws=40, large_repeats=4, pairs=200, examples=4000, at_once=16, precision="bf16"
        ),
    },
    costs={"smoke": "seconds", "quick": "1 minute on two cores", "paper": "3 minutes on one H200"},
    work=multigpu.work,
    draw=multigpu.draw,
)
