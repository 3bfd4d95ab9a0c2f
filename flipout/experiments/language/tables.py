"""The three tables of language models: their rows, and what is claimed of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from . import claims
from .rows import CHARACTERS, LARGE, WORDS
from .work import LanguageConfig, Trained

CharTableRow = Literal["flipout", "shared", "unregularised", "gal", "zoneout", "semeniuta"]
CharRow = Literal[CharTableRow, "semeniuta-state", "semeniuta-windows", "semeniuta-short", "unregularised-short"]
_QUOTED: dict[str, tuple[float | str, float]] = {"RBN (2017)": ("–", 1.32), "H-LSTM + LN (2016)": (1.281, 1.250)}
_BAR = {"flipout": 0.03, "shared": 0.03}


@dataclass(frozen=True)
class CharConfig(LanguageConfig):
    rows: tuple[CharRow, ...] = get_args(CharTableRow)


char_rows = partial(claims.Rows, CHARACTERS, claims.BITS)


def char_found(config: LanguageConfig, trained: Sequence[Trained], planned: Mapping[str, int]) -> claims.Found:
    """Return the checks of table 2, our numbers and the paper's. `planned`: epochs of each row in the paper preset."""
    rows = char_rows(trained)
    ours, paper = claims.numbers(rows)
    checks = [*claims.must_hold(rows), *claims.ranking(rows, "flipout", "shared", "unregularised")]
    if claims.is_on_paper_text(config):
        bars = {}
        for row in CHARACTERS:
            bar = _BAR.get(row.name, 0.04)
            bars[row.name] = (
                f"is within {bar:g}",
                lambda perplexity, reference, bar=bar: perplexity <= reference + bar,
            )
        bar_checks = claims.within(
            rows, bars, lambda model: model.ended == "early stopping" or len(model.history) >= planned[model.row]
        )
        checks += [*bar_checks, *claims.same_order(rows)]
        for name, (valid, test) in _QUOTED.items():
            for split, value in (("validation", valid), ("test", test)):
                key = f"{name}, as the paper quotes it: {split} BPC"
                paper[key], ours[key] = value, "not run"
    return checks, ours, paper


WordTableRow = Literal[
    "wd-flipout", "wd", "wd-flipout-tied", "wd-tied", "unregularised", "gal", "zoneout", "zaremba", "semeniuta"
]
WordRow = Literal[WordTableRow, "semeniuta-steps", "semeniuta-ends", "semeniuta-steps-ends"]
WORD_EPOCHS = 100
_WORD_BARS = {"wd-flipout": 75.5, "wd-flipout-tied": 71.0}  # perplexity


@dataclass(frozen=True)
class WordConfig(LanguageConfig):
    rows: tuple[WordRow, ...] = get_args(WordTableRow)


word_rows = partial(claims.Rows, WORDS, claims.PERPLEXITY)


def word_found(config: LanguageConfig, trained: Sequence[Trained]) -> claims.Found:
    """Return the checks of table 3, our numbers and the paper's."""
    rows = word_rows(trained)
    ours, paper = claims.numbers(rows)
    checks = [*claims.must_hold(rows), *claims.ranking(rows, "wd-flipout", "wd", "unregularised")]
    for first, second in (("wd-flipout", "wd"), ("wd-flipout-tied", "wd-tied")):
        which = "tied" if first.endswith("tied") else "untied"
        checks += claims.over_seeds(
            f"test-below-{which}",
            f"WD + flipout is below WD on the test text, {which} (difference in perplexity; the paper: −2.51)",
            "difference in perplexity",
            rows.difference(first, second, "test"),
            lambda value, low, high: high < 0,
            claims.TABLE_FIGURE,
        )
    if claims.is_on_paper_text(config):
        bars = {}
        for row in WORDS:
            share = 1.02 if row.name == "wd" else 1.03
            bars[row.name] = (f"is within {100 * share - 100:.0f} %, or better", lambda a, b, s=share: a <= s * b)
        bars |= {name: (f"is at most {bar:g}", lambda a, b, bar=bar: a <= bar) for name, bar in _WORD_BARS.items()}
        bar_checks = claims.within(rows, bars, lambda model: len(model.history) >= WORD_EPOCHS)
        checks += [*bar_checks, *claims.same_order(rows)]
    return checks, ours, paper


@dataclass(frozen=True)
class LargeBatchWordConfig(LanguageConfig):
    rows: tuple[Literal["wd-flipout", "wd"], ...] = ("wd-flipout", "wd")


large_rows = partial(claims.Rows, LARGE, claims.PERPLEXITY)


def large_found(config: LanguageConfig, trained: Sequence[Trained]) -> claims.Found:
    """Return the checks of the training curves, our numbers and the paper's."""
    rows = large_rows(trained)
    ours, paper = claims.numbers(rows)
    for row in rows.there:
        last = [model.history[-1]["train"] for model in rows.of(row.name)]
        name = f"{row.title}: training perplexity at the end"
        ours[name], paper[name] = claims.spread([rows.unit.of(nats) for nats in last]), "–"
    return [*claims.must_hold(rows), *claims.faster(rows, "wd-flipout", "wd")], ours, paper
