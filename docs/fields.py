"""The comment behind a field is its line on the API pages."""

import griffe

MARK = "  # "


class Comments(griffe.Extension):
    def on_attribute(self, *, attr: griffe.Attribute, **_: object) -> None:
        if attr.docstring is None and attr.parent is not None and attr.parent.is_class and attr.lineno:
            line = attr.lines_collection[attr.filepath][attr.lineno - 1]  # pyright: ignore[reportArgumentType]
            if MARK in line:
                attr.docstring = griffe.Docstring(line.partition(MARK)[2], parent=attr)
