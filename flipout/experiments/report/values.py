"""Values as the report shows them: numbers, intervals, durations, counts."""

import json
import math
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from ..running.results import MUST_HOLD, TOO_SMALL, Check, Number, Result
from .markup import Html, html, joined

DASH, MINUS, NBSP, NARROW = "–", "−", "\N{NO-BREAK SPACE}", "\N{NARROW NO-BREAK SPACE}"
BACK = html('<p class="back"><a href="#summary"><span aria-hidden="true">↑</span> Back to the top</a></p>')
_EXPONENT = re.compile(r"(\de[+-]\d{1,3}\b)")


def number(value: Number | None, decimals: int | None = None) -> Html:
    """Return a number as HTML, with four significant digits unless `decimals` are given.

    Integers stay whole. In strings only powers of ten are typeset.
    """
    if isinstance(value, str):
        parts = _EXPONENT.split(value)  # every second part is a power of ten
        return joined(_power(*part.split("e")) if i % 2 else part for i, part in enumerate(parts))
    if value is None or not math.isfinite(value):
        return html("not finite")
    comma = "," if abs(value) >= 10_000 else ""
    if decimals is not None:
        shown = f"{value:{comma}.{decimals}f}"
    elif isinstance(value, int):
        shown = f"{value:{comma}}"
    elif value and not 1e-3 <= abs(value) < 1e6:
        mantissa, exponent = f"{value:.3e}".split("e")
        shown = _power(_short(mantissa).replace("-", MINUS), exponent)
    else:
        places = max(0, 3 - math.floor(math.log10(abs(value)))) if value else 0
        shown = _short(f"{value:{comma}.{places}f}")
    shown = shown if isinstance(shown, Html) else shown.replace("-", MINUS)
    return html('<data value="{value}">{shown}</data>', value=value, shown=shown)


def _short(digits: str) -> str:
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _power(mantissa: str, exponent: str) -> Html:
    power = str(int(exponent)).replace("-", MINUS)
    shown = html("") if power == "0" else html("{gap}×{gap}10<sup>{power}</sup>", gap=NARROW, power=power)
    return joined([mantissa, shown])


def value_and_interval(check: Check) -> tuple[Html, str]:
    """Return both with the same decimals: enough to show the width of the interval to three digits."""
    if check.interval is None:
        return number(check.value), DASH
    low, high = check.interval
    if low is None or high is None:
        ends = [html("above {low}", low=number(low))] * (low is not None)
        ends += [html("below {high}", high=number(high))] * (high is not None)
        return number(check.value), joined(ends, " ") or DASH
    decimals = None
    if check.value is not None and low < high and max(abs(low), abs(high)) < 1e6:
        decimals = max(0, 2 - math.floor(math.log10(high - low)))
        decimals = decimals if decimals <= 6 else None
    return number(check.value, decimals), joined([number(low, decimals), number(high, decimals)], " to ")


def mark(result: Result, check: Check) -> str:
    return "✓" if check.holds else "✗" if result.can_judge(check) else DASH


def verdict(result: Result, check: Check) -> Html:
    said = "holds" if check.holds else "does not hold" if result.can_judge(check) else TOO_SMALL
    return html('<span aria-hidden="true">{mark}</span> {said}', mark=mark(result, check), said=said)


def day(moment: datetime) -> Html:
    return html('<time datetime="{exactly}">{moment:%Y-%m-%d}</time>', exactly=moment.isoformat(), moment=moment)


def theory_first(checks: Iterable[Check]) -> list[Check]:
    return sorted(checks, key=lambda check: check.kind != MUST_HOLD)


def tally(checks: Sequence[Check]) -> str:
    return f"{sum(check.holds for check in checks)} of {len(checks)}"


def duration(seconds: float) -> str:
    total = round(seconds)
    for large, small, size, part in (("d", "h", 86400, 3600), ("h", "min", 3600, 60), ("min", "s", 60, 1)):
        if total >= size:
            return f"{total // size}{NBSP}{large} {total % size // part}{NBSP}{small}"
    return f"{seconds:.2g}{NBSP}s"


def setting(value: Any) -> str:
    """Return a setting, or a fact of the environment, as it stands in its file."""
    return value if isinstance(value, str) else "none" if value is None else json.dumps(value, ensure_ascii=False)


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
