"""The three tables of language models: their rows, and what is claimed of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from . import claims
from .rows import CHARACTERS, LARGE, WORDS
from .work import LanguageConfig, Trained

CharTableRow = Literal["flipout", "shared", "unregularised", "gal", "zoneout", "semeniuta-windows"]
CharRow = Literal[CharTableRow, "semeniuta", "semeniuta-state", "semeniuta-short", "unregularised-short"]
_QUOTED: dict[str, tuple[float | str, float]] = {"RBN (2017)": ("–", 1.32), "H-LSTM + LN (2016)": (1.281, 1.250)}
_CHAR_BARS = {"flipout": 1.235, "shared": 1.238}  # BPC
_CHAR_ABOVE = 0.02  # BPC that other rows may be above the paper


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
        near = (f"is within {_CHAR_ABOVE:g}, or better", lambda bits, reference: bits <= reference + _CHAR_ABOVE)
        bars = {row.name: near for row in CHARACTERS}
        bars |= {
            name: (f"is at most {bar:g}", lambda bits, _, bar=bar: bits <= bar) for name, bar in _CHAR_BARS.items()
        }
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
    "wd-flipout", "wd", "wd-flipout-tied", "wd-tied", "unregularised", "gal", "zoneout", "zaremba", "semeniuta-ends"
]
WordRow = Literal[
    WordTableRow,
    "semeniuta",
    "semeniuta-steps",
    "semeniuta-steps-ends",
    "wd-flipout-steps",
    "wd-flipout-kept-signs",
    "wd-flipout-both-weights",
    "wd-flipout-raw-weight",
    "wd-flipout-example-words",
]
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
    readings = [row for row in WORDS if row.reading == "wd-flipout"]
    for first, second, name, which in (
        ("wd-flipout", "wd", "untied", "untied"),
        ("wd-flipout-tied", "wd-tied", "tied", "tied"),
        *((row.name, "wd", row.name, row.title.removeprefix("WD + flipout, ")) for row in readings),
    ):
        checks += claims.over_seeds(
            f"test-below-{name}",
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
