"""Table 2: characters of the Penn Treebank, one layer of 1000 units."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from . import language_claims as claims
from .experiment import Experiment
from .language_figures import of
from .language_models import Shape
from .language_rows import CHARACTERS
from .language_schedules import Schedule
from .language_tables import LanguageConfig, Table, Trained
from .language_training import LanguageTraining

TableRow = Literal["flipout", "shared", "unregularised", "gal", "zoneout", "semeniuta"]
CharRow = Literal[TableRow, "semeniuta-state", "semeniuta-windows", "semeniuta-short", "unregularised-short"]
_QUOTED: dict[str, tuple[float | str, float]] = {"RBN (2017)": ("–", 1.32), "H-LSTM + LN (2016)": (1.281, 1.250)}
_BAR = {"flipout": 0.03, "shared": 0.03}


@dataclass(frozen=True)
class CharConfig(LanguageConfig):
    rows: tuple[CharRow, ...] = get_args(TableRow)


rows = partial(claims.Rows, CHARACTERS, claims.BITS)


def found(config: LanguageConfig, trained: Sequence[Trained]) -> claims.Found:
    made = rows(trained)
    ours, paper = claims.numbers(made)
    checks = [*claims.must_hold(made), *claims.ranking(made, "flipout", "shared", "unregularised")]
    if claims.whole(config):
        bars = {}
        for row in CHARACTERS:
            bar = _BAR.get(row.name, 0.04)
            bars[row.name] = (f"is within {bar:g}", lambda own, other, bar=bar: own <= other + bar)
        paper_preset: Any = PTB_CHAR.presets["paper"]
        planned = {row.name: paper_preset.training_of(row).schedule.epochs for row in CHARACTERS}
        settled = claims.within(
            made, bars, lambda one: one.ended == "early stopping" or len(one.history) >= planned[one.row]
        )
        checks += [*settled, *claims.same_order(made)]
        for name, (valid, test) in _QUOTED.items():
            for split, value in (("validation", valid), ("test", test)):
                key = f"{name}, as the paper quotes it: {split} BPC"
                paper[key], ours[key] = value, "not run"
    return checks, ours, paper


_TABLE = Table(CHARACTERS, found, of(rows))
_TRAINING: dict[str, Any] = {"optimizer": "amsgrad", "clip": 1.0, "reading": 50}
_SCHEDULE: dict[str, Any] = {"rate": 0.002, "factor": 2.0, "rest": 2}  # of the small presets
_SHAPE: dict[str, Any] = {"embedding": 0, "layers": 1, "orthogonal": True, "forget_bias": 1.0}

PTB_CHAR = Experiment(
    name="ptb-char",
    title="Table 2: regularised LSTMs on the characters of the Penn Treebank",
    claim="Multiplicative Gaussian noise on the recurrent weights with flipout outperforms the other methods.",
    presets={
        "smoke": CharConfig(
            rows=("flipout", "shared", "unregularised"),
            text="embedded_characters",
            most=4000,
            shape=Shape(hidden=16, **_SHAPE),
            training=LanguageTraining(
                schedule=Schedule(epochs=2, **_SCHEDULE), batch=16, window=25, **{**_TRAINING, "reading": 5}
            ),
            draws=20,
        ),
        "quick": CharConfig(
            rows=("flipout", "shared", "unregularised"),
            seeds=(0, 1),
            text="embedded_characters",
            shape=Shape(hidden=128, **_SHAPE),
            training=LanguageTraining(
                schedule=Schedule(epochs=4, patience=2, **_SCHEDULE), batch=32, window=50, **_TRAINING
            ),
        ),
        "paper": CharConfig(
            side_by_side=2,
            text="ptb_characters",
            shape=Shape(hidden=1000, **_SHAPE),
            # Clipped at 1 as the sum over a window's time steps; a cosine from 0.004 has the paper's rate as its mean.
            training=LanguageTraining(
                schedule=Schedule(rate=0.004, form="cosine", epochs=60, stop=12),
                batch=32,
                window=100,
                precision="bf16",
                **{**_TRAINING, "clip": 0.01},
            ),
            longer=5,
        ),
    },
    costs={"smoke": "seconds", "quick": "2 minutes on two cores", "paper": "26 minutes on one H200 for two rows"},
    work=_TABLE.work,
    draw=_TABLE.draw,
    seen=claims.SEEN,
)
