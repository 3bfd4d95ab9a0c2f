"""Runs of one experiment side by side: the settings in which they differ, their numbers, their checks."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..running.folder import flat
from ..running.results import MUST_HOLD, Check, Result
from .finished import Finished
from .markup import Html, html, joined
from .tables import Column, PageRow, quantity_row, table
from .values import BACK, DASH, number, setting, theory_first, value_and_interval, verdict


def comparable(runs: Sequence[Finished]) -> list[list[Finished]]:
    """Return groups of two or more different runs of one experiment."""
    groups: dict[str, dict[Path, Finished]] = {}
    for run in runs:
        groups.setdefault(run.result.experiment, {}).setdefault(run.folder, run)
    return [list(group.values()) for group in groups.values() if len(group) > 1]


def heading(runs: Sequence[Finished]) -> tuple[str, str]:
    """Return the title and the anchor of a comparison."""
    return f"Compared: {runs[0].result.experiment}", f"compared-{runs[0].anchor}"


def comparison_of(runs: Sequence[Finished]) -> Html:
    """Return the section that compares runs of one experiment."""
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
    differ = [
        key
        for key in _keys(facts)
        if any(run_facts.get(key, _ABSENT) != facts[0].get(key, _ABSENT) for run_facts in facts)
    ]
    rows = [PageRow(joined(re.split("(?<=[._])", key), "<wbr>"), _cells(facts, key, setting)) for key in differ]
    return table("wide", "Settings in which they differ", [Column("setting", "head"), *columns], rows, "setting")


_ABSENT = object()


def _numbers(runs: Sequence[Finished], columns: Sequence[Column]) -> Html:
    measured, paper = [run.result.measured for run in runs], [run.result.paper for run in runs]
    rows = []
    for key in _keys([*measured, *paper]):
        quoted = dict.fromkeys(number(quotes[key]) for quotes in paper if key in quotes)
        rows.append(quantity_row(key, [joined(quoted, ", ") or DASH, *_cells(measured, key, number)]))
    columns = [Column("quantity", "head"), Column("paper", "run"), *columns]
    return table("wide numeric", "Numbers of these runs beside the paper’s", columns, rows)


def _checks(runs: Sequence[Finished], columns: Sequence[Column]) -> Html:
    checks = [{check.id: (run.result, check) for check in theory_first(run.result.checks)} for run in runs]
    first = {name: next(by_name[name][1] for by_name in checks if name in by_name) for name in _keys(checks)}
    rows = [
        PageRow(
            check.claim,
            [check.kind.replace("_", " "), *_cells(checks, check.id, partial(_check, check.claim))],
            check.family,
            check.quantity,
        )
        for check in theory_first(first.values())
    ]
    columns = [Column("claim", "head"), Column("kind"), *columns]
    return table("wide", "Checks of these runs", columns, rows, "check")


def _check(claim: str, found: tuple[Result, Check]) -> Html:
    """Return the cell of a check. It repeats the claim only where this run words it otherwise, with other numbers."""
    result, check = found
    value, interval = value_and_interval(check)
    notes = [interval] * (check.interval is not None)
    notes += [note for note in (check.claim if check.claim != claim else "", check.remark) if note]
    return html(
        '<div class="{look}" data-holds="{data}">{holds}</div><div>{value}</div>{notes}',
        look="holds broken" if check.kind == MUST_HOLD and not check.holds else "holds",
        data=str(check.holds).lower(),
        holds=verdict(result, check),
        value=value,
        notes=joined(html("<div>{note}</div>", note=note) for note in notes),
    )


def _keys(mappings: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for mapping in mappings for key in mapping))


def _cells(mappings: Sequence[Mapping[str, Any]], key: str, shown: Callable[[Any], str]) -> list[str]:
    return [shown(mapping[key]) if key in mapping else DASH for mapping in mappings]
