"""The report page says what the result files say, by itself, to everyone."""

import base64
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from flipout.errors import DataError
from flipout.experiments.page import duration, number, write_page
from flipout.experiments.results import Check, Figure, Result
from tests import browser as chromium

WORD = "unbreakable" * 12
# The second one asks for more than a page may fetch.
SVGS = {
    "variance": '<svg xmlns="http://www.w3.org/2000/svg" width="640" height="420" viewBox="0 0 640 420">'
    '<rect width="640" height="420" fill="#fff"/><path d="M40 40 600 380" stroke="#1f77b4" stroke-width="3"/></svg>',
    "layers": '<svg xmlns="http://www.w3.org/2000/svg" width="1200" height="400" viewBox="0 0 1200 400">'
    '<image href="https://example.org/a.png" width="9" height="9"/><circle cx="600" cy="200" r="150"/></svg>',
}
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
CHECKS = (
    Check("flipout reaches independent weights at N = 8192", "reported", 1.31, (1.22, 1.4), False),
    Check("the mean gradient is that of independent weights", "must_hold", 0.0021, (-0.0113, 0.0155), True),
    Check("flipout is below shared at every batch size", "reported", 1.0, None, True),
    Check(f"at N = 1 the variances are equal, {WORD}", "must_hold", 2.5, (2.4, 2.6), False),
)


def finished(folder: Path, experiment: str = "variance-fc", **changes: Any) -> Path:
    """The folder of a finished run."""
    fields: dict[str, Any] = {
        "experiment": experiment,
        "preset": "quick",
        "title": "Figure 2: the variance of the gradient",
        "claim": "Flipout's variance falls as 1/N & stays below that of shared perturbations.",
        "setting": "Digits; 64–100–10, ReLU; Gaussian noise, 100 draws.",
        "measured": {"slope of flipout": -0.98734, "floor of shared": 3.8412e-7, "data": "digits", WORD: WORD},
        "paper": {"slope of flipout": "≈ −1", "epochs": 50},
        "checks": CHECKS,
        "figures": (Figure("variance", "Variance against N"), Figure("layers", 'Each layer, "by itself"')),
        **changes,
    }
    (folder / "figures").mkdir(parents=True)
    Result(**fields).write(folder / "result.json")
    config = {"experiment": experiment, "preset": "quick", "seed": 0, "batch_sizes": [1, 2, 4], "data": WORD}
    environment = {
        "flipout": "0.2.0",
        "commit": None,
        "python": "3.11.9",
        "torch": "2.13.0",
        "numpy": "2.4.6",
        "platform": "Linux x86_64",
        "device": "NVIDIA H200",
        "sessions": [
            {"started": "2026-11-15T10:00:00+00:00", "seconds": 100.0},
            {"started": "2026-11-16T10:00:00+00:00", "seconds": 23.4},
        ],
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "environment.json").write_text(json.dumps(environment))
    for name, svg in SVGS.items():
        (folder / "figures" / f"{name}.svg").write_text(svg)
        (folder / "figures" / f"{name}.png").write_bytes(PNG)
    return folder


def checks_of(folder: Path) -> list[dict[str, Any]]:
    """The rows that result.json asks for: those that must hold first, the order kept otherwise."""
    held = json.loads((folder / "result.json").read_text())["checks"]
    rows = [check for check in held if check["kind"] == "must_hold"]
    rows += [check for check in held if check["kind"] == "reported"]
    return [{**row, "numbers": [row["value"], *(row["interval"] or [])]} for row in rows]


class Parsed(HTMLParser):
    """Elements in order, with all text inside of them; closing tags must match."""

    VOID = ("meta", "link", "img", "br")

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.elements: list[dict[str, Any]] = []
        self.open: list[dict[str, Any]] = []
        self.feed(page.read_text(encoding="utf-8"))
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "text": "", "inside": list(self.open), **dict(attrs)}
        self.elements.append(element)
        if tag not in self.VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, *tags: str, inside: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        found = [element for element in self.elements if element["tag"] in tags]
        return found if inside is None else [e for e in found if any(outer is inside for outer in e["inside"])]


