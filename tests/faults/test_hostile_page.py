"""Hostile text in every field of a run that takes text, in a real browser: it is shown, and nothing else happens."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flipout.experiments.live.page import live_page
from flipout.experiments.live.state import read_state
from flipout.experiments.report.page import write_page
from tests import browser as chromium
from tests.experiments.report.pages import CHECKS, LAYERS, finished, seen_in

AWAY = "http://127.0.0.1:9/away"
PAYLOADS = (
    f'"><meta http-equiv="refresh" content="0;url={AWAY}">',
    f"<script>window.hacked=1;location='{AWAY}'</script>",
    f'<img src="{AWAY}" onerror="window.hacked=1">',
    f'<svg onload="window.hacked=1"><image href="{AWAY}"/></svg>',
    f'<iframe src="{AWAY}"></iframe><object data="{AWAY}"></object><embed src="{AWAY}">',
    f'</style><style>@import "{AWAY}"; body {{ display: none }}</style>',
    f'</title><base href="{AWAY}"><link rel="stylesheet" href="{AWAY}">',
    f'x" autofocus onfocus="window.hacked=1" style="background:url({AWAY})" y="',
    "x' onmouseover='window.hacked=1",
    f'<a href="javascript:window.hacked=1">a</a><form action="{AWAY}"><input autofocus onfocus="window.hacked=1">',
    "--><!--<plaintext><textarea><noscript>",
    "{run.folder} {0.__class__} {{7*7}} ${7*7} <%= 7 %>",
    "&lt;script&gt;window.hacked=1&lt;/script&gt;&#60;b&#62;",
    "\u202e<b>\u0000\ud7ff\ufeff<b>",
)
ELEMENTS = "return [...document.querySelectorAll('*')].map(e => e.tagName + ' ' + e.getAttributeNames().sort())"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium.headless() as driver:
        yield driver


def spoil(folder: Path, text: str) -> int:
    """Put the text into every field that takes text, also into the keys of tables. Return how many there are."""
    count = [0]
    bound = {"id", "kind", "preset", "experiment", "figure", "started", "name"}  # other texts are refused, see below

    def spoilt(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            free = key in ("measured", "paper")  # tables with keys of their own
            return {(f"{name} {text}" if free else name): spoilt(part, name) for name, part in value.items()}
        if isinstance(value, list):
            return [spoilt(part, key) for part in value]
        if not isinstance(value, str) or key in bound:
            return value
        count[0] += 1
        return f"{value} {text}"

    for name in ("result.json", "config.json", "environment.json"):
        path = folder / name
        content = spoilt(json.loads(path.read_text()))
        if name == "config.json":
            content |= {text: text, "nested": {text: [text]}}
        if name == "environment.json":
            content |= {text: text, "commit": text}
        if name == "result.json":
            content |= {"preset": text, "experiment": text}
            for check in content["checks"]:
                check["id"] = re.sub(r"[\s/]+", "/", check["id"] + text).strip("/")
        path.write_text(json.dumps(content))
    return count[0]


def runs(root: Path, text: str | None) -> list[Path]:
    """Two runs of one experiment, whose page has every kind of element."""
    layers = {f"conv{i}: γ": f"{i}.5e-05 ± 2.0e-06" for i in range(1, 11)}
    checks = (*seen_in("variance", CHECKS), *LAYERS[:10])
    folders = [
        finished(root / "first", measured={**layers, "steps": 3, "data": "digits"}, checks=checks),
        finished(root / "second", settings={"seed": 1}, checks=checks),
    ]
    if text is not None:
        assert all(spoil(folder, text) > 40 for folder in folders)
    return folders


def seen(browser: Any, page: Path) -> tuple[list[str], str]:
    """Open a page and return its elements with their attributes, and its text. Nothing else may happen."""
    browser.get("about:blank")
    for forget in (chromium.requests, chromium.console):
        forget(browser)
    browser.get(page.as_uri())
    browser.execute_script("document.querySelectorAll('details').forEach(details => details.open = true)")
    elements, text = browser.execute_script(ELEMENTS), browser.execute_script("return document.body.textContent")
    assert browser.current_url == page.as_uri()
    assert browser.execute_script("return window.hacked") is None
    assert [url for url in chromium.requests(browser) if url != page.as_uri() and not url.startswith("data:")] == []
    assert chromium.console(browser) == []
    return elements, text


@pytest.fixture(scope="module")
def clean(browser, tmp_path_factory) -> set[str]:
    """The elements of a page whose fields have plain text."""
    folder = tmp_path_factory.mktemp("clean")
    write_page(runs(folder, "plain text"), folder / "report.html")
    return set(seen(browser, folder / "report.html")[0])


@pytest.mark.parametrize("number", range(len(PAYLOADS)))
def test_hostile_text_in_every_field_is_shown_and_does_nothing(browser, clean, tmp_path: Path, number: int) -> None:
    text = PAYLOADS[number]
    write_page(runs(tmp_path, text), tmp_path / "report.html")
    hostile, shown = seen(browser, tmp_path / "report.html")
    assert set(hostile) <= clean
    assert shown.count(text.replace("\x00", "")) > 60  # HTML has no NUL


def live(folder: Path, text: str) -> Path:
    """Write the live page of a run whose every text is this one, as a file that does not ask for the next moment."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"experiment": text[:80], "preset": text[:80], text: text}))
    points = [{"piece": f"{text} {piece}", "step": step, text: step} for piece in range(2) for step in range(3)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points) + f"{text}\n")
    (folder / "pieces").mkdir()
    (folder / "pieces" / (text.replace("/", "") + ".json")).touch()
    page = folder.parent / "live.html"
    page.write_text(live_page(replace(read_state(folder), is_finished=True)), encoding="utf-8")
    return page


