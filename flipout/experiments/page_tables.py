"""Tables of the report. What is said of many layers, one by one, folds into a line that can be opened."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from .page_values import count, lines

MANY = 10  # rows that differ in their subject alone: "conv1: slope of flipout", "conv2: slope of flipout", ...


@dataclass(frozen=True)
class Column:
    name: str
    look: str = ""  # a class of the style sheet
    link: str = ""


@dataclass(frozen=True)
class Row:
    """`name` is text, "subject: what is said of it" or that alone; head and cells are HTML."""

    name: str
    head: str
    cells: Sequence[str]
    attributes: str = ""
    holds: bool | None = None
    broken: bool = False


def table(kind: str, title: str, columns: Sequence[Column], rows: Sequence[Row], noun: str = "number") -> str:
    """`kind` is a class of the style sheet; "wide" scrolls in a box of its own."""
    families: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        _, colon, said = row.name.partition(": ")
        families[said if colon else ""].append(row)
    folded = {said: own for said, own in families.items() if said and len(own) >= MANY}
    rest = [row for row in rows if not any(row is other for own in folded.values() for other in own)]
    return lines(
        [_table(kind, title, columns, rest), *(_folded(kind, said, columns, own, noun) for said, own in folded.items())]
    )


def _folded(kind: str, said: str, columns: Sequence[Column], rows: Sequence[Row], noun: str) -> str:
    held = [row.holds for row in rows if row.holds is not None]
    shown = f"{sum(held)} of {len(held)} hold" if held else count(len(rows), noun)
    return f"""<details class="family"{" open" if any(row.broken for row in rows) else ""}>
<summary>{escape(said)} <span class="many">{shown}</span></summary>
{_table(kind, said, columns, rows)}
</details>"""


def _table(kind: str, title: str, columns: Sequence[Column], rows: Sequence[Row]) -> str:
    """The roles keep it a table for screen readers where the style sheet folds its rows."""
    if not rows:
        return ""
    heads = (
        f'<th scope="col" role="columnheader" class="{column.look}">'
        + (f'<a href="#{column.link}">{escape(column.name)}</a>' if column.link else escape(column.name))
        + "</th>"
        for column in columns
    )
    made = f"""<table class="{kind}" role="table">
<caption class="unseen">{escape(title)}</caption>
<thead role="rowgroup"><tr role="row">{"".join(heads)}</tr></thead>
<tbody role="rowgroup">
{lines(_row(columns, row) for row in rows)}
</tbody>
</table>"""
    if "wide" not in kind.split():
        return made
    return f'<div class="scrolls" role="region" tabindex="0" aria-label="{escape(title)}">\n{made}\n</div>'


def _row(columns: Sequence[Column], row: Row) -> str:
    cells = (
        f'<td role="cell" data-label="{escape(column.name)}" class="{column.look}">{cell}</td>'
        for column, cell in zip(columns[1:], row.cells, strict=True)
    )
    head = f'<th scope="row" role="rowheader" class="{columns[0].look}">{row.head}</th>'
    return f'<tr role="row"{row.attributes}>{head}{"".join(cells)}</tr>'