@pytest.fixture
def page(tmp_path) -> Path:
    write_page([finished(tmp_path / "variance-fc-quick")], tmp_path / "report.html")
    return tmp_path / "report.html"


def test_the_page_is_well_formed_and_stands_alone(page):
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
    assert parsed.all("html")[0]["lang"] == "en"
    assert not parsed.all("script")
    assert not re.search(r"@import|url\(", page.read_text(encoding="utf-8"))


def test_the_checks_are_those_of_the_result(page):
    parsed = Parsed(page)
    rows = [row for row in parsed.all("tr") if "data-kind" in row]
    expected = checks_of(page.parent / "variance-fc-quick")
    assert len(rows) == len(expected) == 4
    for row, check in zip(rows, expected, strict=True):
        claim, kind, _, interval, holds = (cell["text"] for cell in parsed.all("th", "td", inside=row))
        assert (claim, kind) == (check["claim"], check["kind"].replace("_", " "))
        assert [float(data["value"]) for data in parsed.all("data", inside=row)] == check["numbers"]
        assert (interval == "–") == (check["interval"] is None)
        assert holds == ("✓ holds" if check["holds"] else "✗ does not hold")
        assert (row["data-kind"], row["data-holds"]) == (check["kind"], str(check["holds"]).lower())


def test_the_numbers_stand_beside_the_papers(page):
    parsed = Parsed(page)
    table = next(table for table in parsed.all("table") if table["class"] == "numbers")
    cells = [[cell["text"] for cell in parsed.all("th", "td", inside=row)] for row in parsed.all("tr", inside=table)]
    assert cells == [
        ["quantity", "paper", "ours"],
        ["slope of flipout", "≈ −1", "−0.9873"],
        ["floor of shared", "–", "3.841\u202f×\u202f10−7"],
        ["data", "–", "digits"],
        [WORD, "–", WORD],
        ["epochs", "50", "–"],
    ]


def test_a_broken_claim_is_loud_and_the_cost_is_the_sum(page, tmp_path):
    parsed = Parsed(page)
    (alarm,) = [section for section in parsed.all("section") if section["class"] == "broken"]
    assert "1 claim that must hold does not" in alarm["text"]
    assert CHECKS[3].claim in alarm["text"]
    assert "2 of 4 checks hold, 1 broken" in parsed.all("nav")[0]["text"]
    assert (
        "2\N{NO-BREAK SPACE}min 3\N{NO-BREAK SPACE}s on NVIDIA H200, in 2 sessions" in parsed.all("article")[0]["text"]
    )
    write_page([finished(tmp_path / "calm", checks=CHECKS[:3])], page)
    assert not Parsed(page).all("section")


def test_everything_is_escaped(tmp_path):
    evil = '<script>alert("1")</script>&amp;'
    check = Check(evil, "must_hold", 1.0, None, False)
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


def test_runs_of_one_experiment_keep_their_own_anchors(tmp_path):
    names = ("variance fc", "variance-fc", "variance-fc-2", "checks", "title-variance-fc")
    folders = [finished(tmp_path / str(i), name) for i, name in enumerate(names)]
    write_page([*folders, folders[0]], tmp_path / "report.html")
    parsed = Parsed(tmp_path / "report.html")
    ids = [element["id"] for element in parsed.elements if "id" in element]
    assert len(ids) == len(set(ids))
    anchors = [article["id"] for article in parsed.all("article")]
    links = [link["href"] for link in parsed.all("a", inside=parsed.all("nav")[0])]
    assert links == [f"#{anchor}" for anchor in anchors]
    assert len(anchors) == 6
    assert "Contents" in [heading["text"] for heading in parsed.all("h2")]