@pytest.mark.parametrize("number", range(len(PAYLOADS)))
def test_hostile_text_on_the_live_page_is_shown_and_does_nothing(browser, tmp_path: Path, number: int) -> None:
    text = PAYLOADS[number].replace("\x00", "")
    for name in ("plain", "hostile"):
        (tmp_path / name).mkdir()
    plain, _ = seen(browser, live(tmp_path / "plain" / "run", "plain text"))
    hostile, shown = seen(browser, live(tmp_path / "hostile" / "run", text))
    assert set(hostile) <= set(plain)
    assert shown.count(text[:80]) >= 3  # the experiment, the preset and the metric
    assert shown.count(text[:40]) >= 5  # and two series


@pytest.mark.parametrize("text", ["<img src=x onerror=alert(1)>", "../../etc", "\ud7ff"])
def test_a_config_that_cannot_be_read_is_escaped_on_the_live_page(browser, tmp_path: Path, text: str) -> None:
    """What the page says of a broken file may quote it."""
    page = live(tmp_path / "run", "plain text")
    (tmp_path / "run" / "config.json").write_text(json.dumps([text]))
    state = read_state(tmp_path / "run")
    page.write_text(live_page(replace(state, is_finished=True)), encoding="utf-8")
    assert repr(text)[1:-1] in seen(browser, page)[1]


@pytest.mark.parametrize("field", ["kind", "figure", "started", "name", "id"])
def test_fields_with_a_form_of_their_own_refuse_other_text(tmp_path: Path, field: str) -> None:
    """What `spoil` leaves out."""
    (folder, _) = runs(tmp_path, None)
    name = "environment.json" if field == "started" else "result.json"
    content = json.loads((folder / name).read_text())
    part = {"started": "sessions", "name": "figures"}.get(field, "checks")
    content[part][0][field] = PAYLOADS[0]
    (folder / name).write_text(json.dumps(content))
    if field == "figure":  # a name that no figure has is no link
        write_page([folder], tmp_path / "report.html")
        assert AWAY not in (tmp_path / "report.html").read_text()
        return
    with pytest.raises(Exception, match=f"{name}.*{field}"):
        write_page([folder], tmp_path / "report.html")
