"""Runs of one experiment side by side: the settings in which they differ, their numbers, their checks."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..running.results import MUST_HOLD, Check
from ..running.runs import flat
from .finished import Finished
from .markup import Html, html, joined
from .tables import Column, Row, table
from .values import BACK, DASH, holds, number, setting, theory_first, value_and_interval


def comparable(runs: Sequence[Finished]) -> list[list[Finished]]:
    """Groups of two or more different runs of one experiment."""
    groups: dict[str, dict[Path, Finished]] = {}
    for run in runs:
        groups.setdefault(run.result.experiment, {}).setdefault(run.folder, run)
    return [list(group.values()) for group in groups.values() if len(group) > 1]


def heading(runs: Sequence[Finished]) -> tuple[str, str]:
    """Title and anchor."""
    return f"Compared: {runs[0].result.experiment}", f"compared-{runs[0].anchor}"


def comparison(runs: Sequence[Finished]) -> Html:
    title, anchor = heading(runs)
    columns = [Column(f"{run.name}, {run.result.preset}", "run", run.anchor) for run in runs]
    return html(
        """<section class="compared" id="{anchor}" aria-labelledby="title-{anchor}">
<h2 id="title-{anchor}">{title}</h2>
<h3>Settings in which they differ</h3>
{settings}
<h3>Numbers</h3>
{numbers}
<h3>Checks side by side</h3>
{checks}
{back}
</section>""",
        anchor=anchor,
        title=title,
        settings=_settings(runs, columns) or html("<p>None: settings and environment are the same.</p>"),
        numbers=_numbers(runs, columns) or html("<p>None was measured.</p>"),
        checks=_checks(runs, columns) or html("<p>There are none.</p>"),
        back=BACK,
    )


def _settings(runs: Sequence[Finished], columns: Sequence[Column]) -> Html:
    facts = [{**flat(run.config), **flat(run.facts, "environment.")} for run in runs]
    differ = [key for key in _keys(facts) if any(own.get(key, _ABSENT) != facts[0].get(key, _ABSENT) for own in facts)]
    rows = [Row(key, joined(re.split("(?<=[._])", key), "<wbr>"), _cells(facts, key, setting)) for key in differ]
    return table("wide", "Settings in which they differ", [Column("setting", "head"), *columns], rows, "setting")


_ABSENT = object()


def _numbers(runs: Sequence[Finished], columns: Sequence[Column]) -> Html:
    measured, paper = [run.result.measured for run in runs], [run.result.paper for run in runs]
    rows = []
    for key in _keys([*measured, *paper]):
        said = dict.fromkeys(number(own[key]) for own in paper if key in own)
        rows.append(Row(key, key, [joined(said, ", ") or DASH, *_cells(measured, key, number)]))
    columns = [Column("quantity", "head"), Column("paper", "run"), *columns]
    return table("wide numeric", "Numbers of these runs beside the paper’s", columns, rows)


def _checks(runs: Sequence[Finished], columns: Sequence[Column]) -> Html:
    checks = [{_claimed(check): check for check in theory_first(run.result.checks)} for run in runs]
    known = {claim: check for own in checks for claim, check in own.items()}
    rows = [
        Row(claim, claim, [known[claim].kind.replace("_", " "), *_cells(checks, claim, _check)])
        for claim in map(_claimed, theory_first(known.values()))
    ]
    columns = [Column("claim", "head"), Column("kind"), *columns]
    return table("wide", "Checks of these runs", columns, rows, "check")


def _claimed(check: Check) -> str:
    """Without what is remarked behind it on the run that it is of, such as its number of seeds."""
    return re.sub(r"; [^()]*$", "", check.claim)


def _check(check: Check) -> Html:
    value, interval = value_and_interval(check)
    return html(
        '<div class="{look}" data-holds="{data}">{holds}</div><div>{value}</div>{interval}',
        look="holds broken" if check.kind == MUST_HOLD and not check.holds else "holds",
        data=str(check.holds).lower(),
        holds=holds(check),
        value=value,
        interval="" if check.interval is None else html("<div>{interval}</div>", interval=interval),
    )


def _keys(mappings: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for own in mappings for key in own))


def _cells(mappings: Sequence[Mapping[str, Any]], key: str, shown: Callable[[Any], str]) -> list[str]:
    return [shown(own[key]) if key in own else DASH for own in mappings]