def test_a_run_with_nothing_to_show_and_values_that_are_not_finite(tmp_path):
    bare = finished(tmp_path / "bare", measured={}, paper={}, checks=(), figures=())
    endless = Check("one repeat", "reported", float("inf"), (float("-inf"), float("inf")), True)
    above, below = (Check("one-sided", "reported", 0.7, ends, True) for ends in ((0.5, None), (None, 0.9)))
    write_page([bare, finished(tmp_path / "endless", checks=(endless, above, below))], tmp_path / "report.html")
    parsed = Parsed(tmp_path / "report.html")
    assert "No checks" in parsed.all("nav")[0]["text"]
    assert not parsed.all("table", "figure", inside=parsed.all("article")[0])
    first, *rest = [row["text"] for row in parsed.all("tr") if "data-kind" in row]
    assert "not finite–" in first
    assert "above 0.5" in rest[0]
    assert "below 0.9" in rest[1]


def text(shown: str) -> str:
    return re.sub("<[^>]*>", "", shown).replace("\u202f", " ").replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (1.0, "1"),
        (0.123456, "0.1235"),
        (-78.8, "−78.8"),
        (9999.96, "10000"),
        (12345.6, "12,346"),
        (3.84e-7, "3.84 × 10−7"),
        (-2e9, "−2 × 109"),
        (13002, "13,002"),
        (1024, "1024"),
        ("1.46 ± 0.02", "1.46 ± 0.02"),
    ],
)
def test_numbers_have_four_digits(value, shown):
    assert text(number(value)) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0, "0 s"), (4.23, "4.2 s"), (59.7, "1 min 0 s"), (123.4, "2 min 3 s"), (7444, "2 h 4 min"), (1e5, "1 d 3 h")],
)
def test_durations_are_for_people(seconds, shown):
    assert text(duration(seconds)) == shown


