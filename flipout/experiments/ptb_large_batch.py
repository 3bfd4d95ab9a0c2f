"""The appendix's training curves: a weight-dropped LSTM of 3 × 1150 units in batches of 8192."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from . import language_claims as claims
from .experiment import Experiment
from .language_figures import of
from .language_models import Shape
from .language_rows import LARGE
from .language_schedules import Schedule
from .language_tables import LanguageConfig, Table, Trained
from .language_training import LanguageTraining


@dataclass(frozen=True)
class LargeBatchWordConfig(LanguageConfig):
    rows: tuple[Literal["wd-flipout", "wd"], ...] = ("wd-flipout", "wd")


rows = partial(claims.Rows, LARGE, claims.PERPLEXITY)


def found(config: LanguageConfig, trained: Sequence[Trained]) -> claims.Found:
    made = rows(trained)
    ours, paper = claims.numbers(made)
    for row in made.there:
        last = [one.history[-1]["train"] for one in made.of(row.name)]
        name = f"{row.title}: training perplexity at the end"
        ours[name], paper[name] = claims.spread([made.unit.of(nats) for nats in last]), "–"
    return [*claims.must_hold(made), *claims.faster(made, "wd-flipout", "wd")], ours, paper


_TABLE = Table(LARGE, found, of(rows))
_TRAINING: dict[str, Any] = {"optimizer": "adam", "clip": 0.25}
_SCHEDULE: dict[str, Any] = {"rate": 0.001, "form": "constant"}

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
                schedule=Schedule(epochs=2, **_SCHEDULE), batch=100, window=10, reading=5, **_TRAINING
            ),
            draws=20,
        ),
        "quick": LargeBatchWordConfig(
            seeds=(0, 1),
            text="embedded_words",
            shape=Shape(embedding=48, hidden=64, layers=3),
            training=LanguageTraining(
                schedule=Schedule(epochs=10, **{**_SCHEDULE, "rate": 0.004}),
                batch=1024,
                window=10,
                reading=10,
                **_TRAINING,
            ),
        ),
        "paper": LargeBatchWordConfig(
            side_by_side=2,
            shape=Shape(embedding=400, hidden=1150, layers=3),
            training=LanguageTraining(
                schedule=Schedule(epochs=200, **_SCHEDULE), batch=8192, window=14, precision="bf16", **_TRAINING
            ),
        ),
    },
    costs={"smoke": "seconds", "quick": "2 minutes on two cores", "paper": "8 minutes on one H200"},
    work=_TABLE.work,
    draw=_TABLE.draw,
    seen=claims.SEEN,
)
