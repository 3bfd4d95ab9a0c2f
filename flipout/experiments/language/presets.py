"""Tables 2 and 3, and the training curves of the appendix: language models of the Penn Treebank."""

from functools import partial
from typing import Any

from ..running.experiment import Experiment
from ..training.names import text_name
from .figures import figures_of
from .models import Shape
from .rows import CHARACTERS, LARGE, WORDS
from .schedules import Schedule
from .tables import (
    WORD_EPOCHS,
    CharConfig,
    LargeBatchWordConfig,
    WordConfig,
    char_found,
    char_rows,
    large_found,
    large_rows,
    word_found,
    word_rows,
)
from .training import LanguageTraining
from .work import Table

_CHAR_TRAINING: dict[str, Any] = {"optimizer": "amsgrad", "clip": 1.0, "reading": 50}
_CHAR_SCHEDULE: dict[str, Any] = {"rate": 0.002, "factor": 2.0, "rest": 2}  # for the small presets
_CHAR_SHAPE: dict[str, Any] = {"embedding": 0, "layers": 1, "orthogonal": True, "forget_bias": 1.0}
_CHAR_PAPER = CharConfig(
    side_by_side=2,
    text="ptb_characters",
    shape=Shape(hidden=1000, **_CHAR_SHAPE),
    # The paper clips the sum over a window at 1. The mean of a cosine from 0.004 is the paper's rate.
    training=LanguageTraining(
        schedule=Schedule(rate=0.004, form="cosine", epochs=60, stop=12),
        batch=32,
        window=100,
        precision="bf16",
        **{**_CHAR_TRAINING, "clip": 0.01},
    ),
    longer=5,
)
_CHAR_PLANNED = {row.name: _CHAR_PAPER.training_of(row).schedule.epochs for row in CHARACTERS}
_CHAR_TABLE = Table(CHARACTERS, partial(char_found, planned=_CHAR_PLANNED), figures_of(char_rows))

PTB_CHAR = Experiment(
    name="ptb-char",
    title="Table 2: regularised LSTMs on the characters of the Penn Treebank",
    claim="Multiplicative Gaussian noise on the recurrent weights with flipout outperforms the other methods.",
    presets={
        "smoke": CharConfig(
            rows=("flipout", "shared", "unregularised"),
            text="embedded_characters",
            most=4000,
            shape=Shape(hidden=16, **_CHAR_SHAPE),
            training=LanguageTraining(
                schedule=Schedule(epochs=2, **_CHAR_SCHEDULE), batch=16, window=25, **{**_CHAR_TRAINING, "reading": 5}
            ),
            draws=20,
        ),
        "quick": CharConfig(
            rows=("flipout", "shared", "unregularised"),
            seeds=(0, 1),
            text="embedded_characters",
            shape=Shape(hidden=128, **_CHAR_SHAPE),
            training=LanguageTraining(
                schedule=Schedule(epochs=4, patience=2, **_CHAR_SCHEDULE), batch=32, window=50, **_CHAR_TRAINING
            ),
        ),
        "paper": _CHAR_PAPER,
    },
    costs={"smoke": "seconds", "quick": "2 minutes on two cores", "paper": "26 minutes on one H200 for two rows"},
    work=_CHAR_TABLE.work,
    draw=_CHAR_TABLE.draw,
    describe=lambda config: f"Table 2: regularised LSTMs on {text_name(config.text)}",
)

_WORD_TABLE = Table(WORDS, word_found, figures_of(word_rows))
_WORD_SCHEDULE: dict[str, Any] = {"epochs": WORD_EPOCHS, "rate": 30.0, "factor": 4.0, "patience": 5}

PTB_WORD = Experiment(
    name="ptb-word",
    title="Table 3: regularised LSTMs on the words of the Penn Treebank",
    claim="DropConnect on the recurrent weights with flipout (WD + flipout) outperforms the other methods.",
    presets={
        "smoke": WordConfig(
            rows=("wd-flipout", "wd", "unregularised"),
            text="embedded_words",
            most=2000,
            shape=Shape(embedding=16, hidden=16),
            training=LanguageTraining(
                schedule=Schedule(**{**_WORD_SCHEDULE, "epochs": 2, "rate": 5.0}), batch=20, window=15, reading=5
            ),
            draws=20,
        ),
        "quick": WordConfig(
            rows=("wd-flipout", "wd", "unregularised"),
            seeds=(0, 1),
            text="embedded_words",
            shape=Shape(embedding=64, hidden=64),
            training=LanguageTraining(schedule=Schedule(**{**_WORD_SCHEDULE, "epochs": 6}), batch=20, reading=10),
        ),
        "paper": WordConfig(
            side_by_side=2, training=LanguageTraining(schedule=Schedule(**_WORD_SCHEDULE), precision="bf16")
        ),
    },
    costs={
        "smoke": "seconds",
        "quick": "2 minutes on two cores",
        "paper": "5 minutes on one H200 for two rows",
    },
    work=_WORD_TABLE.work,
    draw=_WORD_TABLE.draw,
    describe=lambda config: f"Table 3: regularised LSTMs on {text_name(config.text)}",
)

_LARGE_TABLE = Table(LARGE, large_found, figures_of(large_rows))
_LARGE_TRAINING: dict[str, Any] = {"optimizer": "adam", "clip": 0.25}
_LARGE_SCHEDULE: dict[str, Any] = {"rate": 0.001, "form": "constant"}

PTB_LARGE_BATCH = Experiment(
    name="ptb-large-batch",
    title="Appendix: training curves of a weight-dropped LSTM in batches of 8192",
    claim="WD + flipout converges faster than WD, and achieves a lower training perplexity.",
    presets={
        "smoke": LargeBatchWordConfig(
            text="embedded_words",
            most=4000,
            shape=Shape(embedding=12, hidden=20, layers=3),
            training=LanguageTraining(
                schedule=Schedule(epochs=2, **_LARGE_SCHEDULE), batch=100, window=10, reading=5, **_LARGE_TRAINING
            ),
            draws=20,
        ),
        "quick": LargeBatchWordConfig(
            seeds=(0, 1),
            text="embedded_words",
            shape=Shape(embedding=48, hidden=64, layers=3),
            training=LanguageTraining(
                schedule=Schedule(epochs=10, **{**_LARGE_SCHEDULE, "rate": 0.004}),
                batch=1024,
                window=10,
                reading=10,
                **_LARGE_TRAINING,
            ),
        ),
        "paper": LargeBatchWordConfig(
            side_by_side=2,
            shape=Shape(embedding=400, hidden=1150, layers=3),
            training=LanguageTraining(
                schedule=Schedule(epochs=200, **_LARGE_SCHEDULE),
                batch=8192,
                window=14,
                precision="bf16",
                **_LARGE_TRAINING,
            ),
        ),
    },
    costs={"smoke": "seconds", "quick": "2 minutes on two cores", "paper": "8 minutes on one H200"},
    work=_LARGE_TABLE.work,
    draw=_LARGE_TABLE.draw,
    describe=lambda config: f"Appendix: training curves of a weight-dropped LSTM in batches of {config.training.batch}",
)
