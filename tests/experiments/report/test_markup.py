"""A template escapes every value but markup."""

import ast
import re
from pathlib import Path

import pytest

from flipout.experiments.report import page
from flipout.experiments.report.markup import Html, html, joined


def test_a_template_escapes_all_but_markup():
    inner = html("<b>{x}</b>", x="<i>")
    assert inner == "<b>&lt;i&gt;</b>"
    assert html('<a href="#{x}">{y}</a>{n:.1f}', x='"', y=inner, n=1.25) == f'<a href="#&quot;">{inner}</a>1.2'
    assert joined(["<", inner], "<br>") == f"&lt;<br>{inner}"
    assert (
        html("{x}", x=f"{inner}") == "&lt;b&gt;&amp;lt;i&amp;gt;&lt;/b&gt;"
    )  # no longer markup: safe, and seen at once


SOURCES = sorted(Path(page.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_markup_is_made_of_constant_templates_alone(source):
    """The type checker refuses an f-string as a template; this test refuses markup outside templates."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            assert "<" not in "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "html":
                (template,) = node.args
                assert isinstance(template, ast.Constant)
                tags = re.findall(r"<[^>]*>", str(template.value))
                bare = [tag for tag in tags if "{" in re.sub(r'="[^"]*"', "", tag)]
                assert all(re.fullmatch(r"<(details|tr)[^{}]*\{(open|attributes)\}>", tag) for tag in bare), bare
            if node.func.id == Html.__name__:
                assert source.stem in ("markup", "page")
