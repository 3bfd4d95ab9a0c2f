"""The head of the report: a line for each run, and the claims that must hold and do not."""

from collections.abc import Sequence

from ..running.results import MUST_HOLD, REPORTED, Check
from .finished import Finished
from .markup import Html, html, joined, lines, link
from .tables import Column, PageRow, table
from .values import DASH, count, day, duration, tally, value_and_interval

LEGEND = html(
    "A claim that <em>must hold</em> is theory: its failure is a bug. A <em>reported</em> claim is an observation of "
    "the paper, given with its interval whether it holds or not."
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


def table_of_runs(runs: Sequence[Finished], compared: Sequence[tuple[str, str]]) -> Html:
    """Return the table of runs. `compared` has the title and the anchor of each comparison."""
    links = joined((link(anchor, title) for title, anchor in compared), ", ")
    return html(
        """<nav id="summary" aria-labelledby="summary-title">
<h2 id="summary-title">{heading}</h2>
{runs}
{comparisons}
<p class="note">{legend}</p>
</nav>""",
        heading="Contents" if len(runs) > 1 else "Summary",
        runs=table("index", "Runs: claims that hold, device, time and date", COLUMNS, [_run(run) for run in runs]),
        comparisons=html('<p class="comparisons">Side by side: {links}</p>', links=links) if compared else "",
        legend=LEGEND,
    )


def broken(runs: Sequence[Finished]) -> Html:
    """Return the list of claims that must hold and do not; empty if there are none."""
    found = [(run, *numbered) for run in runs for numbered in run.checks if numbered[1] in run.result.broken]
    if not found:
        return html("")
    return html(
        """<section class="broken" aria-labelledby="broken-title">
<h2 id="broken-title"><span aria-hidden="true">✗</span> {count} that must hold {do} not</h2>
<ul>
{claims}
</ul>
</section>""",
        count=count(len(found), "claim"),
        do="does" if len(found) == 1 else "do",
        claims=lines(_broken(*broken) for broken in found),
    )


def _broken(run: Finished, anchor: str, check: Check) -> Html:
    value, interval = value_and_interval(check)
    return html(
        '<li>{claim} <span class="where">{result.experiment}, {result.preset}: {measured}</span></li>',
        claim=link(anchor, check.statement),
        result=run.result,
        measured=value if check.interval is None else html("{value} ({interval})", value=value, interval=interval),
    )


def _run(run: Finished) -> PageRow:
    result = run.result
    head = html(
        '{experiment}{name} <span class="title">{title}</span>',
        experiment=link(run.anchor, result.experiment),
        name=f" · {run.own_name}" if run.own_name else "",
        title=result.title,
    )
    cells = [
        result.preset,
        _tally(run, MUST_HOLD),
        _tally(run, REPORTED),
        run.device,
        duration(run.seconds),
        day(run.started),
    ]
    return PageRow(head, cells)


def _tally(run: Finished, kind: str) -> str:
    checks = [check for check in run.result.checks if check.kind == kind]
    if not checks:
        return DASH
    if all(check.holds for check in checks):
        return html('<span class="all">{tally}</span>', tally=tally(checks))
    if kind == MUST_HOLD:
        return html('<span class="broken"><span aria-hidden="true">✗</span> {tally}</span>', tally=tally(checks))
    return html('<span class="some">{tally}</span>', tally=tally(checks))
