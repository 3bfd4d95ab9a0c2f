"""The head of the report: a line for each run, and what is broken."""

from collections.abc import Sequence
from html import escape

from .page_finished import Finished
from .page_tables import Column, Row, table
from .page_values import DASH, count, duration, lines, tally, value_and_interval
from .results import MUST_HOLD, REPORTED

LEGEND = (
    "A claim that <em>must hold</em> is theory: its failure is a bug. A <em>reported</em> one is an observation of the "
    "paper, given with its interval whether it holds or not."
)
COLUMNS = (
    Column("experiment", "experiment"),
    Column("preset", "preset"),
    Column("must hold", "tally"),
    Column("reported", "tally"),
    Column("device"),
    Column("time", "time"),
    Column("date", "date"),
)


def index(runs: Sequence[Finished], compared: Sequence[tuple[str, str]]) -> str:
    """`compared` has the title and the anchor of each comparison."""
    links = ", ".join(f'<a href="#{anchor}">{escape(title)}</a>' for title, anchor in compared)
    return f"""<nav id="summary" aria-labelledby="summary-title">
<h2 id="summary-title">{"Contents" if len(runs) > 1 else "Summary"}</h2>
{table("index", "Runs: claims that hold, device, time and date", COLUMNS, [_run(run) for run in runs])}
{f'<p class="comparisons">Side by side: {links}</p>' if compared else ""}
<p class="note">{LEGEND}</p>
</nav>"""


def broken(runs: Sequence[Finished]) -> str:
    found = [(run, *one) for run in runs for one in run.checks if one[1] in run.result.broken]
    if not found:
        return ""
    claims = []
    for run, anchor, check in found:
        value, interval = value_and_interval(check)
        measured = value if check.interval is None else f"{value} ({interval})"
        claims.append(
            f'<li><a href="#{anchor}">{escape(check.claim)}</a> <span class="where">'
            f"{escape(run.result.experiment)}, {escape(run.result.preset)}: {measured}</span></li>"
        )
    heading = f"{count(len(found), 'claim')} that must hold {'does' if len(found) == 1 else 'do'} not"
    return f"""<section class="broken" aria-labelledby="broken-title">
<h2 id="broken-title"><span aria-hidden="true">✗</span> {heading}</h2>
<ul>
{lines(claims)}
</ul>
</section>"""


def _run(run: Finished) -> Row:
    result = run.result
    own = f" · {escape(run.own_name)}" if run.own_name else ""
    link = f'<a href="#{run.anchor}">{escape(result.experiment)}</a>{own}'
    cells = [
        escape(result.preset),
        _tally(run, MUST_HOLD),
        _tally(run, REPORTED),
        escape(run.device),
        duration(run.seconds),
        f'<time datetime="{run.started.isoformat()}">{run.started:%Y-%m-%d}</time>',
    ]
    return Row(run.anchor, f'{link} <span class="title">{escape(result.title)}</span>', cells)


def _tally(run: Finished, kind: str) -> str:
    checks = [check for check in run.result.checks if check.kind == kind]
    if not checks:
        return DASH
    if all(check.holds for check in checks):
        return f'<span class="all">{tally(checks)}</span>'
    mark = '<span aria-hidden="true">✗</span> ' if kind == MUST_HOLD else ""
    return f'<span class="{"broken" if kind == MUST_HOLD else "some"}">{mark}{tally(checks)}</span>'
