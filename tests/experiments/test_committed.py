"""The committed results: checks lead to their figures, and pages quote them as they are."""

import json
import re
from pathlib import Path

import pytest

from flipout.experiments.report.page import write_page
from flipout.experiments.running.results import Result
from flipout.experiments.variance.claims import levelling
from flipout.experiments.variance.study import decompositions
from tests.experiments.report.pages import Parsed

RESULTS = Path(__file__).parents[2] / "results"
FOLDERS = sorted(path.parent.name for path in RESULTS.glob("*/result.json"))
# Checks that no figure shows: draws at one network, prices and times, α ≫ β ≫ γ where the figure has curves, rounding.
UNSEEN = {
    "bayesian-lora": ["merged", "reloaded", "gradient-variance", "step-time"],
    "lora-information": [],
    "lora-sentiment": ["merged", "reloaded", "step-time", "peak-memory"],
    "es-backprop-convle": ["same-gradient"],
    "es-backprop-fc": ["same-gradient"],
    "es-discrete": ["no-gradient", "same-gradient-.*"],
    "es-estimates": [],
    "es-ideal": ["same-gradient", "variance-.*"],
    "es-rl": ["same-gradient"],
    "es-scaling": ["same-fitness", "cheaper"],
    "large-batch-convle": ["same-loss", "loss-variance", "by-the-clock"],
    "large-batch-fc": ["same-loss", "loss-variance", "by-the-clock"],
    "posterior-check": [],
    "ptb-char": ["long-windows", "same-loss", "loss-variance"],
    "ptb-large-batch": ["long-windows", "same-loss", "loss-variance"],
    "shift": [],
    "ptb-word": ["long-windows", "same-loss", "loss-variance"],
    "theorem": ["predicted/fc"],
    "uci": ["same-loss", "loss-variance"],
    "uncertainty": ["wrong-answers", "log-likelihood"],
    # The figure has six of the layers.
    "variance-convgg": ["orders/.*", r"(slope|knee)/(?!(conv1|conv5|conv9|conv13|fc1|fc3)$).*"],
    "variance-fc": ["orders/.*"],
    "variance-lstm": ["orders/.*"],
    "variance-multigpu": ["predicted"],
    "variance-wd-lstm": ["orders/.*"],
}


@pytest.mark.parametrize("name", FOLDERS)
def test_every_check_leads_to_the_figure_that_shows_it(name, tmp_path):
    config = json.loads((RESULTS / name / "config.json").read_text(encoding="utf-8"))
    result = Result.read(RESULTS / name / "result.json", config.get("shown", ()))
    write_page([RESULTS / name], tmp_path / "report.html")
    parsed = Parsed(tmp_path / "report.html")
    figures = {figure["id"]: parsed.all("b", inside=figure)[0]["text"] for figure in parsed.all("figure")}
    assert list(figures.values()) == [figure.name for figure in result.figures]
    found = {}
    for row in parsed.all("tr"):
        if "data-kind" in row:
            links = [figures[link["href"].removeprefix("#")] for link in parsed.all("a", inside=row)]
            found[parsed.all("th", inside=row)[0]["text"]] = links
    assert found.keys() == {check.statement for check in result.checks}
    for check in result.checks:
        assert found[check.statement] == ([] if check.figure is None else [check.figure]), check.id
        assert (check.figure is None) == any(re.fullmatch(pattern, check.id) for pattern in UNSEEN[name]), check.id


@pytest.mark.parametrize("name", ["variance-convgg", "variance-fc", "variance-lstm", "variance-wd-lstm"])
def test_knees_are_those_of_the_committed_terms(name):
    config = json.loads((RESULTS / name / "config.json").read_text(encoding="utf-8"))
    terms = decompositions(RESULTS / name / "decomposition.json")
    held = [check for check in Result.read(RESULTS / name / "result.json").checks if check.family == "knee"]
    assert held == levelling(terms, config.get("shown", ()))


def test_flipout_against_wd_is_quoted_as_it_was_found():
    """README and its page quote the committed run for the one comparison whose outcome is not the paper's."""
    checks = {check.id: check for check in Result.read(RESULTS / "ptb-word" / "result.json").checks}
    for page, digits in (("README.md", 1), ("docs/language-models.md", 2)):
        text = (RESULTS.parent / page).read_text(encoding="utf-8")
        for decoder in ("untied", "tied"):
            check = checks[f"test-below-{decoder}"]
            assert check.value is not None
            assert check.interval is not None
            ends = (check.value, *check.interval)
            value, low, high = (f"{x:.{digits}f}".replace("-", "−") for x in ends)
            assert re.search(rf"{value}[^.|]*\((90 % interval )?{low} … {high}", text), (page, decoder)


def test_the_page_on_blob_quotes_the_committed_run():
    page = (RESULTS.parent / "docs" / "migration" / "blob.md").read_text(encoding="utf-8")
    found = json.loads((RESULTS / "lora-information" / "pieces" / "information.json").read_text(encoding="utf-8"))
    rows = {"explicit": "explicit samples", "per sequence": "flipout, one weight", "per token": "signs for each token"}
    for way, (value, error) in found.items():
        assert re.search(rf"\| {rows[way]}[^|]*\| {value:.4f} \| {error:.4f} \|", page)
    lost = 1 - found["per token"][0] / found["explicit"][0]
    assert f"lose {lost:.0%} of it here".replace("%", " %") in page
