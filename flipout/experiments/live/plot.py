"""Small plots as SVG markup, drawn without matplotlib: a page is drawn every other second."""

import math
from collections.abc import Mapping, Sequence

from flipout._drawing import COLOURS

from ..report.markup import Html, html, joined
from .state import Points

# Okabe and Ito's colours, which people with any colour vision can tell apart. Dashes tell them apart in grey.
STYLES = (
    ("#0072b2", "none"),
    ("#d55e00", "7 3"),
    ("#009e73", "2 3"),
    ("#cc79a7", "9 3 2 3"),
    ("#e69f00", "4 4"),
    ("#56b4e9", "12 4"),
)
MOST_POINTS = 400  # of one line
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _BOTTOM, _TOP = 460, 240, 68, 30, 26, 10


def panel(title: str, series: Mapping[str, Points]) -> Html:
    """Return a panel with one line for each series: the last six of them."""
    shown = dict([*series.items()][-len(STYLES) :])
    across = _Axis([x for points in shown.values() for x, _ in points], _LEFT, _WIDTH - _RIGHT)
    up = _Axis([y for points in shown.values() for _, y in points], _HEIGHT - _BOTTOM, _TOP)
    styles = {name: (_colour(name, colour), dashes) for name, (colour, dashes) in zip(shown, STYLES, strict=False)}
    left_out = len(series) - len(shown)
    return html(
        """<figure class="plot">
<figcaption><b>{title}</b> {legend}{left_out}</figcaption>
<svg viewBox="0 0 {width} {height}" role="img" aria-label="{title} against the step">
<path d="M{left},{top}V{base}H{right}" fill="none" stroke="currentColor" stroke-width="1"/>
{labels}
{lines}
</svg>
</figure>""",
        title=title[:80],
        legend=joined((_key(name, *style) for name, style in styles.items()), " "),
        left_out=f" and {left_out} more" if left_out else "",
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
        top=_TOP,
        base=_HEIGHT - _BOTTOM,
        right=_WIDTH - _RIGHT,
        labels=joined((_labels(across, up), _names(across, up)), "\n"),
        lines=joined((_line(thinned(points), across, up, *styles[name]) for name, points in shown.items()), "\n"),
    )


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most `MOST_POINTS` of the points, the first and the last among them."""
    if len(points) <= MOST_POINTS:
        return [*points]
    return [points[round(i * (len(points) - 1) / (MOST_POINTS - 1))] for i in range(MOST_POINTS)]


class _Axis:
    """Maps values to places, by their logarithms if they are positive and span more than a factor of 50."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self.low, self.high = min(values), max(values)
        self.is_log = self.low > 0 and self.high / self.low > 50
        self.start, self.end = start, end

    def place(self, value: float) -> float:
        low, high, value = map(math.log, (self.low, self.high, value)) if self.is_log else (self.low, self.high, value)
        share = (value - low) / (high - low) if high > low else 0.5
        return round(self.start + share * (self.end - self.start), 1)


def _colour(name: str, otherwise: str) -> str:
    """Return the colour of the scheme in a series' name, as in all figures, or another one."""
    return next((colour for scheme, colour in COLOURS.items() if scheme in name.split(".")), otherwise)


def _line(points: Sequence[tuple[float, float]], across: _Axis, up: _Axis, colour: str, dashes: str) -> Html:
    places = [(across.place(x), up.place(y)) for x, y in points]
    dots = [html('<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>', x=x, y=y, colour=colour) for x, y in places]
    return html(
        '<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" '
        'stroke-dasharray="{dashes}"/>{dots}',
        points=" ".join(f"{x},{y}" for x, y in places),
        colour=colour,
        dashes=dashes,
        dots=joined(dots if len(dots) <= 30 else dots[-1:]),
    )


def _labels(across: _Axis, up: _Axis) -> Html:
    """Return the ends of both axes."""
    ends = [(_LEFT - 6, up.place(value) + 4, "end", f"{value:.3g}") for value in dict.fromkeys((up.low, up.high))]
    ends += [
        (across.place(value), _HEIGHT - 8, "middle", _step(value)) for value in dict.fromkeys((across.low, across.high))
    ]
    return joined(
        html(
            '<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="12" fill="currentColor">{value}</text>',
            x=x,
            y=y,
            anchor=anchor,
            value=value,
        )
        for x, y, anchor, value in ends
    )


def _step(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e7 else f"{value:.3g}"


def _names(across: _Axis, up: _Axis) -> Html:
    """Return what the axes show, and which of them are logarithmic."""
    return html(
        '<text x="{middle}" y="{y}" text-anchor="middle" font-size="12" fill="currentColor">step{across}</text>{up}',
        middle=(_LEFT + _WIDTH - _RIGHT) / 2,
        y=_HEIGHT - 8,
        across=" (logarithmic)" if across.is_log else "",
        up=html(
            '<text x="{x}" y="{y}" font-size="12" fill="currentColor">logarithmic</text>', x=_LEFT + 8, y=_HEIGHT - 34
        )
        if up.is_log
        else "",
    )


def _key(name: str, colour: str, dashes: str) -> Html:
    return html(
        '<span class="key"><svg width="26" height="10" aria-hidden="true"><path d="M0,5H26" stroke="{colour}" '
        'stroke-width="2.5" stroke-dasharray="{dashes}"/></svg> {name}</span>',
        colour=colour,
        dashes=dashes,
        name=name[:40],
    )
