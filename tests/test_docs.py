"""Every Python block of the docs runs; one whose optional package is not here is skipped."""

import ast
import csv
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from flipout._drawing import DARK
from flipout.errors import MissingExtra
from flipout.experiments.registry import EXPERIMENTS
from tests.lent_kernels import lent_kernels

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.name}:{page.read_text()[: match.start()].count(chr(10)) + 2}")
    for page in PAGES[1:]  # tests/test_readme.py has the README
    for match in re.finditer(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    for block in [match.group(1)]
]

OPTIONAL = {
    "accelerate": "pip install accelerate",
    "bayesian_torch": "pip install --no-deps bayesian-torch",
    "evotorch": "pip install --no-deps evotorch, and pandas",
    "gymnasium": "pip install 'flipout[rl]'",
    "lightning": "pip install lightning",
    "peft": "pip install 'flipout[peft]'",
    "stable_baselines3": "pip install stable-baselines3",
    "transformers": "pip install transformers accelerate",
}


@pytest.mark.parametrize("block", BLOCKS)
def test_block_runs(block: str) -> None:
    imported = {
        alias.name.partition(".")[0]
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in (node.names if isinstance(node, ast.Import) else [ast.alias(node.module or "")])
    }
    for name in imported & OPTIONAL.keys():
        if find_spec(name) is None:
            pytest.skip(f"needs {name}: {OPTIONAL[name]}")
    with warnings.catch_warnings(), lent_kernels():
        if imported & {"evotorch", "lightning", "peft"}:
            warnings.simplefilter("ignore")  # they warn of themselves: names of torch they still use, workers, tips
        try:
            exec(compile(block, "<docs>", "exec"), {"__name__": "docs"})
        except MissingExtra as error:
            pytest.skip(str(error))


def test_the_interval_of_the_regression_recipe_holds_the_targets() -> None:
    """Of 142 targets, 90 % ± 2.5 %; the other two intervals are not about targets, and hold few of them."""
    (block,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/recipes/regression.md").read_text(), re.M | re.S)
    namespace: dict[str, Any] = {"__name__": "docs"}
    exec(compile(block, "<docs>", "exec"), namespace)
    prediction, target = namespace["prediction"], namespace["y"][namespace["test"]]
    shares = {}
    for name in ("interval", "function_interval", "mean_interval"):
        low, high = getattr(prediction, name)(0.9)
        shares[name] = ((low <= target) & (target <= high)).double().mean().item()
    assert 0.8 <= shares["interval"] <= 0.97
    assert shares["mean_interval"] < shares["function_interval"] < 0.6


def test_errors_of_antithetic_samples_are_quoted_as_recorded() -> None:
    with (ROOT / "benchmarks/results.csv").open(encoding="utf-8") as file:
        recorded = {
            (row["case"].removeprefix("prediction, spread "), row["variant"]): f"{float(row['ratio']):.2f}"
            for row in csv.DictReader(file)
            if row["case"].startswith("prediction, spread ") and row["ratio"]
        }
    page = (ROOT / "docs/bayes-predictions.md").read_text()
    for quantity in ("mean", "class probabilities", "5 % and 95 %", "epistemic variance", "mutual information"):
        ratios = [
            recorded[f"{spread}, {quantity}", variant]
            for variant in ("flipout", "antithetic")
            for spread in ("0.1", "0.3", "0.6")
        ]
        assert re.search(rf"^\| {quantity}[^|]*\| {re.escape(' | '.join(ratios))} \|$", page, re.MULTILINE)


def test_pages_that_teach_have_blocks() -> None:
    without = {"paper.md", "speed.md", "gallery.md"}
    taught = [page for page in PAGES if page.name not in without and page.parent.name != "api"]
    assert not [page.name for page in taught if "```python\n" not in page.read_text()]


@pytest.mark.parametrize("recorded", sorted((ROOT / "docs/migration/peers").glob("*.txt")), ids=lambda path: path.stem)
def test_what_a_peer_printed_is_quoted_as_recorded(recorded: Path) -> None:
    page = recorded.parents[1] / f"{recorded.stem.removeprefix('with_').replace('_', '-')}.md"
    assert f"```\n{recorded.read_text()}```\n" in page.read_text()


PROSE = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text())
    assert not [target for target in targets if not (page.parent / target).exists()]


def test_the_page_of_the_paper_knows_every_experiment_and_what_was_run() -> None:
    text = (ROOT / "docs" / "paper.md").read_text()
    for name in EXPERIMENTS:
        assert f"`{name}`" in text, name
        assert ((ROOT / "results" / name).exists()) == (f"](../results/{name})" in text), name


@contextmanager
def script(name: str) -> Iterator[Any]:
    """A script in docs/ as a module."""
    spec = spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks its own module up
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[spec.name]


def test_the_table_of_claims_is_what_the_committed_results_say() -> None:
    with script("claims") as claims:
        page = claims.PAGE.read_text(encoding="utf-8")
        assert claims.updated(page) == page, "run `python docs/claims.py`"


def test_the_gallery_has_every_committed_figure() -> None:
    with script("gallery") as gallery:
        page = gallery.PAGE.read_text(encoding="utf-8")
        assert gallery.page() == page, "run `python docs/gallery.py`"
    figures = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("results/*/figures/*.svg")]
    assert figures
    assert [figure for figure in figures if f"](../{figure})" not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_fits_its_column(page: Path) -> None:
    """A block of 78 characters does not scroll sideways beside the navigation."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    wide = [line for block in blocks for line in block.splitlines() if len(line) > 78]
    assert not wide


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="needs pip install 'flipout[docs]'")
def test_a_figure_for_dark_pages_has_no_colour_of_the_light_one() -> None:
    with script("hooks") as hooks:
        for figure in (*ROOT.glob("docs/images/*.svg"), *ROOT.glob("results/*/figures/*.svg")):
            light = figure.read_text(encoding="utf-8")
            dark = hooks.darkened(light)
            assert not hooks.COLOUR.search(light) or dark != light
            assert not [colour for colour in (*DARK, *hooks.OTHERS) if colour in dark], figure
            assert '<svg fill="#e6e6e6" ' in dark  # of text, which has no colour of its own


def test_pictures_are_on_the_pages_whose_code_draws_them() -> None:
    with script("pictures") as pictures:
        for page, name in pictures.PAGES.items():
            assert (ROOT / "docs" / "images" / f"{name}.svg").exists()
            assert f"images/{name}.svg)" in (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["bayes", "variance", "es", "regularizers", "recurrent", "schemes", "scaling"])
def test_a_page_of_the_guide_has_a_picture_of_committed_results(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert re.search(r"^!\[[^]]+\]\(\.\./results/[^)]+\.svg\)$", text, re.MULTILINE)
