"""Figure 1c, and the figure of the appendix on weight-dropped LSTMs: first-layer hidden-to-hidden weights, by gate."""

from typing import Any

from ..running.experiment import Experiment
from ..training.names import text_name
from .curves import CLAIM, CurvesConfig, draw, work
from .language_pretraining import LanguagePretraining

SIZES = (1, 4, 16, 64, 256, 1024, 4096, 8192)
_SCHEMES = ("shared", "flipout")
_TINY: dict[str, Any] = {
    "text": "embedded_words",
    "embedding": 16,
    "hidden": 16,
    "layers": 2,
    "batch": 20,
    "window": 10,
    "epochs": 0.05,
}
_SMALL: dict[str, Any] = {
    "text": "embedded_words",
    "embedding": 64,
    "hidden": 64,
    "batch": 20,
    "window": 20,
    "epochs": 1.0,
}
_SMOKE: dict[str, Any] = {
    "schemes": _SCHEMES,
    "batch_sizes": (1, 8, 32),
    "draws": 5,
    "repeats": 3,
    "large_repeats": 3,
    "pairs": 10,
    "pair_batch": 8,
    "examples": 40,
    "at_once": 1,
}
_QUICK: dict[str, Any] = {
    "schemes": _SCHEMES,
    "batch_sizes": (1, 4, 16, 64, 256),
    "draws": 30,
    "repeats": 5,
    "large_repeats": 5,
    "pairs": 60,
    "pair_batch": 64,
    "examples": 400,
    "sub_batch": 64,
    "at_once": 1,
}
# The paper splits batches of 128 and more into sub-batches of 64, which share the base and have their own signs. Under
# a held draw any split gives the same numbers, and sub-batches of thousands use a GPU better.
_PAPER: dict[str, Any] = {
    "schemes": _SCHEMES,
    "batch_sizes": SIZES,
    "draws": 100,
    "repeats": 20,
    "large_repeats": 4,
    "pairs": 200,
    "examples": 4000,
    "sub_batch": 1024,
    "at_once": 1,
    "precision": "bf16",
}
# This network takes four times the arithmetic.
_LARGE_PAPER = {**_PAPER, "draws": 50, "repeats": 10, "large_repeats": 4}


def _lstm(config: CurvesConfig) -> tuple[str, str]:
    """Return the shape of the LSTM and the text that it learns."""
    settings = config.pretraining
    assert isinstance(settings, LanguagePretraining)
    return f"{settings.layers} × {settings.hidden}", text_name(settings.text)


def _describe(config: CurvesConfig) -> str:
    shape, text = _lstm(config)
    return f"Figure 1c: gradient variance of a {shape} LSTM on {text}"


def _describe_dropped(config: CurvesConfig) -> str:
    shape, _ = _lstm(config)
    return f"Appendix: gradient variance of a weight-dropped LSTM ({shape}), alone and with flipout"


VARIANCE_LSTM = Experiment(
    name="variance-lstm",
    title="Figure 1c: gradient variance of a 2 × 650 LSTM on the words of the Penn Treebank",
    claim=CLAIM,
    presets={
        "smoke": CurvesConfig(pretraining=LanguagePretraining(**_TINY), **_SMOKE),
        "quick": CurvesConfig(pretraining=LanguagePretraining(**_SMALL), **_QUICK),
        "paper": CurvesConfig(pretraining=LanguagePretraining(), **_PAPER),
    },
    costs={"smoke": "seconds", "quick": "1 minute on two cores", "paper": "7 minutes on one H200"},
    work=work,
    draw=draw,
    describe=_describe,
)

# Without half of its weights it is another network. Trained without noise, that network is lost on most words, and its
# gradients have very heavy tails.
_DROPPED: dict[str, Any] = {"noise": "dropconnect", "where": "lstm.weight_[ih]h*", "noisy_training": True}

VARIANCE_WD_LSTM = Experiment(
    name="variance-wd-lstm",
    title="Appendix: gradient variance of a weight-dropped LSTM (3 × 1150), alone and with flipout",
    claim="Flipout reduces the gradient variance of DropConnect significantly for mini-batches larger than 256.",
    presets={
        "smoke": CurvesConfig(pretraining=LanguagePretraining(**{**_TINY, **_DROPPED}), **_SMOKE),
        "quick": CurvesConfig(pretraining=LanguagePretraining(**{**_SMALL, **_DROPPED}), **_QUICK),
        "paper": CurvesConfig(
            pretraining=LanguagePretraining(embedding=400, hidden=1150, layers=3, **_DROPPED), **_LARGE_PAPER
        ),
    },
    costs={"smoke": "seconds", "quick": "1 minute on two cores", "paper": "8 minutes on one H200"},
    work=work,
    draw=draw,
    describe=_describe_dropped,
)
