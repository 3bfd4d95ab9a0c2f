"""The site builds. In a real browser, on a phone and on a desk, only tables and code scroll, and figures fit the page.

All tests share one build.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests import browser

pytestmark = pytest.mark.skipif(find_spec("mkdocs") is None, reason="needs pip install 'flipout[docs]'")
ROOT = Path(__file__).parents[1]
STRICT = ["mkdocs", "build", "--strict"]  # with --quiet, mkdocs counts no warnings, and nothing fails
PHONE, DESK = (390, 844), (1280, 900)
# What is wider than the screen, but for tables and code in their own scrolling boxes.
TOO_WIDE = """
const boxed = (e) => e.closest('.md-typeset__scrollwrap, .highlight, pre');
return [...document.querySelectorAll('article table, article img, article p, article li')]
    .filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !boxed(e))
    .map((e) => e.tagName + ' ' + e.textContent.slice(0, 60));
"""
SCROLLING = """
return [...document.querySelectorAll('article pre code')]
    .filter((code) => code.scrollWidth > code.clientWidth + 1).map((code) => code.textContent.slice(0, 60));
"""
SCROLLING_TABLES = """
return [...document.querySelectorAll('.md-typeset__scrollwrap')]
    .filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => box.textContent.trim().slice(0, 60));
"""
# Their tables have many columns of numbers, or are made by a program.
WIDE_TABLES = ("experiments", "language-models", "speed")
FIGURES = """
return [...document.querySelectorAll('article img')].map((image) =>
    [image.getAttribute('src'), getComputedStyle(image).display, image.naturalWidth, image.clientWidth]);
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", *STRICT, "--site-dir", str(folder)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


@pytest.fixture(scope="module")
def opened() -> Iterator[Any]:
    with browser.headless() as driver:
        yield driver


def pages(site: Path) -> list[Path]:
    return [page for page in sorted(site.rglob("*.html")) if page.name != "404.html"]


def test_a_broken_link_breaks_the_site(tmp_path: Path) -> None:
    assert f"{' '.join(STRICT)}\n" in (ROOT / "Makefile").read_text()
    (tmp_path / "docs").mkdir()
    (tmp_path / "mkdocs.yml").write_text("site_name: broken\n")
    (tmp_path / "docs" / "index.md").write_text("[nowhere](nowhere.md)\n")
    run = subprocess.run([sys.executable, "-m", *STRICT], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode != 0


def test_the_site_builds_and_loads_nothing_from_elsewhere(site: Path) -> None:
    """Strictly: no broken link, no page outside of the navigation, no name without an entry."""
    loaded = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*(?:src|href)=["']?(?:https?:)?//""")
    built = list(site.rglob("*.html"))
    assert built
    assert not [page for page in built if loaded.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    "size", [pytest.param(PHONE, id="phone"), pytest.param(DESK, id="desk", marks=pytest.mark.slow)]
)
def test_pages_fit_the_screen(site: Path, opened: Any, size: tuple[int, int]) -> None:
    browser.screen(opened, *size, mobile=size == PHONE)
    for page in pages(site):
        opened.get(page.as_uri())
        assert opened.execute_script("return document.documentElement.scrollWidth") <= size[0], page.name
        assert opened.execute_script(TOO_WIDE) == [], page.name
        if size == PHONE and page.stem not in WIDE_TABLES and page.parent.name not in ("api", "notebooks"):
            assert opened.execute_script(SCROLLING_TABLES) == [], page.name
        if size == DESK and page.parent.name != "api":  # signatures may be longer
            assert opened.execute_script(SCROLLING) == [], page.name


@pytest.mark.parametrize(("scheme", "suffix"), [("light", ".svg"), ("dark", ".dark.svg")])
def test_figures_have_a_variant_for_the_page_at_their_own_size(
    site: Path, opened: Any, scheme: str, suffix: str
) -> None:
    """A figure at its own size has the text that it was drawn with: at least 8 points."""
    browser.screen(opened, *DESK)
    browser.prefer(opened, scheme)
    opened.get((site / "404.html").as_uri())
    for name in ("index.html", "gallery.html", "concepts.html", "bayes.html"):
        opened.execute_script("localStorage.clear()")  # of all pages: none remembers another colour scheme
        opened.get((site / name).as_uri())
        found = opened.execute_script(FIGURES)
        shown = [
            (source.partition("#")[0], natural, width) for source, display, natural, width in found if display != "none"
        ]
        assert 2 * len(shown) == len(found) > 0
        for source, natural, width in shown:
            assert source.endswith(suffix), source
            assert source.endswith(".dark.svg") == (scheme == "dark"), source
            assert 0 < natural <= width + 1, source


def test_a_link_to_a_page_can_be_shown_with_its_title(site: Path) -> None:
    page = (site / "bayes.html").read_text(encoding="utf-8")
    assert '<meta property="og:title" content="Bayesian neural nets">' in page
    assert '<meta property="og:description" content="Stochastic weights for PyTorch' in page


@pytest.mark.slow
def test_a_published_site_names_its_source_and_its_card(tmp_path: Path) -> None:
    """Only who publishes the site knows its addresses."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    published = {"FLIPOUT_SITE_URL": "https://example.org/flipout/", "FLIPOUT_REPO_URL": "https://example.org/source"}
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, env={**os.environ, **published})
    page = (tmp_path / "bayes.html").read_text(encoding="utf-8")
    assert '<meta property="og:image" content="https://example.org/flipout/assets/card.png">' in page
    assert '<meta property="og:url" content="https://example.org/flipout/bayes.html">' in page
    assert 'href="https://example.org/source"' in page
    header = (tmp_path / "assets" / "card.png").read_bytes()[:24]
    assert (int.from_bytes(header[16:20]), int.from_bytes(header[20:24])) == (1200, 630)
