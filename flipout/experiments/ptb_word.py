"""Table 3: words of the Penn Treebank, two layers of 650 units."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from . import language_claims as claims
from .experiment import Experiment
from .language_figures import of
from .language_models import Shape
from .language_rows import WORDS
from .language_schedules import Schedule
from .language_tables import LanguageConfig, Table, Trained
from .language_training import LanguageTraining

TableRow = Literal[
    "wd-flipout", "wd", "wd-flipout-tied", "wd-tied", "unregularised", "gal", "zoneout", "zaremba", "semeniuta"
]
WordRow = Literal[TableRow, "semeniuta-steps", "semeniuta-ends", "semeniuta-steps-ends"]
_EPOCHS = 100
_BARS = {"wd-flipout": 75.5, "wd-flipout-tied": 71.0}  # perplexity


@dataclass(frozen=True)
class WordConfig(LanguageConfig):
    rows: tuple[WordRow, ...] = get_args(TableRow)


rows = partial(claims.Rows, WORDS, claims.PERPLEXITY)


def found(config: LanguageConfig, trained: Sequence[Trained]) -> claims.Found:
    made = rows(trained)
    ours, paper = claims.numbers(made)
    checks = [*claims.must_hold(made), *claims.ranking(made, "wd-flipout", "wd", "unregularised")]
    for first, second in (("wd-flipout", "wd"), ("wd-flipout-tied", "wd-tied")):
        which = "tied" if first.endswith("tied") else "untied"
        checks += claims.told(
            f"WD + flipout is below WD on the test text, {which} (difference in perplexity; the paper: −2.51)",
            made.difference(first, second, "test"),
            lambda value, low, high: high < 0,
        )
    if claims.whole(config):
        bars = {}
        for row in WORDS:
            share = 1.02 if row.name == "wd" else 1.03
            bars[row.name] = (f"is within {100 * share - 100:.0f} %, or better", lambda a, b, s=share: a <= s * b)
        bars |= {name: (f"is at most {bar:g}", lambda a, b, bar=bar: a <= bar) for name, bar in _BARS.items()}
        settled = claims.within(made, bars, lambda one: len(one.history) >= _EPOCHS)
        checks += [*settled, *claims.same_order(made)]
    return checks, ours, paper


_TABLE = Table(WORDS, found, of(rows))
_SCHEDULE: dict[str, Any] = {"epochs": _EPOCHS, "rate": 30.0, "factor": 4.0, "patience": 5}

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
                schedule=Schedule(**{**_SCHEDULE, "epochs": 2, "rate": 5.0}), batch=20, window=15, reading=5
            ),
            draws=20,
        ),
        "quick": WordConfig(
            rows=("wd-flipout", "wd", "unregularised"),
            seeds=(0, 1),
            text="embedded_words",
            shape=Shape(embedding=64, hidden=64),
            training=LanguageTraining(schedule=Schedule(**{**_SCHEDULE, "epochs": 6}), batch=20, reading=10),
        ),
        "paper": WordConfig(
            side_by_side=2, training=LanguageTraining(schedule=Schedule(**_SCHEDULE), precision="bf16")
        ),
    },
    costs={
        "smoke": "seconds",
        "quick": "2 minutes on two cores",
        "paper": "5 minutes on one H200 for two rows",
    },
    work=_TABLE.work,
    draw=_TABLE.draw,
    seen=claims.SEEN,
)
