"""The report: one self-contained HTML page of finished runs, the paper's number beside ours."""

import json
import math
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..errors import DataError
from ..variance.records import write_whole
from .results import MUST_HOLD, Check, Figure, Number, Result

DASH, MINUS, NBSP, NARROW = "–", "−", "\N{NO-BREAK SPACE}", "\N{NARROW NO-BREAK SPACE}"
# The page may show what it carries and fetch nothing, whatever a result file says.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
LEGEND = (
    "A claim that <em>must hold</em> is theory: its failure is a bug. A <em>reported</em> one is an observation of the "
    "paper, given with its interval whether it holds or not."
)


@dataclass(frozen=True)
class Finished:
    """The content of one folder. `images` are the figures of the result in base64, in order."""

    folder: Path
    anchor: str
    result: Result
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    cost: str
    started: datetime
    images: tuple[str, ...]


def write_page(folders: Sequence[Path], path: Path) -> None:
    """One page of these runs, in this order. All of them are read before anything is written."""
    runs: list[Finished] = []
    for folder in folders:
        runs.append(_read(Path(folder), {run.anchor for run in runs}))
    if not runs:
        raise DataError("No run was given. Expected the folder of at least one finished run: `flipout report RUN...`.")
    if path.is_dir() or not path.parent.is_dir():
        wrong = "is a folder" if path.is_dir() else "is in a folder that does not exist"
        raise DataError(f"{path} {wrong}. Expected the name of a file to write the page to, such as report.html.")
    write_whole(path, _page(runs))


def _read(folder: Path, taken: set[str]) -> Finished:
    finished = "Give the folder of a finished run, as `flipout run NAME` leaves it."
    if not folder.is_dir():
        wrong = "is a file, and a run is a folder" if folder.exists() else "does not exist"
        raise DataError(f"{folder} {wrong}. {finished}")
    if not (folder / "config.json").is_file():
        raise DataError(f"{folder} is not a run: there is no config.json in it. {finished}")
    config = _object(folder / "config.json")
    name = config.get("experiment", "NAME")
    if not (folder / "result.json").is_file():
        raise DataError(
            f"{folder} is unfinished: there is no result.json in it. Finish it with the command that started it and "
            f"--resume (`flipout run {name} ... --resume`), or leave it out of the report."
        )
    result, environment = Result.read(folder / "result.json"), _object(folder / "environment.json")
    try:
        device, sessions = environment["device"], environment["sessions"]
        started = datetime.fromisoformat(sessions[0]["started"])
        cost = f"{duration(math.fsum(session['seconds'] for session in sessions))} on {device}"
    except (LookupError, TypeError, ValueError) as error:
        raise DataError(
            f"{folder / 'environment.json'} does not say what the run cost ({type(error).__name__}: {error}). Expected "
            f"a device, and sessions with started and seconds. Run it again: `flipout run {name} ...`."
        ) from error
    images = tuple(_image(folder / "figures" / f"{figure.name}.svg", name) for figure in result.figures)
    return Finished(folder, _anchor(result.experiment, taken), result, config, environment, cost, started, images)


def _object(path: Path) -> dict[str, Any]:
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(held, dict):
            raise TypeError(f"a JSON object was expected, and this is a {type(held).__name__}")
        return held
    except (OSError, ValueError, TypeError) as error:
        raise DataError(
            f"{path} is not the file that a run writes ({type(error).__name__}: {error}). Give the folder of a "
            "finished run, as `flipout run NAME` leaves it."
        ) from error


def _image(path: Path, name: str) -> str:
    try:
        return b64encode(path.read_bytes()).decode()
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({type(error).__name__}), and result.json names this figure. Draw it again with "
            f"the command that started the run and --resume (`flipout run {name} ... --resume`)."
        ) from error


def _anchor(experiment: str, taken: set[str]) -> str:
    anchor = first = "run-" + re.sub(r"[^a-z0-9]+", "-", experiment.lower()).strip("-")
    copy = 1
    while anchor in taken:
        copy += 1
        anchor = f"{first}-{copy}"
    return anchor


