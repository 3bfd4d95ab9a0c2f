"""Numbers and checks of the language-model tables, beside the paper's."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from msgspec.structs import replace

from ..evidence.checks import ratio_check, same_loss
from ..evidence.curves import reached
from ..evidence.statistics import geometric, interval
from ..running.results import MUST_HOLD, REPORTED, Check, Number
from .rows import Row
from .work import LanguageConfig, Trained

CURVES_FIGURE, TABLE_FIGURE = "curves", "table"
ONE_SEED = "one seed, so no interval"
SPELLED = 2e-3  # nats: how much products in tf32 may differ
Found = tuple[list[Check], dict[str, Number], dict[str, Number]]


@dataclass(frozen=True)
class Unit:
    """A unit in which losses are given."""

    name: str
    of: Callable[[float], float]  # from nats


BITS = Unit("BPC", lambda nats: nats / math.log(2))
PERPLEXITY = Unit("perplexity", lambda nats: math.exp(min(nats, 700.0)))


@dataclass(frozen=True)
class Rows:
    """The trained models of a run, by row, and the unit of their losses."""

    table: tuple[Row, ...]
    unit: Unit
    trained: Sequence[Trained]

    def of(self, name: str) -> list[Trained]:
        return [model for model in self.trained if model.row == name]

    @property
    def there(self) -> list[Row]:
        return [row for row in self.table if self.of(row.name)]

    def values(self, name: str, split: str) -> dict[int, float]:
        """Return the loss of each seed, in the unit."""
        return {model.seed: self.unit.of(getattr(model, split)) for model in self.of(name)}

    def mean(self, name: str, split: str) -> float:
        values = self.values(name, split).values()
        return sum(values) / len(values)

    def difference(self, first: str, second: str, split: str) -> list[float]:
        """Return first − second, seed by seed."""
        minuend, subtrahend = self.values(first, split), self.values(second, split)
        return [minuend[seed] - subtrahend[seed] for seed in minuend.keys() & subtrahend.keys()]


def numbers(rows: Rows) -> tuple[dict[str, Number], dict[str, Number]]:
    """Return our numbers and the paper's."""
    ours: dict[str, Number] = {}
    paper: dict[str, Number] = {}
    for row in rows.there:
        for place, split in enumerate(("valid", "test")):
            name = f"{row.title}: {'validation' if split == 'valid' else 'test'} {rows.unit.name}"
            ours[name] = spread(list(rows.values(row.name, split).values()))
            paper[name] = "–" if row.quoted is None else row.quoted[place]
    for row in rows.there:
        models = rows.of(row.name)
        ours[f"{row.title}: test {rows.unit.name} of windows from a zero state"] = rows.mean(row.name, "cold")
        ours[f"{row.title}: epochs (best), why ended"] = ", ".join(
            f"{len(model.history)} ({model.best + 1}), {model.ended}" for model in models
        )
        ours[f"{row.title}: seconds an epoch, tokens a second"] = "; ".join(map(_speed, models))
        ours[f"{row.title}: parameters"] = models[0].size
    return ours, paper


def spread(values: Sequence[float]) -> Number:
    """Return the value of a single seed, or the mean with its standard error."""
    value, error, *_ = interval(values)
    return value if len(values) == 1 else f"{value:.4g} ± {error:.2g} ({len(values)} seeds)"


