"""One run in the report: its claim, numbers, figures and checks, each check beside the figure it is seen in."""

from collections.abc import Mapping
from html import escape
from typing import Any

from .page_finished import Finished
from .page_tables import Column, Row, table
from .page_values import DASH, count, duration, holds, lines, number, setting, tally, value_and_interval
from .results import MUST_HOLD, Check, Figure, Number

NUMBERS = (Column("quantity", "quantity"), Column("paper", "number"), Column("ours", "number"))
CHECKS = (
    Column("claim", "claim"),
    Column("kind", "kind"),
    Column("value", "number value"),
    Column("interval", "number interval"),
    Column("holds", "holds"),
)


def article(run: Finished) -> str:
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
{_figures(run)}
{_checks(run)}
{_environment(run)}
<details>
<summary>Configuration</summary>
{_terms(run.config)}
</details>
<p class="back"><a href="#summary"><span aria-hidden="true">↑</span> Back to the top</a></p>
</article>"""


def _where(run: Finished) -> str:
    parts = [run.result.experiment, run.result.preset, run.own_name, f"{run.started:%Y-%m-%d}", _cost(run)]
    return escape(" · ".join(filter(None, parts)))


def _cost(run: Finished) -> str:
    return f"{duration(run.seconds)} on {run.device}"


def _numbers(run: Finished) -> str:
    measured, paper = run.result.measured, run.result.paper

    def cell(numbers: Mapping[str, Number], key: str) -> str:
        return number(numbers[key]) if key in numbers else DASH

    rows = [
        Row(key, escape(key), [cell(paper, key), cell(measured, key)]) for key in dict.fromkeys([*measured, *paper])
    ]
    title = "The paper’s number beside ours"
    return lines([f"<h3>{title}</h3>", table("numbers", title, NUMBERS, rows)]) if rows else ""


def _figures(run: Finished) -> str:
    shown = (_figure(run, figure, image) for figure, image in zip(run.result.figures, run.images, strict=True))
    return lines([f'<h3 id="figures-{run.anchor}">Figures</h3>', *shown]) if run.images else ""


def _figure(run: Finished, figure: Figure, image: str) -> str:
    caption = escape(figure.caption)
    return f"""<figure id="{_figure_id(run, figure.name)}">
<div class="plate"><img alt="{caption}" src="data:image/svg+xml;base64,{image}"></div>
<figcaption><b>{escape(figure.name)}</b> {caption}</figcaption>
{_seen(run, figure)}
</figure>"""


def _seen(run: Finished, figure: Figure) -> str:
    """The way back, to the checks that can be seen in a figure."""
    own = [(anchor, check) for anchor, check in run.checks if check.figure == figure.name]
    links = (
        f'<li><span aria-hidden="true">{"✓" if check.holds else "✗"}</span> '
        f'<a href="#{anchor}">{escape(check.claim)}</a></li>'
        for anchor, check in own
    )
    if not own:
        return ""
    return f"""<details class="seen">
<summary>Checks to be seen here <span class="many">{tally([check for _, check in own])} hold</span></summary>
<ul>
{lines(links)}
</ul>
</details>"""


def _checks(run: Finished) -> str:
    checks = run.result.checks
    if not checks:
        return ""
    known = {figure.name for figure in run.result.figures} & {check.figure for check in checks}
    columns = (*CHECKS, Column("figure", "figure")) if known else CHECKS
    rows = [_check(run, anchor, check, known) for anchor, check in run.checks]
    figures = ", ".join(
        f'<a href="#{_figure_id(run, figure.name)}">{escape(figure.name)}</a>' for figure in run.result.figures
    )
    note = f'<p class="note">Figures of this run: {figures}.</p>' if figures and not known else ""
    return lines([f'<h3 id="checks-{run.anchor}">Checks</h3>', note, table("checks", "Checks", columns, rows)])


def _check(run: Finished, anchor: str, check: Check, known: set[str]) -> Row:
    cells = [escape(check.kind.replace("_", " ")), *value_and_interval(check), holds(check)]
    if known:
        link = (
            f'<a href="#{_figure_id(run, check.figure)}">{escape(check.figure)}</a>' if check.figure in known else DASH
        )
        cells.append(link)
    attributes = f' id="{anchor}" data-kind="{escape(check.kind)}" data-holds="{str(check.holds).lower()}"'
    broken = check.kind == MUST_HOLD and not check.holds
    return Row(check.claim, escape(check.claim), cells, attributes, check.holds, broken)


def _figure_id(run: Finished, name: str) -> str:
    place = [figure.name for figure in run.result.figures].index(name)
    return f"figure-{place + 1}-{run.anchor}"


def _environment(run: Finished) -> str:
    sessions = run.environment["sessions"]
    stopped = "" if sessions[-1].get("finished", True) else " The last was stopped: what it added is not in here."
    day = f'<time datetime="{run.started.isoformat()}">{run.started:%Y-%m-%d}</time>'
    return f"""<h3>Environment and cost</h3>
<p>{escape(_cost(run))}, in {count(len(sessions), "session")}; started on {day}.{stopped}</p>
{_terms({key: value for key, value in run.facts.items() if key != "device"})}"""


def _terms(facts: Mapping[str, Any]) -> str:
    terms = (f"<div><dt>{escape(key)}</dt><dd>{setting(value)}</dd></div>" for key, value in facts.items())
    return lines(["<dl>", *terms, "</dl>"])