def number(value: Number | None, decimals: int | None = None) -> str:
    """As HTML, with four significant digits unless the decimals are given; integers and strings as they are."""
    if isinstance(value, str):
        return escape(value)
    if value is None or not math.isfinite(value):
        return "not finite"
    comma = "," if abs(value) >= 10_000 else ""
    if decimals is not None:
        shown = f"{value:{comma}.{decimals}f}"
    elif isinstance(value, int):
        shown = f"{value:{comma}}"
    elif value and not 1e-3 <= abs(value) < 1e6:
        mantissa, exponent = f"{value:.3e}".split("e")
        shown = f"{_short(mantissa)}{NARROW}×{NARROW}10<sup>{int(exponent)}</sup>"
    else:
        places = max(0, 3 - math.floor(math.log10(abs(value)))) if value else 0
        shown = _short(f"{value:{comma}.{places}f}")
    return f'<data value="{value}">{shown.replace("-", MINUS)}</data>'


def _short(digits: str) -> str:
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def duration(seconds: float) -> str:
    total = round(seconds)
    for large, small, size, part in (("d", "h", 86400, 3600), ("h", "min", 3600, 60), ("min", "s", 60, 1)):
        if total >= size:
            return f"{total // size}{NBSP}{large} {total % size // part}{NBSP}{small}"
    return f"{seconds:.2g}{NBSP}s"


def _page(runs: Sequence[Finished]) -> str:
    checks = [check for run in runs for check in run.result.checks]
    several = len(runs) > 1
    title = f"{len(runs)} experiments" if several else escape(runs[0].result.title)
    css = files("flipout.experiments").joinpath("page.css").read_text(encoding="utf-8")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<link rel="icon" href="data:,">
<title>{title} · flipout report</title>
<style>
{css}</style>
</head>
<body>
<header>
<p class="name">flipout report</p>
<h1>The paper’s numbers beside ours</h1>
<p class="lead">{_count(len(runs), "experiment")}. {_tally(checks)}.</p>
</header>
<main>
{_broken(runs)}
<nav id="summary" aria-labelledby="summary-title">
<h2 id="summary-title">{"Contents" if several else "Summary"}</h2>
<ol>
{_lines(_entry(run) for run in runs)}
</ol>
<p class="note">{LEGEND}</p>
</nav>
{_lines(_article(run) for run in runs)}
</main>
</body>
</html>
"""


def _lines(parts: Iterable[str]) -> str:
    return "\n".join(part for part in parts if part)


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _tally(checks: Sequence[Check]) -> str:
    if not checks:
        return "No checks"
    return f"{sum(check.holds for check in checks)} of {_count(len(checks), 'check')} hold"


def _broken(runs: Sequence[Finished]) -> str:
    broken = [(run, check) for run in runs for check in run.result.broken]
    if not broken:
        return ""
    claims = (
        f'<li><a href="#checks-{run.anchor}">{escape(check.claim)}</a> <span class="where">'
        f"{escape(run.result.experiment)}, {escape(run.result.preset)}: {_measured(check)}</span></li>"
        for run, check in broken
    )
    heading = f"{_count(len(broken), 'claim')} that must hold {'does' if len(broken) == 1 else 'do'} not"
    return f"""<section class="broken" aria-labelledby="broken-title">
<h2 id="broken-title"><span aria-hidden="true">✗</span> {heading}</h2>
<ul>
{_lines(claims)}
</ul>
</section>"""


def _entry(run: Finished) -> str:
    result = run.result
    held = {check.holds for check in result.checks}
    state = "broken" if result.broken else "mixed" if False in held else "holds" if held else "empty"
    return f"""<li>
<a href="#{run.anchor}">{escape(result.title)}</a>
<p class="tally {state}">{_tally(result.checks)}{f", {len(result.broken)} broken" if result.broken else ""}</p>
<p class="where">{_where(run)}</p>
</li>"""


def _where(run: Finished) -> str:
    name, preset, folder = run.result.experiment, run.result.preset, run.folder.resolve().name
    own = [] if folder in (name, preset, f"{name}-{preset}") else [folder]
    return escape(" · ".join([name, preset, *own, f"{run.started:%Y-%m-%d}", run.cost]))


def _article(run: Finished) -> str:
    result = run.result
    return f"""<article id="{run.anchor}" aria-labelledby="title-{run.anchor}">
