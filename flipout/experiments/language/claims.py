"""Numbers of the language-model tables beside the paper's, and what is claimed of them, as checks."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ..evidence.checks import ratio_check, same_loss
from ..evidence.curves import reached
from ..evidence.statistics import geometric, interval
from ..running.results import MUST_HOLD, REPORTED, Check, Number, seen_in
from .rows import Row
from .work import LanguageConfig, Trained

SEEN = seen_in(
    curves="on the validation text|training perplexity",
    table=r"on the test text|: test \w+ is (within|at most) ",
)
SPELLED = 2e-3  # nats by which products in tf32 may differ
Found = tuple[list[Check], dict[str, Number], dict[str, Number]]


@dataclass(frozen=True)
class Unit:
    name: str
    of: Callable[[float], float]  # nats


BITS = Unit("BPC", lambda nats: nats / math.log(2))
PERPLEXITY = Unit("perplexity", lambda nats: math.exp(min(nats, 700.0)))


@dataclass(frozen=True)
class Rows:
    """The trained models of a run, by row, and how to speak of them."""

    table: tuple[Row, ...]
    unit: Unit
    trained: Sequence[Trained]

    def of(self, name: str) -> list[Trained]:
        return [one for one in self.trained if one.row == name]

    @property
    def there(self) -> list[Row]:
        return [row for row in self.table if self.of(row.name)]

    def values(self, name: str, split: str) -> dict[int, float]:
        """By seed, in the unit."""
        return {one.seed: self.unit.of(getattr(one, split)) for one in self.of(name)}

    def mean(self, name: str, split: str) -> float:
        values = self.values(name, split).values()
        return sum(values) / len(values)

    def difference(self, first: str, second: str, split: str) -> list[float]:
        """first − second, seed by seed."""
        one, other = self.values(first, split), self.values(second, split)
        return [one[seed] - other[seed] for seed in one.keys() & other.keys()]


def numbers(rows: Rows) -> tuple[dict[str, Number], dict[str, Number]]:
    """Ours, and the paper's."""
    ours: dict[str, Number] = {}
    paper: dict[str, Number] = {}
    for row in rows.there:
        for place, split in enumerate(("valid", "test")):
            name = f"{row.title}: {'validation' if split == 'valid' else 'test'} {rows.unit.name}"
            ours[name] = spread(list(rows.values(row.name, split).values()))
            paper[name] = "–" if row.quoted is None else row.quoted[place]
    for row in rows.there:
        some = rows.of(row.name)
        ours[f"{row.title}: test {rows.unit.name} of windows from a zero state"] = rows.mean(row.name, "cold")
        ours[f"{row.title}: epochs (best), why ended"] = ", ".join(
            f"{len(one.history)} ({one.best + 1}), {one.ended}" for one in some
        )
        ours[f"{row.title}: seconds an epoch, tokens a second"] = "; ".join(map(_speed, some))
        ours[f"{row.title}: parameters"] = some[0].size
    return ours, paper


def spread(values: Sequence[float]) -> Number:
    """A number for one seed, else the mean with its standard error."""
    value, error, *_ = interval(values)
    return value if len(values) == 1 else f"{value:.4g} ± {error:.2g} ({len(values)} seeds)"