def no_folder(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def a_file(folder: Path) -> None:
    no_folder(folder)
    folder.write_text("")


@pytest.mark.parametrize(
    ("spoil", "named", "says"),
    [
        (no_folder, "", "does not exist. Give the folder of a finished run"),
        (a_file, "", "is a file"),
        (lambda f: (f / "config.json").unlink(), "", "is not a run"),
        (lambda f: (f / "config.json").write_text("[]"), "config.json", "a JSON object was expected"),
        (lambda f: (f / "result.json").unlink(), "", "unfinished.*`flipout run variance-fc ... --resume`"),
        (lambda f: (f / "result.json").write_text('{"experiment"'), "result.json", "not the result of a run"),
        (lambda f: (f / "environment.json").unlink(), "environment.json", "FileNotFoundError"),
        (lambda f: (f / "environment.json").write_text("{}"), "environment.json", "what the run cost.*device"),
        (lambda f: (f / "figures" / "layers.svg").unlink(), "figures/layers.svg", "cannot be read.*--resume"),
    ],
)
def test_what_is_not_a_finished_run_is_refused_and_no_page_is_left(tmp_path, spoil, named, says):
    good, bad = finished(tmp_path / "good"), finished(tmp_path / "bad")
    spoil(bad)
    with pytest.raises(DataError, match=f"(?s){says}") as caught:
        write_page([good, bad], tmp_path / "report.html")
    assert str(caught.value).startswith(str(bad / named))
    assert not list(tmp_path.glob("report.html*"))


def test_a_page_needs_runs_and_a_place(tmp_path):
    with pytest.raises(DataError, match="No run was given"):
        write_page([], tmp_path / "report.html")
    for place, wrong in ((tmp_path, "is a folder"), (tmp_path / "no" / "report.html", "does not exist")):
        with pytest.raises(DataError, match=wrong):
            write_page([finished(tmp_path / wrong)], place)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
def test_text_meets_wcag_aa(mode):
    css = files("flipout.experiments").joinpath("page.css").read_text(encoding="utf-8")
    colours = [dict(re.findall(r"--(\w+): (#\w{6});", block)) for block in re.findall(r":root \{(.*?)\}", css, re.S)]
    assert colours[0].keys() == colours[1].keys()
    pairs = [("text", ground) for ground in ("background", "surface", "alarm")]
    pairs += [("muted", ground) for ground in ("background", "surface", "alarm")]
    pairs += [(ink, "background") for ink in ("link", "holds", "mixed", "broken")] + [("broken", "alarm")]
    for ink, ground in pairs:
        dark, light = sorted(luminance(colours[mode][name]) for name in (ink, ground))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, f"{ink} on {ground}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium.headless() as driver:
        yield driver


@pytest.fixture
def opened(browser, page) -> Any:
    """The page in a browser, wide and light."""
    chromium.screen(browser, 1280, 900)
    chromium.prefer(browser, "light")
    browser.get("about:blank")
    for forget in (chromium.requests, chromium.console):
        forget(browser)
    browser.get(page.as_uri())
    return browser


def test_it_opens_from_a_file_in_silence(opened, page):
    asked = chromium.requests(opened)
    assert page.as_uri() in asked
    assert [url for url in asked if url != page.as_uri() and not url.startswith("data:")] == []
    assert chromium.console(opened) == []


def test_the_figures_are_seen(opened):
    sizes = opened.execute_script(
        "return [...document.images].map(i => [i.complete, i.naturalWidth, i.width, i.height, i.checkVisibility()])"
    )
    assert len(sizes) == 2
    for complete, natural, width, height, visible in sizes:
        assert complete
        assert natural > 0
        assert width > 300
        assert height > 100
        assert visible


def test_the_checks_are_read_as_they_stand_in_the_result(opened, page):
    rows = opened.execute_script(
        "return [...document.querySelectorAll('.checks tbody tr')].map(row => ({kind: row.dataset.kind,"
        " holds: row.dataset.holds, cells: [...row.cells].map(cell => cell.innerText),"
        " numbers: [...row.querySelectorAll('data')].map(data => data.value)}))"
    )
    for row, check in zip(rows, checks_of(page.parent / "variance-fc-quick"), strict=True):
        assert (row["kind"], row["holds"]) == (check["kind"], str(check["holds"]).lower())
        assert row["cells"][:2] == [check["claim"], check["kind"].replace("_", " ")]
        assert [float(value) for value in row["numbers"]] == check["numbers"]
        assert row["cells"][4] == ("✓ holds" if check["holds"] else "✗ does not hold")


@pytest.mark.parametrize("width", [360, 700, 1280])
def test_it_never_scrolls_sideways(opened, width):
    chromium.screen(opened, width, 800, mobile=width == 360)
    opened.execute_script("document.querySelectorAll('details').forEach(details => details.open = true)")
    assert opened.execute_script("return document.documentElement.scrollWidth") <= width
    cut = opened.execute_script(
        "return [...document.querySelectorAll('td, tbody th, dt, dd, p, h2, img')].filter("
        "e => e.getBoundingClientRect().right > innerWidth || e.scrollWidth > e.clientWidth + 1).map(e => e.outerHTML)"
    )
    assert cut == []


def test_dark_mode_changes_the_ground_and_the_text(opened):
    script = "const style = getComputedStyle(document.body); return [style.backgroundColor, style.color]"
    light = opened.execute_script(script)
    chromium.prefer(opened, "dark")
    dark = opened.execute_script(script)
    assert light[0] == "rgb(251, 250, 246)"
    assert dark[0] == "rgb(21, 23, 27)"
    assert light[1] != dark[1]


def test_the_keyboard_reaches_every_link_and_shows_where_it_is(opened):
    stops = opened.execute_script("return document.querySelectorAll('a, summary').length")
    script = "const e = document.activeElement; const style = getComputedStyle(e); return [e.tagName, style.outline]"
    seen = []
    for _ in range(stops):
        chromium.tab(opened)
        seen.append(opened.execute_script(script))
    assert sorted(tag for tag, _ in seen) == ["A"] * (stops - 1) + ["SUMMARY"]
    assert all("solid 3px" in outline for _, outline in seen)
