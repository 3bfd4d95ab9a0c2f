"""One run in the report: its claim, numbers, figures and checks."""

from collections.abc import Mapping
from typing import Any

from ..running.results import MUST_HOLD, Check, Figure, Number
from .finished import Finished
from .markup import Html, html, joined, lines, link
from .tables import Column, PageRow, quantity_row, table
from .values import BACK, DASH, count, day, duration, mark, number, setting, tally, value_and_interval, verdict

NUMBERS = (Column("quantity", "quantity"), Column("paper", "number"), Column("ours", "number"))
CHECKS = (
    Column("claim", "claim"),
    Column("kind", "kind"),
    Column("value", "number value"),
    Column("interval", "number interval"),
    Column("holds", "holds"),
)


def article_of(run: Finished) -> Html:
    """Return the article about a run."""
    return html(
        """<article id="{run.anchor}" aria-labelledby="title-{run.anchor}">
<header>
<h2 id="title-{run.anchor}">{run.result.title}</h2>
<p class="where">{where}</p>
</header>
<h3>The claim</h3>
<p class="claim">{run.result.claim}</p>
<h3>The setting</h3>
<p>{run.result.setting}</p>
{figures}
{numbers}
{checks}
{environment}
<details>
<summary>Configuration</summary>
{configuration}
</details>
{back}
</article>""",
        run=run,
        where=_where(run),
        numbers=_numbers(run),
        figures=_figures(run),
        checks=_checks(run),
        environment=_environment(run),
        configuration=_terms(run.config),
        back=BACK,
    )


def _where(run: Finished) -> str:
    parts = [run.result.experiment, run.result.preset, run.own_name, f"{run.started:%Y-%m-%d}", _cost(run)]
    return " · ".join(filter(None, parts))


def _cost(run: Finished) -> str:
    return f"{duration(run.seconds)} on {run.device}"


def _numbers(run: Finished) -> Html:
    measured, paper = run.result.measured, run.result.paper

    def cell(numbers: Mapping[str, Number | None], key: str) -> str:
        return number(numbers[key]) if key in numbers else DASH

    rows = [quantity_row(key, [cell(paper, key), cell(measured, key)]) for key in dict.fromkeys([*measured, *paper])]
    title = "The paper’s number beside ours"
    heading = html("<h3>{title}</h3>", title=title)
    return lines([heading, table("numbers", title, NUMBERS, rows)]) if rows else html("")


def _figures(run: Finished) -> Html:
    shown = (_figure(run, figure, image) for figure, image in zip(run.result.figures, run.images, strict=True))
    heading = html('<h3 id="figures-{anchor}">Figures</h3>', anchor=run.anchor)
    return lines([heading, *shown]) if run.images else html("")


def _figure(run: Finished, figure: Figure, image: str) -> Html:
    return html(
        """<figure id="{id}">
<div class="plate"><img alt="{figure.caption}" src="data:image/svg+xml;base64,{image}"></div>
<figcaption><b>{figure.name}</b> {figure.caption}</figcaption>
{seen}
</figure>""",
        id=_figure_id(run, figure.name),
        figure=figure,
        image=image,
        seen=_seen(run, figure),
    )


def _seen(run: Finished, figure: Figure) -> Html:
    """Return links back to the checks that a figure shows."""
    shown = [(anchor, check) for anchor, check in run.checks if check.figure == figure.name]
    links = (
        html(
            '<li><span aria-hidden="true">{mark}</span> {claim}</li>',
            mark=mark(run.result, check),
            claim=link(anchor, check.statement),
        )
        for anchor, check in shown
    )
    if not shown:
        return html("")
    return html(
        """<details class="seen">
<summary>Checks shown here <span class="many">{tally} hold</span></summary>
<ul>
{links}
</ul>
</details>""",
        tally=tally([check for _, check in shown]),
        links=lines(links),
    )


def _checks(run: Finished) -> Html:
    checks = run.result.checks
    if not checks:
        return html("")
    known = {figure.name for figure in run.result.figures} & {check.figure for check in checks}
    columns = (*CHECKS, Column("figure", "figure")) if known else CHECKS
    rows = [_check(run, anchor, check, known) for anchor, check in run.checks]
    figures = joined((_to_figure(run, figure.name) for figure in run.result.figures), ", ")
    note = html('<p class="note">Figures of this run: {figures}.</p>', figures=figures)
    heading = html('<h3 id="checks-{anchor}">Checks</h3>', anchor=run.anchor)
    return lines([heading, note if figures and not known else "", table("checks", "Checks", columns, rows)])


def _check(run: Finished, anchor: str, check: Check, known: set[str]) -> PageRow:
    cells = [check.kind.replace("_", " "), *value_and_interval(check), verdict(run.result, check)]
    if known:
        cells.append(_to_figure(run, check.figure) if check.figure in known else DASH)
    attributes = html(
        ' id="{anchor}" data-kind="{kind}" data-holds="{holds}"',
        anchor=anchor,
        kind=check.kind,
        holds=str(check.holds).lower(),
    )
    broken = check.kind == MUST_HOLD and not check.holds
    return PageRow(check.statement, cells, check.family, check.quantity, attributes, check.holds, broken)


def _to_figure(run: Finished, name: str) -> Html:
    return link(_figure_id(run, name), name)


def _figure_id(run: Finished, name: str) -> str:
    place = [figure.name for figure in run.result.figures].index(name)
    return f"figure-{place + 1}-{run.anchor}"


def _environment(run: Finished) -> Html:
    return html(
        """<h3>Environment and cost</h3>
<p>{cost}, in {sessions}; started on {day}.{stopped}{unchecked}</p>
{facts}""",
        cost=_cost(run),
        sessions=count(len(run.sessions), "session"),
        day=day(run.started),
        stopped="" if run.sessions[-1].finished else " The last one was stopped: this page lacks what it added.",
        unchecked=f" {count(len(run.unchecked), 'file')} without a checksum: unchecked." if run.unchecked else "",
        facts=_terms({key: value for key, value in run.facts.items() if key != "device"}),
    )


def _terms(facts: Mapping[str, Any]) -> Html:
    terms = (
        html("<div><dt>{key}</dt><dd>{value}</dd></div>", key=key, value=setting(value)) for key, value in facts.items()
    )
    return lines([html("<dl>"), *terms, html("</dl>")])