def _speed(one: Trained) -> str:
    """Of the middle epoch by its time, warm-up left out. Those beside share the device."""
    epochs = sorted(one.history[2:] or one.history, key=lambda epoch: epoch["seconds"])
    middle = epochs[len(epochs) // 2]
    beside = f", {middle['beside']} side by side" if middle["beside"] > 1 else ""
    return f"{middle['seconds']:.3g} s, {one.tokens / middle['training']:,.0f} tokens/s{beside}"


def must_hold(rows: Rows) -> list[Check]:
    worst = max(one.spelled for one in rows.trained)
    claim = f"The loss in long windows is that of one token after the other (difference in nats, at most {SPELLED:g})"
    checks = [Check(claim, MUST_HOLD, worst, None, worst <= SPELLED)]
    drawn = next((one for one in rows.trained if one.drawn), None)
    if drawn is not None:
        title = next(row.title for row in rows.table if row.name == drawn.row)
        checks += same_loss(drawn.drawn, f"At the weights of {title}")
    return checks


def told(claim: str, values: Sequence[float], holds: Callable[[float, float, float], bool]) -> list[Check]:
    """A claim about a mean over seeds, with its 90 % interval where there are several."""
    if not values:
        return []
    value, _, low, high = interval(values)
    if len(values) == 1:
        return [Check(f"{claim}; one seed, so no interval", REPORTED, value, None, holds(value, value, value))]
    unsure = "" if high < 0 or low > 0 else "; these seeds cannot tell it from 0"
    return [Check(claim + unsure, REPORTED, value, (low, high), holds(value, low, high))]


def ranking(rows: Rows, first: str, second: str, plain: str) -> list[Check]:
    """first ≤ second < plain on the validation text."""
    titles = {row.name: row.title for row in rows.table}
    unit = f"difference in {rows.unit.name}"
    return [
        *told(
            f"{titles[first]} is not above {titles[second]} on the validation text ({unit})",
            rows.difference(first, second, "valid"),
            lambda value, low, high: low <= 0,
        ),
        *told(
            f"{titles[second]} is below {titles[plain]} on the validation text ({unit})",
            rows.difference(second, plain, "valid"),
            lambda value, low, high: high < 0,
        ),
    ]


def within(
    rows: Rows, bars: Mapping[str, tuple[str, Callable[[float, float], bool]]], settled: Callable[[Trained], bool]
) -> list[Check]:
    """Test values against bars: row → what is said, and whether (ours, the paper's) is inside. A row that is not
    `settled` was stopped before its end."""
    checks = []
    for row in rows.there:
        if row.name in bars and row.paper is not None:
            said, holds = bars[row.name]
            paper = row.paper[1]
            values = list(rows.values(row.name, "test").values())
            low, high = interval(values)[2:] if len(values) > 1 else (None, None)
            cut = (
                ""
                if all(map(settled, rows.of(row.name)))
                else "; cut short by its limit of epochs, so it does not count"
            )
            claim = f"{row.title}: test {rows.unit.name} {said} (the paper: {paper:g}){cut}"
            inside = not cut and holds(sum(values) / len(values), paper)
            checks.append(
                Check(claim, REPORTED, rows.mean(row.name, "test"), None if low is None else (low, high), inside)
            )
    return checks


def same_order(rows: Rows) -> list[Check]:
    """Rows of the paper's table by their test value, pairs of neighbours that come out the other way round."""
    there = ((row.paper[1], row) for row in rows.there if row.paper is not None and not (row.tied or row.reading))
    listed = [row for _, row in sorted(there, key=lambda pair: pair[0])]
    if len(listed) < 3:
        return []
    turned = sum(rows.mean(a.name, "test") > rows.mean(b.name, "test") for a, b in pairwise(listed))
    claim = f"The {len(listed)} rows rank as in the paper on the test text (neighbours the other way round)"
    return [Check(claim, REPORTED, float(turned), None, not turned)]


def faster(rows: Rows, first: str, second: str) -> list[Check]:
    """first needs fewer epochs for the lowest training perplexity of second, and ends lower."""
    checks: list[Check] = []
    pairs = [(a, b) for a in rows.of(first) for b in rows.of(second) if a.seed == b.seed]
    curves = [[[epoch["train"] for epoch in one.history] for one in pair] for pair in pairs]
    checks += told(
        "At the end WD + flipout has the lower training perplexity (difference of logarithms)",
        [own[-1] - other[-1] for own, other in curves],
        lambda value, low, high: high < 0,
    )
    ratios = []
    for own, other in curves:
        level = min(other)
        at = [reached(range(1, len(curve) + 1), curve, level) for curve in (other, own)]
        ratios.append(at[0] / at[1] if 0 < at[1] < math.inf else math.nan)
    claim = "WD + flipout needs fewer epochs for the lowest training perplexity of WD (ratio)"
    if len(ratios) == 1:
        claim, found = f"{claim}; one seed, so no interval", (ratios[0], ratios[0], ratios[0])
        checks.append(replace(ratio_check(claim, found, ratios[0] > 1), interval=None))
    elif ratios:
        found = geometric(ratios)
        checks.append(ratio_check(claim, found, found[1] > 1))
    return checks


def whole(config: LanguageConfig) -> bool:
    """Whether the paper's text was learned: its bars mean nothing on another."""
    return config.text.startswith("ptb") and not config.most
