"""Markup of the report. Text becomes markup only here, and is escaped here."""

from collections.abc import Iterable
from html import escape
from string import Formatter
from typing import Any, LiteralString


class Html(str):
    """Markup. Only `html` and `joined` make it; every other string is text, and is escaped when it is filled in."""


def html(template: LiteralString, /, **parts: object) -> Html:
    """Fill in a template. Its attributes must be in double quotes.

    Args:
        template: A constant with fields as in `str.format`. The type checker refuses an f-string.
        parts: Values of the fields. What is not `Html` is formatted and escaped.
    """
    return Html(_ESCAPING.format(template, **parts))


def joined(parts: Iterable[str], between: LiteralString = "") -> Html:
    """Join parts by constant markup. What is not `Html` is escaped."""
    return Html(between.join(_ESCAPING.format_field(part, "") for part in parts))


def lines(parts: Iterable[str]) -> Html:
    """Join the parts that are not empty by line breaks."""
    return joined(filter(None, parts), "\n")


def link(anchor: str, text: str) -> Html:
    """Return a link to an element of this page; there are no other links."""
    return html('<a href="#{anchor}">{text}</a>', anchor=anchor, text=text)


class _Escaping(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        return value if isinstance(value, Html) else escape(_encodable(format(value, format_spec)))


def _encodable(text: str) -> str:
    """Return a text with escapes for what UTF-8 lacks: names of files may have it."""
    return text.encode("utf-8", "backslashreplace").decode()


_ESCAPING = _Escaping()