def _speed(model: Trained) -> str:
    """Return the speed of the median epoch, without warm-up, and how many models shared the device."""
    epochs = sorted(model.history[2:] or model.history, key=lambda epoch: epoch["seconds"])
    median = epochs[len(epochs) // 2]
    neighbours = f", {median['beside']} side by side" if median["beside"] > 1 else ""
    return f"{median['seconds']:.3g} s, {model.tokens / median['training']:,.0f} tokens/s{neighbours}"


def must_hold(rows: Rows) -> list[Check]:
    """Long windows give the loss of single tokens; noise shared or flipped, the expected loss is the same."""
    worst = max(model.spelled for model in rows.trained)
    claim = f"Long windows give the loss of one token after the other (difference in nats, at most {SPELLED:g})"
    checks = [Check("long-windows", claim, MUST_HOLD, "difference in nats", worst, None, worst <= SPELLED)]
    drawn = next((model for model in rows.trained if model.drawn), None)
    if drawn is not None:
        title = next(row.title for row in rows.table if row.name == drawn.row)
        checks += same_loss(drawn.drawn, f"At the weights of {title}")
    return checks


def over_seeds(
    name: str,
    claim: str,
    quantity: str,
    values: Sequence[float],
    holds: Callable[[float, float, float], bool],
    figure: str,
) -> list[Check]:
    """Report the mean over seeds with its 90 % interval, if there are several; nothing if there are none.

    `holds` takes the mean and both ends of its interval.
    """
    if not values:
        return []
    value, _, low, high = interval(values)
    if len(values) == 1:
        return [
            Check(name, claim, REPORTED, quantity, value, None, holds(value, value, value), figure, ONE_SEED),
        ]
    remark = "" if high < 0 or low > 0 else "these seeds cannot tell it from 0"
    return [Check(name, claim, REPORTED, quantity, value, (low, high), holds(value, low, high), figure, remark)]


def ranking(rows: Rows, first: str, second: str, plain: str) -> list[Check]:
    """first ≤ second < plain on the validation text."""
    titles = {row.name: row.title for row in rows.table}
    quantity = f"difference in {rows.unit.name}"
    return [
        *over_seeds(
            f"valid-{first}-{second}",
            f"{titles[first]} is not above {titles[second]} on the validation text ({quantity})",
            quantity,
            rows.difference(first, second, "valid"),
            lambda value, low, high: low <= 0,
            CURVES_FIGURE,
        ),
        *over_seeds(
            f"valid-{second}-{plain}",
            f"{titles[second]} is below {titles[plain]} on the validation text ({quantity})",
            quantity,
            rows.difference(second, plain, "valid"),
            lambda value, low, high: high < 0,
            CURVES_FIGURE,
        ),
    ]


def within(
    rows: Rows, bars: Mapping[str, tuple[str, Callable[[float, float], bool]]], is_settled: Callable[[Trained], bool]
) -> list[Check]:
    """Report test values against bars.

    Args:
        rows: The trained models.
        bars: Row → what is claimed, and whether (our value, the paper's) is inside.
        is_settled: Tells whether a model was trained to its end. A row that was cut short does not count.
    """
    checks = []
    for row in rows.there:
        if row.name in bars and row.paper is not None:
            said, is_inside = bars[row.name]
            paper = row.paper[1]
            values = list(rows.values(row.name, "test").values())
            settled = all(map(is_settled, rows.of(row.name)))
            checks.append(
                Check(
                    f"test-{row.name}",
                    f"{row.title}: test {rows.unit.name} {said} (the paper: {paper:g})",
                    REPORTED,
                    f"test {rows.unit.name}",
                    rows.mean(row.name, "test"),
                    interval(values)[2:] if len(values) > 1 else None,
                    settled and is_inside(sum(values) / len(values), paper),
                    TABLE_FIGURE,
                    "" if settled else "cut short by its limit of epochs, so it does not count",
                )
            )
    return checks


def same_order(rows: Rows) -> list[Check]:
    """Report how many neighbours in the paper's table come out the other way round."""
    ranked = ((row.paper[1], row) for row in rows.there if row.paper is not None and not (row.tied or row.reading))
    listed = [row for _, row in sorted(ranked, key=lambda pair: pair[0])]
    if len(listed) < 3:
        return []
    turned = sum(rows.mean(a.name, "test") > rows.mean(b.name, "test") for a, b in pairwise(listed))
    quantity = "neighbours the other way round"
    claim = f"The {len(listed)} rows rank as in the paper on the test text ({quantity})"
    return [Check("ranking", claim, REPORTED, quantity, float(turned), None, not turned, TABLE_FIGURE)]


def faster(rows: Rows, first: str, second: str) -> list[Check]:
    """The first ends lower, and needs fewer epochs for the lowest training perplexity of the second."""
    pairs = [(a, b) for a in rows.of(first) for b in rows.of(second) if a.seed == b.seed]
    curves = [[[epoch["train"] for epoch in model.history] for model in pair] for pair in pairs]
    checks = over_seeds(
        "end-training",
        "At the end WD + flipout has the lower training perplexity (difference of logarithms)",
        "difference of logarithms",
        [noisy[-1] - plain[-1] for noisy, plain in curves],
        lambda value, low, high: high < 0,
        CURVES_FIGURE,
    )
    ratios = []
    for noisy, plain in curves:
        level = min(plain)
        at = [reached(range(1, len(curve) + 1), curve, level) for curve in (plain, noisy)]
        ratios.append(at[0] / at[1] if 0 < at[1] < math.inf else math.nan)
    if ratios:
        ratio = (ratios[0],) * 3 if len(ratios) == 1 else geometric(ratios)
        claim = "WD + flipout needs fewer epochs for the lowest training perplexity of WD (ratio)"
        check = ratio_check("fewer-epochs", claim, "ratio of epochs", ratio, ratio[1] > 1, CURVES_FIGURE)
        if len(ratios) == 1:
            check = replace(check, interval=None, remark=check.remark or ONE_SEED)
        checks.append(check)
    return checks


def is_on_paper_text(config: LanguageConfig) -> bool:
    """Tell whether the whole text of the paper was learned. Its bars mean nothing on another."""
    return config.text.startswith("ptb") and not config.most
