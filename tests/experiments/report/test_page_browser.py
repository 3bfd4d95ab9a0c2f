"""The report page in a real browser: wide and narrow, light and dark, by keyboard."""

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest

from tests import browser as chromium
from tests.experiments.report.pages import checks_of

OPEN = "document.querySelectorAll('details').forEach(details => details.open = true)"


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(ink: str, ground: str) -> float:
    dark, light = sorted(map(luminance, (ink, ground)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
def test_text_meets_wcag_aa(mode):
    css = files("flipout.experiments.report").joinpath("page.css").read_text(encoding="utf-8")
    colours = [dict(re.findall(r"--(\w+): (#\w{6});", block)) for block in re.findall(r":root \{(.*?)\}", css, re.S)]
    assert colours[0].keys() == colours[1].keys()
    pairs = [("text", ground) for ground in ("background", "surface", "alarm")]
    pairs += [("muted", ground) for ground in ("background", "surface", "alarm")]
    pairs += [(ink, "background") for ink in ("link", "holds", "mixed", "broken")] + [("broken", "alarm")]
    for ink, ground in pairs:
        assert contrast(colours[mode][ink], colours[mode][ground]) >= 4.5, f"{ink} on {ground}"


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


@pytest.fixture
def crowded(opened, several) -> Any:
    """A page of several runs, with comparisons and folds, in the same browser."""
    opened.get(several.as_uri())
    return opened


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


@pytest.mark.parametrize("width", [360, 390, 700, 1280])
@pytest.mark.parametrize("which", ["opened", "crowded"])
def test_it_never_scrolls_sideways(request, which, width):
    driver = request.getfixturevalue(which)
    chromium.screen(driver, width, 800, mobile=width < 400)
    driver.execute_script(OPEN)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    cut = driver.execute_script(
        "return [...document.querySelectorAll('td, tbody th, dt, dd, p, h2, img, summary, .scrolls')].filter("
        "e => !e.closest('.scrolls table')).filter(e => e.getBoundingClientRect().right > innerWidth"
        " || !e.matches('.scrolls') && e.scrollWidth > e.clientWidth + 1).map(e => e.outerHTML)"
    )
    assert cut == []


def test_wide_tables_scroll_in_their_own_box_and_keep_the_names_of_rows(crowded):
    chromium.screen(crowded, 390, 800, mobile=True)
    boxes = crowded.execute_script(
        "return [...document.querySelectorAll('.compared > .scrolls')].map(box => {"
        " box.scrollLeft = 60; const name = box.querySelector('tbody th').getBoundingClientRect();"
        " return [box.scrollWidth > box.clientWidth, box.scrollLeft, box.getBoundingClientRect().left, name.left]})"
    )
    assert len(boxes) == 3
    for wider, moved, box, name in boxes:
        assert wider
        assert moved == 60
        assert name == pytest.approx(box, abs=1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_that_is_drawn_meets_wcag_aa(crowded, scheme):
    chromium.prefer(crowded, scheme)
    crowded.execute_script(OPEN)
    pairs = crowded.execute_script(
        "const seen = {}; const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);"
        "while (walker.nextNode()) { const e = walker.currentNode.parentElement; let g = e;"
        " if (!walker.currentNode.data.trim() || !e.checkVisibility()) continue;"
        " while (getComputedStyle(g).backgroundColor === 'rgba(0, 0, 0, 0)') g = g.parentElement;"
        " seen[[getComputedStyle(e).color, getComputedStyle(g).backgroundColor].join('|')] = e.outerHTML.slice(0, 99);"
        "} return Object.entries(seen)"
    )
    assert len(pairs) > 8
    for colours, element in pairs:
        ink, ground = (
            "#" + "".join(f"{int(c):02x}" for c in re.findall(r"\d+", colour)) for colour in colours.split("|")
        )
        assert contrast(ink, ground) >= 4.5, (colours, element)


def test_a_link_to_a_folded_check_opens_the_fold(crowded):
    crowded.execute_script("document.querySelectorAll('.seen').forEach(details => details.open = true)")
    anchor = crowded.execute_script("return document.querySelector('.family .checks tr[id]').id")
    visible = f"return document.getElementById('{anchor}').checkVisibility({{contentVisibilityAuto: true}})"
    assert not crowded.execute_script(visible)
    crowded.execute_script(f"document.querySelector('.seen a[href=\"#{anchor}\"]').click()")
    assert crowded.execute_script(visible)


def test_dark_mode_changes_the_ground_and_the_text(opened):
    script = "const style = getComputedStyle(document.body); return [style.backgroundColor, style.color]"
    light = opened.execute_script(script)
    chromium.prefer(opened, "dark")
    dark = opened.execute_script(script)
    assert light[0] == "rgb(251, 250, 246)"
    assert dark[0] == "rgb(21, 23, 27)"
    assert light[1] != dark[1]


@pytest.mark.parametrize("which", ["opened", "crowded"])
def test_the_keyboard_reaches_every_link_and_shows_where_it_is(request, which):
    driver = request.getfixturevalue(which)
    driver.execute_script(OPEN)
    stops = driver.execute_script("return document.querySelectorAll('a, summary, .scrolls').length")
    script = (
        "const e = document.activeElement; window.stops = (window.stops || new Set()).add(e);"
        "return [e.matches('a, summary, .scrolls'), getComputedStyle(e).outline, window.stops.size]"
    )
    seen = []
    for _ in range(stops):
        chromium.tab(driver)
        seen.append(driver.execute_script(script))
    assert [found[2] for found in seen] == list(range(1, stops + 1))
    assert all(found[0] for found in seen)
    assert all("solid 3px" in outline for _, outline, _ in seen)


def test_links_of_the_index_go_to_their_runs_by_keyboard(crowded):
    while not crowded.execute_script("return document.activeElement.closest('nav') !== null"):
        chromium.tab(crowded)
    crowded.switch_to.active_element.send_keys("\ue007")
    assert crowded.execute_script("return location.hash") == "#run-variance-fc"
