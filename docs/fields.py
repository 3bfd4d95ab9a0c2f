"""How the API pages read the source: comments behind fields, and examples in docstrings."""

import re

import griffe

MARK = "  # "


class Comments(griffe.Extension):
    """Use the comment behind a field as its description."""

    def on_attribute(self, *, attr: griffe.Attribute, **_: object) -> None:
        if attr.docstring is None and attr.parent is not None and attr.parent.is_class and attr.lineno:
            line = attr.lines_collection[attr.filepath][attr.lineno - 1]  # pyright: ignore[reportArgumentType]
            if MARK in line:
                attr.docstring = griffe.Docstring(line.partition(MARK)[2], parent=attr)


class Examples(griffe.Extension):
    """Render `Example:` as code. Griffe knows only `Examples:`, and would take `>>>` for a quotation."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"(?m)^Example:$", "Examples:", obj.docstring.value)
