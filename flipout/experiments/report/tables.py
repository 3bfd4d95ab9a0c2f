"""Tables of the report. A family of many rows, such as one for each layer, folds into a line that can be opened."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from .markup import Html, html, joined, lines, link
from .values import count

MANY = 10  # rows of one family, such as the slopes of ten layers


@dataclass(frozen=True)
class Column:
    name: str
    look: str = ""  # a class of the style sheet
    link: str = ""


@dataclass(frozen=True)
class PageRow:
    """Head and cells are text or HTML. Rows of one family differ in their subject alone."""

    head: str
    cells: Sequence[str]
    family: str = ""
    title: str = ""  # of the family
    attributes: Html | None = None
    holds: bool | None = None
    broken: bool = False


def quantity_row(key: str, cells: Sequence[str]) -> PageRow:
    """Return the row of a number, whose key is "quantity" or "subject: quantity"."""
    quantity = key.partition(": ")[2]
    return PageRow(key, cells, quantity, quantity)


def table(kind: str, title: str, columns: Sequence[Column], rows: Sequence[PageRow], noun: str = "number") -> Html:
    """Return a table. `kind` is a class of the style sheet; a "wide" table scrolls in its own box."""
    families: dict[str, list[PageRow]] = defaultdict(list)
    for row in rows:
        families[row.family].append(row)
    folded = [members for family, members in families.items() if family and len(members) >= MANY]
    rest = [row for row in rows if not any(row is member for members in folded for member in members)]
    return lines([_table(kind, title, columns, rest), *(_folded(kind, columns, members, noun) for members in folded)])


def _folded(kind: str, columns: Sequence[Column], rows: Sequence[PageRow], noun: str) -> Html:
    title = rows[0].title
    verdicts = [row.holds for row in rows if row.holds is not None]
    shown = f"{sum(verdicts)} of {len(verdicts)} hold" if verdicts else count(len(rows), noun)
    return html(
        """<details class="family"{open}>
<summary>{title} <span class="many">{shown}</span></summary>
{table}
</details>""",
        open=html(" open") if any(row.broken for row in rows) else html(""),
        title=title,
        shown=shown,
        table=_table(kind, title, columns, rows),
    )


def _table(kind: str, title: str, columns: Sequence[Column], rows: Sequence[PageRow]) -> Html:
    """Return one table. The roles keep it a table for screen readers when the style sheet folds its rows."""
    if not rows:
        return html("")
    markup = html(
        """<table class="{kind}" role="table">
<caption class="unseen">{title}</caption>
<thead role="rowgroup"><tr role="row">{heads}</tr></thead>
<tbody role="rowgroup">
{rows}
</tbody>
</table>""",
        kind=kind,
        title=title,
        heads=joined(map(_head, columns)),
        rows=lines(_row(columns, row) for row in rows),
    )
    if "wide" not in kind.split():
        return markup
    return html(
        '<div class="scrolls" role="region" tabindex="0" aria-label="{title}">\n{table}\n</div>',
        title=title,
        table=markup,
    )


def _head(column: Column) -> Html:
    name = link(column.link, column.name) if column.link else column.name
    return html('<th scope="col" role="columnheader" class="{look}">{name}</th>', look=column.look, name=name)


def _row(columns: Sequence[Column], row: PageRow) -> Html:
    cells = (
        html('<td role="cell" data-label="{column.name}" class="{column.look}">{cell}</td>', column=column, cell=cell)
        for column, cell in zip(columns[1:], row.cells, strict=True)
    )
    head = html('<th scope="row" role="rowheader" class="{look}">{head}</th>', look=columns[0].look, head=row.head)
    return html(
        '<tr role="row"{attributes}>{cells}</tr>', attributes=row.attributes or "", cells=joined([head, *cells])
    )
