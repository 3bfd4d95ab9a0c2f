"""What a notebook shows: a table as HTML, with every text escaped."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

# Styles of the elements themselves, since viewers strip style sheets. Colours are inherited, or grey that shows on both
# light and dark.
_BOX = "max-height: 32em; overflow: auto"
_TABLE = "border-collapse: collapse; font-variant-numeric: tabular-nums"
_CELL = "padding: 0.15em 0.8em; border-top: 1px solid rgba(128, 128, 128, 0.35); text-align: "


def html_table(title: str, columns: Mapping[str, Sequence[str]], notes: Iterable[str] = ()) -> str:
    """Return a table as HTML that needs nothing else and is readable on light and dark backgrounds.

    Args:
        title: Stands above it.
        columns: Name of each column → its cells. A column of numbers is aligned to the right.
        notes: Paragraphs below it.
    """
    sides = ["right" if all(map(_is_number, cells)) else "left" for cells in columns.values()]
    head = _row("th", columns, sides)
    body = "".join(_row("td", cells, sides) for cells in zip(*columns.values(), strict=True))
    table = f'<table style="{_TABLE}"><thead>{head}</thead><tbody>{body}</tbody></table>'
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f'<div><p>{escape(title)}</p><div style="{_BOX}">{table}</div>{below}</div>'


def _row(tag: str, cells: Iterable[str], sides: Sequence[str]) -> str:
    filled = (f'<{tag} style="{_CELL}{side}">{escape(cell)}</{tag}>' for cell, side in zip(cells, sides, strict=True))
    return f"<tr>{''.join(filled)}</tr>"


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
