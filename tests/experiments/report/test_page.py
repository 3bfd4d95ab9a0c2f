"""The report is well-formed and self-contained, and escapes everything."""

import json
import re
from itertools import pairwise

import pytest

from flipout.errors import DataError
from flipout.experiments.report.page import write_page
from flipout.experiments.running.results import Check, Figure
from tests.experiments.report.pages import Parsed, finished


@pytest.mark.parametrize("which", ["page", "several"])
def test_the_page_is_well_formed_and_stands_alone(which, request):
    page = request.getfixturevalue(which)
    parsed = Parsed(page)
    ids = [element["id"] for element in parsed.elements if "id" in element]
    assert len(ids) == len(set(ids))
    levels = [int(element["tag"][1]) for element in parsed.all("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    for element in parsed.elements:
        for address in (element.get("src"), element.get("href")):
            assert address is None or address.startswith("data:") or address.removeprefix("#") in ids
        assert all(element[key] in ids for key in element if key == "aria-labelledby")
    for table in parsed.all("table"):
        (caption,) = parsed.all("caption", inside=table)
        assert caption["text"]
        rows = parsed.all("tr", inside=table)
        assert {head["scope"] for head in parsed.all("th", inside=rows[0])} == {"col"}
        for row in rows[1:]:
            assert [head["scope"] for head in parsed.all("th", inside=row)] == ["row"]
    assert all(image["alt"] for image in parsed.all("img"))
    assert parsed.all("html")[0]["lang"] == "en"
    assert not parsed.all("script")
    assert not re.search(r"@import|url\(", page.read_text(encoding="utf-8"))


def test_everything_is_escaped(tmp_path):
    evil = '<script>alert("1")</script>&amp;'
    check = Check("evil", evil, "must_hold", evil, 1.0, None, False, evil, evil)
    texts = dict.fromkeys(("preset", "title", "claim", "setting"), evil)
    figures = (Figure("variance", f'" onload="x {evil}'),)
    changes = {"measured": {evil: evil}, "paper": {evil: evil}, "checks": (check,), "figures": figures}
    folder = finished(tmp_path / "run", evil, **texts, **changes)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, evil: [evil]}))
    write_page([folder], tmp_path / "report.html")
    parsed = Parsed(tmp_path / "report.html")
    assert not parsed.all("script")
    assert parsed.all("article")[0]["text"].count(evil) >= 10
    assert parsed.all("img")[0]["alt"] == figures[0].caption
    assert not any(key.startswith("on") for element in parsed.elements for key in element)


def test_a_page_needs_runs_and_a_place(tmp_path):
    with pytest.raises(DataError, match="No run was given"):
        write_page([], tmp_path / "report.html")
    for place, wrong in ((tmp_path, "is a folder"), (tmp_path / "no" / "report.html", "does not exist")):
        with pytest.raises(DataError, match=wrong):
            write_page([finished(tmp_path / wrong)], place)