<header>
<h2 id="title-{run.anchor}">{escape(result.title)}</h2>
<p class="where">{_where(run)}</p>
</header>
<h3>The claim</h3>
<p class="claim">{escape(result.claim)}</p>
<h3>The setting</h3>
<p>{escape(result.setting)}</p>
{_numbers(run)}
{_figures(result.figures, run.images)}
{_checks(run)}
{_environment(run)}
<details>
<summary>Configuration</summary>
{_terms(run.config)}
</details>
<p class="back"><a href="#summary"><span aria-hidden="true">↑</span> Back to the top</a></p>
</article>"""


def _numbers(run: Finished) -> str:
    measured, paper = run.result.measured, run.result.paper

    def cell(numbers: Mapping[str, Number], key: str) -> str:
        return f'<td class="number">{number(numbers[key]) if key in numbers else DASH}</td>'

    rows = (
        f'<tr><th scope="row">{escape(key)}</th>{cell(paper, key)}{cell(measured, key)}</tr>'
        for key in dict.fromkeys([*measured, *paper])
    )
    return _table(
        "numbers", "The paper’s number beside ours", f"numbers-{run.anchor}", ("quantity", "paper", "ours"), rows
    )


def _figures(figures: Sequence[Figure], images: Sequence[str]) -> str:
    shown = (
        f'<figure>\n<div class="plate"><img alt="{escape(figure.caption)}" src="data:image/svg+xml;base64,{image}">'
        f"</div>\n<figcaption>{escape(figure.caption)}</figcaption>\n</figure>"
        for figure, image in zip(figures, images, strict=True)
    )
    return _lines(["<h3>Figures</h3>", *shown]) if figures else ""


def _checks(run: Finished) -> str:
    checks = sorted(run.result.checks, key=lambda check: check.kind != MUST_HOLD)
    return _table(
        "checks",
        "Checks",
        f"checks-{run.anchor}",
        ("claim", "kind", "value", "interval", "holds"),
        map(_check, checks),
    )


def _check(check: Check) -> str:
    value, interval = _value(check)
    holds = (
        '<span aria-hidden="true">✓</span> holds' if check.holds else '<span aria-hidden="true">✗</span> does not hold'
    )
    return (
        f'<tr role="row" data-kind="{escape(check.kind)}" data-holds="{str(check.holds).lower()}">'
        f'<th scope="row" role="rowheader">{escape(check.claim)}</th>'
        f'<td role="cell" data-label="kind">{escape(check.kind.replace("_", " "))}</td>'
        f'<td role="cell" data-label="value" class="number">{value}</td>'
        f'<td role="cell" data-label="interval" class="number">{interval}</td>'
        f'<td role="cell" data-label="holds" class="holds">{holds}</td></tr>'
    )


def _value(check: Check) -> tuple[str, str]:
    """Value and interval, to the same decimals: those that show the width of the interval to three digits."""
    if check.interval is None:
        return number(check.value), DASH
    low, high = check.interval
    if low is None or high is None:
        ends = [f"above {number(low)}"] * (low is not None) + [f"below {number(high)}"] * (high is not None)
        return number(check.value), " ".join(ends) or DASH
    decimals = None
    if check.value is not None and low < high and max(abs(low), abs(high)) < 1e6:
        decimals = max(0, 2 - math.floor(math.log10(high - low)))
        decimals = decimals if decimals <= 6 else None
    return number(check.value, decimals), f"{number(low, decimals)} to {number(high, decimals)}"


def _measured(check: Check) -> str:
    value, interval = _value(check)
    return value if check.interval is None else f"{value} ({interval})"


def _table(kind: str, title: str, anchor: str, columns: Sequence[str], rows: Iterable[str]) -> str:
    """The roles keep it a table for screen readers where the style sheet folds its rows."""
    body = _lines(rows)
    if not body:
        return ""
    head = "".join(f'<th scope="col" role="columnheader" class="{column}">{column}</th>' for column in columns)
    return f"""<h3 id="{anchor}">{title}</h3>
<table class="{kind}" role="table" aria-labelledby="{anchor}">
<thead role="rowgroup"><tr role="row">{head}</tr></thead>
<tbody role="rowgroup">
{body}
</tbody>
</table>"""


def _environment(run: Finished) -> str:
    sessions = _count(len(run.environment["sessions"]), "session")
    day = f'<time datetime="{run.started.isoformat()}">{run.started:%Y-%m-%d}</time>'
    return f"""<h3>Environment and cost</h3>
<p>{escape(run.cost)}, in {sessions}; started on {day}.</p>
{_terms({key: value for key, value in run.environment.items() if key not in ("device", "sessions")})}"""


def _terms(facts: Mapping[str, Any]) -> str:
    def fact(key: str, value: Any) -> str:
        shown = value if isinstance(value, str) else "none" if value is None else json.dumps(value, ensure_ascii=False)
        return f"<div><dt>{escape(key)}</dt><dd>{escape(shown)}</dd></div>"

    return _lines(["<dl>", *(fact(key, value) for key, value in facts.items()), "</dl>"])
